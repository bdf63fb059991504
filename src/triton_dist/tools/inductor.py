"""``apply_triton340_inductor_patch``: a name that scripts call."""

from __future__ import annotations

import logging

import torch
import triton

from ..errors import MissingCapabilityError
from ..runtime.inductor_imports import import_names_in_inductor

_FIRST = (3, 6)
"""The first Triton for which this package is made; torch.compile of the torch versions beside it knows it."""


def apply_triton340_inductor_patch() -> str:
    """Let ``torch.compile`` know this package's names in kernels, which ``initialize`` on GPUs does, too. Returns what it logs at INFO.

    With Triton 3.4.0, the torch of that time needed a patch before it could compile models with kernels in them. This package is for
    Triton 3.6 and later, where nothing else has to be changed. Raises MissingCapabilityError with an older Triton.
    """
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < _FIRST:
        raise MissingCapabilityError(f"triton {triton.__version__} is older than 3.6, the first that triton_dist supports; upgrade it")
    import_names_in_inductor()
    said = f"no patch is needed: torch {torch.__version__} compiles kernels of triton {triton.__version__}, with this package's names"
    logging.getLogger("triton_dist").info(said)
    return said
