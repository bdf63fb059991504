"""The memory of a block in which the tiles of simt regions lie while their elements are used, and what inline assembly declares; and who
touched what since the last barrier.

Threads run in lock step here and do not on a GPU, where an element that one thread stores and another reads needs a block barrier between
the two. So every element remembers which thread stored it and which read it since the barrier, and an access that nothing orders is named.
A barrier of a warp, a fence, and an acquire or a release forget, too, since they may order: a mistake beside one of these is not seen.
Whole tiles go in and out between barriers, and are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import SimulationError
from .primitives import active_threads, spread

if TYPE_CHECKING:
    from ..program import Program

_ALIGNMENT = 16
_NOBODY, _MANY, _SAME = -1, -2, -3
_ELEMENT = "an element of a tile"


class BlockMemory:
    """Bytes, where in them each region's tiles begin, and for each element who stored and who read it since the barrier.

    An element is looked up by its first byte; thread numbers, or one of the marks above.
    """

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.data = np.zeros(0, np.uint8)
        self.stored = self.read = np.zeros(0, np.int16)
        self.touched = False

    def place(self, key: str, size: int, align: int = _ALIGNMENT) -> int:
        """Where the memory under a key begins, made when it is first asked for."""
        if key not in self.places:
            begin = -(-self.data.size // align) * align
            self.places[key] = begin
            more = begin + -(-size // _ALIGNMENT) * _ALIGNMENT - self.data.size
            self.data = np.concatenate([self.data, np.zeros(more, np.uint8)])
            self.stored, self.read = (np.concatenate([noted, np.full(more, _NOBODY, np.int16)]) for noted in (self.stored, self.read))
        return self.places[key]

    def order(self) -> None:
        """All threads have met: what comes now comes after what was."""
        if self.touched:
            self.stored.fill(_NOBODY)
            self.read.fill(_NOBODY)
            self.touched = False

    def note_read(self, places: np.ndarray, threads: np.ndarray, what: str = _ELEMENT) -> None:
        """Threads read elements, one each. Raises SimulationError if another thread stored one."""
        self.touched = True
        stored = self.stored[places]
        _name(np.where(stored == _SAME, _NOBODY, stored), threads, f"reads {what} that", "stored")
        before = self.read[places]
        self.read[places] = threads
        shared = (self.read[places] != threads) | ((before != _NOBODY) & (before != threads))
        self.read[places[shared]] = _MANY

    def note_store(self, places: np.ndarray, threads: np.ndarray, kept: np.ndarray, what: str = _ELEMENT) -> None:
        """Threads store elements, one each. kept: whether the element then has the thread's value.

        Raises SimulationError if another thread stored or read one before. Several that store the same at once may read it back.
        """
        self.touched = True
        _name(self.stored[places], threads, f"stores {what} that", "stored")
        _name(self.read[places], threads, f"stores {what} that", "read")
        self.stored[places] = threads
        self.stored[places[self.stored[places] != threads]] = _SAME
        self.stored[places[~kept]] = _MANY


def _name(before: np.ndarray, threads: np.ndarray, does: str, did: str) -> None:
    wrong = np.flatnonzero((before != _NOBODY) & (before != threads))
    if wrong.size:
        other = before[wrong[0]]
        who = f"thread {other}" if other >= 0 else "several threads"
        raise SimulationError(
            f"thread {threads[wrong[0]]} {does} {who} {did} since the last block barrier; "
            "on a GPU either may come first: put __syncthreads() between the two"
        )


def shared_memory(context: Program, key: str, size: int) -> int:
    """Address of the program's memory under that key."""
    if context.block_memory is None:
        context.block_memory = BlockMemory()
    return context.block_memory.place(key, size)


def order(context: Program) -> None:
    """A block barrier, or what may order as much."""
    if context.block_memory is not None:
        context.block_memory.order()


def shared_load_tile(context: Program, addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Reads a whole tile."""
    return _view(context, dtype)[addresses // dtype.itemsize]


def shared_load_each(context: Program, addresses, dtype: np.dtype, mask) -> np.ndarray:
    """For each active thread the integer at its address."""
    lanes = np.flatnonzero(active_threads(context, mask))
    places = spread(context, addresses, np.dtype(np.int32))[lanes]
    context.block_memory.note_read(places, lanes)  # type: ignore[union-attr]
    result = np.zeros(context.threads, dtype)
    result[lanes] = _view(context, dtype)[places // dtype.itemsize]
    return result


def shared_load_one(context: Program, address: int, dtype: np.dtype, mask):
    """The integer at an address that is the same for all active threads."""
    result = shared_load_each(context, address, dtype, mask)
    return result[int(np.argmax(active_threads(context, mask)))]


def shared_store_each(context: Program, addresses, values, dtype: np.dtype, mask) -> None:
    """Stores by the active threads; the last thread's value stays where several write one element at once."""
    lanes = np.flatnonzero(active_threads(context, mask))
    places = spread(context, addresses, np.dtype(np.int32))[lanes]
    view, elements, data = _view(context, dtype), places // dtype.itemsize, spread(context, values, dtype)[lanes]
    view[elements] = data
    context.block_memory.note_store(places, lanes, view[elements] == data)  # type: ignore[union-attr]
    context.memory.version += 1  # a thread that spins on an element has to look again


def shared_store_tile(context: Program, addresses: np.ndarray, values, dtype: np.dtype) -> None:
    """Stores a whole tile."""
    _view(context, dtype)[addresses // dtype.itemsize] = np.broadcast_to(values, addresses.shape)


def _view(context: Program, dtype: np.dtype) -> np.ndarray:
    return context.block_memory.data.view(dtype)  # type: ignore[union-attr]
