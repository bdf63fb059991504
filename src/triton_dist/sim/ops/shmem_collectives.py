"""SHMEM collectives that only NVSHMEM's own names reach: all-to-all and reductions of a team."""

from __future__ import annotations

from functools import reduce as fold
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from ...errors import SimulationError, UnsupportedOperationError
from ..memory import VIEW_BASE, Allocation, scalar_view
from ..requests import Steps
from .shmem import meet, members_of, on_rank, one_caller, put_to_member

if TYPE_CHECKING:
    from ..program import Program

_TYPES = {
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    "half": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
"""Elements by NVSHMEM's name of their type."""

_OPERATIONS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def alltoall(context: Program, what: str, level: str, mask, team, dest, source, nbytes, location: int) -> Steps:
    """Each rank puts a part of ``nbytes`` to every rank of the team, at its own place there; all meet behind it."""
    (number, to, start, size), threads = one_caller(context, what, level, mask, (team, dest, source, nbytes), location)
    members = members_of(context, what, number)
    place = members.index(context.rank)
    for other, peer in enumerate(members):
        put_to_member(context, what, on_rank(context, to, peer, what) + place * size, start + other * size, size, threads, location)
    yield from meet(context, what, number, 1, location, threads)


def reduce(context: Program, what: str, level: str, operation: str, kind: str, mask, team, dest, source, count, location: int) -> Steps:
    """The elements of all ranks of the team combined in their order, on each of them; all meet before and behind the reading."""
    if kind not in _TYPES:
        raise UnsupportedOperationError(f"{what}: the simulator has no reduction of NVSHMEM's type {kind!r}; it has {sorted(_TYPES)}")
    dtype, combine = _TYPES[kind], _OPERATIONS[operation]
    (number, to, start, size), threads = one_caller(context, what, level, mask, (team, dest, source, count), location)
    if size < 0:
        raise SimulationError(f"{what}: {size} elements; it has to be 0 or more")
    members = members_of(context, what, number)
    yield from meet(context, what, number, 1, location, threads)
    values = [_elements(context, on_rank(context, start, peer, what), size, dtype, f"{what} from") for peer in members]
    wide = np.dtype(np.float32) if dtype.kind not in "iuf" or dtype.itemsize == 2 and dtype.kind == "f" else dtype
    result = fold(combine, [value.astype(wide) for value in values]).astype(dtype)
    yield from meet(context, what, number, 1, location, threads)
    _elements(context, to, size, dtype, f"{what} to")[...] = result
    context.memory.changed(to, to + max(size, 1) * dtype.itemsize, context)


def _elements(context: Program, address: int, count: int, dtype: np.dtype, what: str) -> np.ndarray:
    """Elements from an address on, which are read ("from") or written; a copy of what is read."""
    if not count:
        return np.zeros(0, dtype)
    reads = what.endswith("from")
    allocation: Allocation = context.memory.check(address, address + count * dtype.itemsize, dtype.itemsize, what)
    if address % dtype.itemsize:
        raise context.memory.misaligned(address, dtype.itemsize, what)
    context.charge((count,), dtype.itemsize, allocation)
    if context.race is not None:
        access = "load" if reads else "store"
        context.race.checker.box(context, address, (count,), (dtype.itemsize,), dtype.itemsize, access, allocation)
    first = (address - VIEW_BASE) // dtype.itemsize
    view = scalar_view(dtype)[first : first + count]
    return view.copy() if reads else view
