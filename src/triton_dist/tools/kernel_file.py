"""A kernel by its place, as command lines name it: a file that is run from its own folder, or a module."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from triton.runtime.jit import JITFunction

from ..errors import InvalidArgumentError
from .kernel_signature import jit_function


def load_kernel(place: str) -> Any:
    """The kernel ``file.py:name``, or ``package.module:name``.

    A file is run as a script is: modules beside it may be imported, and each file gets those of its own folder. They are no longer known by
    name once it has been run, so what it imports from there it imports at its top.
    Raises InvalidArgumentError where there is no such file, module or kernel; and what the file raises.
    """
    where, colon, name = str(place).rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise InvalidArgumentError(f"{place!r}: give a file and the name of a kernel in it, as in kernels.py:my_kernel")
    module = _module_of_file(Path(where)) if where.endswith(".py") else _module_by_name(where)
    try:
        kernel = getattr(module, name)
    except AttributeError:
        known = sorted(key for key, value in vars(module).items() if isinstance(value, JITFunction) or hasattr(value, "fn"))
        raise InvalidArgumentError(f"{where} has no {name!r}; kernels there: {', '.join(known) or 'none'}") from None
    jit_function(kernel)
    return kernel


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidArgumentError(f"there is no file {str(path)!r}")
    path = path.resolve()
    # A file may be named as a module that it imports.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidArgumentError(f"{path} can't be read as a Python file")
    module = importlib.util.module_from_spec(spec)
    with _imports_from(path.parent):
        # Dataclasses look their module up by name.
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _imports_from(folder: Path) -> Iterator[None]:
    """Modules are looked for in ``folder`` first; those that were found there are forgotten behind it, and may be others the next time."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        found = {name for name in set(sys.modules) - before if "." not in name and _lies_in(folder, sys.modules[name])}
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in found:
                del sys.modules[name]


def _lies_in(folder: Path, module: Any) -> bool:
    """Whether a module is a file of the folder, or a package there; not what lies deeper, such as an environment's packages."""
    file = getattr(module, "__file__", None)
    places = [Path(file).parent] if file else []
    if hasattr(module, "__path__"):
        places = [Path(place).parent for place in module.__path__]
    return any(place.resolve() == folder for place in places)


def _module_by_name(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidArgumentError(f"{name!r} is no name of a module, and no file ending in .py; give kernels.py:my_kernel")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise InvalidArgumentError(f"there is no module {name!r}") from None
