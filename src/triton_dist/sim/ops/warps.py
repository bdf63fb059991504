"""What single threads and warps do beyond loads and stores, over arrays with one value for each thread of the block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MisalignedAccessError, OutOfBoundsError, SimulationError
from .memory import AND, MAX, MIN, OR, UMAX, UMIN, XCHG, XOR, atomic_scalar
from .primitives import active_threads, spread

if TYPE_CHECKING:
    from ..program import Program

WARP = 32
"""Threads of a warp of the pretended GPU."""


_KINDS = {"exch": XCHG, "and": AND, "or": OR, "xor": XOR, "min": MIN, "max": MAX, "umin": UMIN, "umax": UMAX}


def update_each(context: Program, name: str, addresses, values, dtype: np.dtype, mask, location: int) -> np.ndarray:
    """An atomic of one value by every active thread, in thread order; gives each the value that it saw."""
    result = np.zeros(context.threads, dtype)
    places, data = spread(context, addresses, np.dtype(np.int64)), spread(context, values, dtype)
    for thread in np.flatnonzero(active_threads(context, mask)).tolist():
        result[thread] = atomic_scalar(context, _KINDS[name], int(places[thread]), data[thread], True, dtype, None, location)
    return result


def check_lanes(context: Program, lanes, mask, what: str) -> np.ndarray:
    """For each thread of the block whether it is in its warp's mask, where warps that do not come are left out.

    lanes: the mask that each thread gives. Raises SimulationError unless the threads of a mask all come, with the same mask, and no others.
    """
    active = active_threads(context, mask)
    given = spread(context, lanes, np.dtype(np.int32)).view(np.uint32)
    named = (given >> (np.arange(context.threads, dtype=np.uint32) % WARP) & 1).astype(np.bool_)
    for first in range(0, context.threads, WARP):
        warp = slice(first, first + WARP)
        coming = active[warp]
        if not coming.any():
            continue
        masks = np.unique(given[warp][coming])
        if masks.size > 1:
            raise SimulationError(f"{what}: threads of warp {first // WARP} give different masks, {masks[0]:#x} and {masks[1]:#x}")
        wanted = (int(masks[0]) >> np.arange(WARP) & 1).astype(np.bool_)
        if (wanted != coming).any():
            missing, extra = np.flatnonzero(wanted & ~coming) + first, np.flatnonzero(coming & ~wanted) + first
            reason = f"thread {missing[0]} is in it and does not come" if missing.size else f"thread {extra[0]} comes and is not in it"
            raise SimulationError(
                f"{what} with the mask {int(masks[0]):#x} in warp {first // WARP}: {reason}; the mask has to name who comes"
            )
    return named & active


def sync_warp(context: Program, lanes, mask) -> None:
    """``__syncwarp``: the threads of each warp's mask meet. Shuffles and votes meet, too, but order no memory."""
    together = check_lanes(context, lanes, mask, "__syncwarp")
    if context.race is not None:
        context.race.warp_barrier(np.unique(np.flatnonzero(together) // WARP).tolist())


def shuffle(context: Program, mode: str, lanes, values, operand, dtype: np.dtype, mask) -> np.ndarray:
    """``shfl``: each thread gets the value of another thread of its warp; up and down keep the own value past the warp's ends."""
    active = check_lanes(context, lanes, mask, "shfl")
    data, amount = spread(context, values, dtype), spread(context, operand, np.dtype(np.int32)).astype(np.int64)
    thread = np.arange(context.threads)
    lane = thread % WARP
    source = {"idx": amount % WARP, "up": lane - amount, "down": lane + amount, "bfly": lane ^ amount}[mode]
    source = np.where((source < 0) | (source >= WARP), lane, source) + thread - lane
    absent = np.flatnonzero(active & ~active[source])
    if absent.size:
        raise SimulationError(f"shfl: thread {absent[0]} asks for the value of thread {source[absent[0]]}, which is not in the mask")
    return np.where(active, data[source], dtype.type(0))


def ballot(context: Program, lanes, predicates, mask) -> np.ndarray:
    """``ballot``: one bit for each thread of the warp."""
    active = check_lanes(context, lanes, mask, "ballot")
    holds = active & spread(context, predicates, np.dtype(np.bool_))
    bits = (holds.reshape(-1, WARP).astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    return np.where(active, np.repeat(bits.view(np.int32), WARP), np.int32(0))


def check_index(context: Program, indices: Sequence, extents: Sequence[int], mask) -> None:
    """Raise OutOfBoundsError if an active thread's index is outside the tile."""
    active = active_threads(context, mask)
    for axis, (index, extent) in enumerate(zip(indices, extents, strict=True)):
        each = spread(context, index, np.dtype(np.int32))
        wrong = np.flatnonzero(active & ((each < 0) | (each >= extent)))
        if wrong.size:
            shape = "x".join(map(str, extents))
            raise OutOfBoundsError(
                f"thread {wrong[0]} takes the element with index {each[wrong[0]]} in dimension {axis} of a tile of {shape}"
            )


def check_alignment(context: Program, addresses, size: int, what: str, mask) -> None:
    """Raise MisalignedAccessError if an active thread's address is not a multiple of the access."""
    places = spread(context, addresses, np.dtype(np.int64))
    wrong = np.flatnonzero(active_threads(context, mask) & (places % size != 0))
    if wrong.size:
        raise MisalignedAccessError(
            f"{what}: address {int(places[wrong[0]]):#x} of thread {wrong[0]} is not a multiple of {size} bytes, the size of one access"
        )
