"""Shadow memory: for each piece of an allocation who wrote it last and who has read it since.

Memory is cut into cells of equal size, as large as the boundaries of all accesses so far allow: the rows of a tile are often one cell.
A finer access makes all cells of its allocation finer.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..memory import Allocation
    from .words import Word


class Box(NamedTuple):
    """Bytes that an access touches: runs of ``run`` bytes, the first at ``start``, repeated as ``dims`` says: (count, stride in bytes)."""

    start: int
    run: int
    dims: tuple[tuple[int, int], ...]
    step: int
    """Greatest common divisor of the run and the strides."""

    @property
    def end(self) -> int:
        """The first byte behind all of it."""
        return self.start + sum((count - 1) * stride for count, stride in self.dims) + self.run

    def holds(self, lo: int, hi: int) -> bool:
        """Whether some byte of ``lo`` to ``hi`` is touched."""
        if hi <= self.start or lo >= self.end:
            return False
        if not self.dims:
            return True
        low, high = lo - self.start, hi - self.start
        for count, stride in sorted(self.dims, key=lambda dim: -dim[1]):
            steps = min(max(high - 1, 0) // stride, count - 1)
            low, high = low - steps * stride, high - steps * stride
        return low < self.run and high > 0


_shapes: dict[tuple, tuple[int, int, tuple[tuple[int, int], ...], int]] = {}


def box_of(address: int, counts: Any, strides: Any, itemsize: int) -> Box:
    """The bytes of a strided window of elements."""
    key = (tuple(counts), strides, itemsize)
    known = _shapes.get(key)
    if known is None:
        if len(_shapes) > 4096:
            _shapes.clear()
        known = _shapes[key] = _shape(*key)
    offset, run, dims, step = known
    return Box(address + offset, run, dims, step)


def _shape(counts: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int, tuple[tuple[int, int], ...], int]:
    offset, run = 0, itemsize
    dims: list[tuple[int, int]] = []
    for stride, count, signed in sorted((abs(stride), count, stride) for count, stride in zip(counts, strides, strict=True)):
        if count == 1 or stride == 0:
            continue
        if signed < 0:
            offset += signed * (count - 1)
        if not dims and stride <= run:
            run = stride * (count - 1) + run
        else:
            dims.append((count, stride))
    step = run
    for _, stride in dims:
        step = gcd(step, stride)
    return offset, run, tuple(reversed(dims)), step


class Shadow:
    """The cells of one allocation. writes, reads: for each cell the number of a history. atomics: the same for atomics of whole tiles.

    words: what is known of single words that were accessed atomically, by address.
    """

    __slots__ = ("allocation", "lo", "size", "granule", "writes", "reads", "atomics", "words")

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.lo = allocation.lo
        self.size = max(allocation.hi - allocation.lo, 1)
        self.granule = 0
        self.writes = self.reads = _NOTHING
        self.atomics: np.ndarray | None = None
        self.words: dict[int, Word] = {}

    def refine(self, offset: int, step: int) -> None:
        """Let the cells be so fine that an access at ``offset`` with ``step`` touches whole cells."""
        granule = self.granule
        finer = gcd(granule, offset, step) or 1
        if not granule:
            self.granule = finer
            self.writes = np.zeros(-(-self.size // finer), np.int32)
            self.reads = np.zeros_like(self.writes)
            return
        count, times = -(-self.size // finer), granule // finer
        self.writes, self.reads = _repeated(self.writes, times, count), _repeated(self.reads, times, count)
        if self.atomics is not None:
            self.atomics = _repeated(self.atomics, times, count)
        self.granule = finer

    def place(self, box: Box) -> Any:
        """Where the cells of a box are: an int for a single one, a slice, or (first, shape, strides in cells)."""
        offset = box.start - self.lo
        granule = self.granule
        if not granule or offset % granule or box.step % granule:
            self.refine(offset, box.step)
            granule = self.granule
        first, cells = offset // granule, box.run // granule
        if not box.dims:
            return first if cells == 1 else slice(first, first + cells)
        if cells == 1:
            return first, tuple(count for count, _ in box.dims), tuple(stride // granule * 4 for _, stride in box.dims)
        return (
            first,
            (*(count for count, _ in box.dims), cells),
            (*(stride // granule * 4 for _, stride in box.dims), 4),
        )

    def cell_at(self, address: int, itemsize: int) -> int:
        """The number of the first cell of one element."""
        offset, granule = address - self.lo, self.granule
        if not granule or itemsize % granule or offset % granule:
            self.refine(offset, gcd(itemsize, offset))
            granule = self.granule
        return offset // granule

    def cells_at(self, addresses: np.ndarray, itemsize: int) -> np.ndarray:
        """The numbers of the cells of scattered elements: one a row, one column for each cell that an element has."""
        offsets = addresses - self.lo
        step = gcd(itemsize, int(offsets[0]))
        if not self.granule or itemsize % self.granule or (offsets % self.granule).any():
            self.refine(int(np.gcd.reduce(offsets)) if offsets.size else 0, step)
        each = itemsize // self.granule
        cells = offsets // self.granule
        return cells if each == 1 else cells[:, None] + np.arange(each)


_NOTHING = np.zeros(0, np.int32)


def _repeated(cells: np.ndarray, times: int, count: int) -> np.ndarray:
    return np.repeat(cells, times)[:count] if cells.any() else np.zeros(count, np.int32)


def view(cells: np.ndarray, place: Any) -> np.ndarray:
    """The cells at a place, as an array that can be written to; not for a place that is an index array."""
    if type(place) is slice:
        return cells[place]
    if type(place) is int:
        return cells[place : place + 1]
    first, shape, strides = place
    return np.ndarray(shape, np.int32, cells, first * 4, strides)  # type: ignore[arg-type]


def numbers(values: np.ndarray) -> list[int]:
    """The distinct numbers in some cells."""
    if values.size <= 48:
        return list(set(values.ravel().tolist()))
    first = values.flat[0]
    if (values == first).all():
        return [int(first)]
    return np.unique(values).tolist()
