"""The names of the ``nvshmem`` package (nvshmem4py) that scripts use, on this package's symmetric heap: simulated ranks and GPUs alike.

``install`` makes ``import nvshmem.core`` find them. An ``nvshmem`` that is installed stays what it is unless one asks.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from . import bindings, core

_MODULES = ("nvshmem", "nvshmem.core", "nvshmem.bindings", "nvshmem.bindings.nvshmem")


def is_nvshmem_installed() -> bool:
    """Whether a package ``nvshmem`` that is not this one can be imported."""
    found = sys.modules.get("nvshmem")
    if found is not None:
        return not getattr(found, "__triton_dist__", False)
    return importlib.util.find_spec("nvshmem") is not None


def install(*, replace: bool = False) -> bool:
    """Make ``import nvshmem`` give these modules; returns whether it does.

    replace: also where another ``nvshmem`` is installed. By default that one is left alone.
    """
    if is_nvshmem_installed() and not replace:
        return False
    top = ModuleType("nvshmem", __doc__)
    top.__path__ = []  # a package, so that "import nvshmem.core" looks into sys.modules
    top.__dict__.update(__triton_dist__=True, core=core, bindings=bindings)
    sys.modules.update(zip(_MODULES, (top, core, bindings, bindings), strict=True))
    return True


def uninstall() -> None:
    """Undo ``install``: forget the modules under the names of ``nvshmem``, if they are these."""
    if getattr(sys.modules.get("nvshmem"), "__triton_dist__", False):
        for name in _MODULES:
            sys.modules.pop(name, None)
