"""The operations of ``flagged.py`` as jit functions, which carry the stamp of the lowerings as those of ``functions.py`` do."""

from __future__ import annotations

import triton.language as tl

from triton_dist.primitives import flagged
from triton_dist.primitives.primitive_function import primitive


@primitive
def push_flagged(unit, data, flag, mask):
    """Stores a tile of units, ``data`` with ``flag`` in each word; see ``flagged.push``."""
    flagged.push(unit, data, flag, mask, stamp="db5f5821986c02d5")


@primitive
def take_flagged(unit, DISTANCE: tl.constexpr, flag, own, mask, SIZE: tl.constexpr):
    """Waits for the units of all ranks but ``own`` and gives their data, a tuple of ``SIZE`` tiles; see ``flagged.take``."""
    return flagged.take(unit, DISTANCE, flag, own, mask, SIZE, stamp="db5f5821986c02d5")
