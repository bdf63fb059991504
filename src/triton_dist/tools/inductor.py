"""``apply_triton340_inductor_patch``: a name that scripts call; there is nothing to patch."""

from __future__ import annotations

import logging

import torch
import triton

from ..errors import MissingCapabilityError

_FIRST = (3, 6)
"""The first Triton for which this package is made; torch.compile of the torch versions beside it knows it."""


def apply_triton340_inductor_patch() -> str:
    """Change nothing, and say so (by ``logging`` at level INFO, and as the result): ``torch.compile`` works as it is.

    With Triton 3.4.0, the torch of that time needed a patch before it could compile models with kernels in them. This package is for
    Triton 3.6 and later and uses torch and Triton as they are. Raises MissingCapabilityError with an older Triton.
    """
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < _FIRST:
        raise MissingCapabilityError(f"triton {triton.__version__} is older than 3.6, the first that triton_dist supports; upgrade it")
    said = f"no patch is needed: torch {torch.__version__} compiles kernels of triton {triton.__version__} as they are"
    logging.getLogger("triton_dist").info(said)
    return said
