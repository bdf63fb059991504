"""What multicast means on the simulator: one address for the same symmetric object on every rank of a team.

The addresses lie outside everything that is mapped, one stride for each number of a team, so that an ordinary access through one is an
error, as on a GPU it is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from ...errors import SimulationError
from ...runtime.address_map import MULTICAST, STRIDE, STRIDE_BITS, heap_base, rank_of
from ..memory import element_index, scalar_view
from . import primitives
from .memory import check_scalar, put_word, see_word

if TYPE_CHECKING:
    from ..program import Program

_ELEMENTS = {"f32": np.dtype(np.float32), "f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16)}
"""What the words of a sum hold, by the choice of the primitive."""

_FIRST_CAPABILITY = 90


def address_of(context: Program, address: int, number: int) -> int:
    """The multicast address of a symmetric one; NULL where the GPU has no multicast, or the ranks of the team are not of one node."""
    machine = context.machine
    members = machine.teams.members(context.rank, number)
    if members is None or machine.gpu.capability < _FIRST_CAPABILITY or len({machine.node_of(rank) for rank in members}) > 1:
        return 0
    owner = rank_of(address)
    if owner is None or owner >= context.world_size:
        owner = context.memory.check_symmetric(address, "remote_mc_ptr").rank
    return MULTICAST + number * STRIDE + address - heap_base(owner)  # type: ignore[arg-type]


def places_of(context: Program, address: int, what: str) -> list[int]:
    """The address on each rank of the team, in team order."""
    number = (address - MULTICAST) >> STRIDE_BITS
    members = context.machine.teams.members(context.rank, number) if number >= 0 else None
    if members is None:
        raise SimulationError(
            f"{what} through {address:#x}, which is no multicast address; take what libshmem_device.remote_mc_ptr(team, ptr) gives, "
            "and test it against NULL: a GPU without multicast has none"
        )
    offset = address - MULTICAST - number * STRIDE
    return [heap_base(rank) + offset for rank in members]


def store(context: Program, address, value, dtype: np.dtype, mask, location: int) -> None:
    """``multimem.st`` of one word, on every rank of the team; by every thread that comes here where they differ, else once."""
    if mask is None and not isinstance(address, np.ndarray) and not isinstance(value, np.ndarray):
        _store(context, int(address), value, dtype, location)
        return
    places, values = primitives.spread(context, address, np.dtype(np.int64)), primitives.spread(context, value, dtype)
    for lane in np.flatnonzero(primitives.active_threads(context, mask)).tolist():
        context.lane = lane
        _store(context, int(places[lane]), values[lane], dtype, location)
    context.lane = -1


def _store(context: Program, address: int, value, dtype: np.dtype, location: int) -> None:
    for word in places_of(context, address, "multimem_st"):
        check_scalar(context, word, dtype.itemsize, "st", None)
        put_word(context, word, value, dtype, location)


def load_reduce(context: Program, address: int, kind: str, accumulator: str):
    """``multimem.ld_reduce`` of one 32-bit word: int32 with the bits of the sum over the team, in its order.

    Sums are formed in fp32 and rounded once, or with the accumulator "own" rounded after each rank.
    """
    element = _ELEMENTS[kind]
    total = np.zeros(4 // element.itemsize, np.float32)
    for word in places_of(context, address, "multimem_ld_reduce"):
        check_scalar(context, word, 4, "ld", None)
        see_word(context, word)
        bits = scalar_view(np.dtype(np.int32))[element_index(word, 4)]
        total = total + np.array([bits], np.int32).view(element).astype(np.float32)
        if accumulator == "own":
            total = total.astype(element).astype(np.float32)
    return total.astype(element).view(np.int32)[0]


def load_reduce_each(context: Program, address, kind: str, accumulator: str, mask) -> np.ndarray:
    """``load_reduce`` where each thread has its own address."""
    result = np.zeros(context.threads, np.int32)
    places = primitives.spread(context, address, np.dtype(np.int64))
    for lane in np.flatnonzero(primitives.active_threads(context, mask)).tolist():
        context.lane = lane
        result[lane] = load_reduce(context, int(places[lane]), kind, accumulator)
    context.lane = -1
    return result
