"""What the tiles of a program read and write, and which tile therefore has to wait for which.

A tile touches rectangles of memory: rows, a fixed number of bytes apart, and bytes of those rows. Two tiles of different operations are in
conflict where rectangles of theirs overlap and one of them writes; the later one then waits for the earlier one. Tensors count by their
addresses, so views, reshaped or not, and buffers that are used again come out right.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from triton.runtime.jit import JITFunction

from ..errors import InvalidArgumentError

Ranges = list[tuple[int, int]]
"""Of tiles: (first, end)."""

_CELLS = 1 << 20
"""Pairs of tiles that are compared at a time."""


@dataclass(frozen=True, eq=False)
class Access:
    """Memory that the tiles of an operation touch in one tensor.

    origin: address of row 0. pitch: bytes from one row to the next. boxes: int64 (tiles, 4), of each tile (first row, row past the last,
    first byte, byte past the last) in those rows. exact: False where a box is more than what the tile touches, and tiles do not meet in
    this tensor.
    """

    origin: int
    pitch: int
    boxes: np.ndarray
    exact: bool = True

    @classmethod
    def of_all(cls, tensor: torch.Tensor, tiles: int) -> Access:
        """Every tile touches all of a contiguous tensor."""
        boxes = np.tile(np.array([0, 1, 0, tensor.nbytes], dtype=np.int64), (tiles, 1))
        return cls(tensor.data_ptr(), max(1, tensor.nbytes), boxes)

    @classmethod
    def of_boxes(cls, tensor: torch.Tensor, columns: int, boxes: Sequence[Sequence[int]] | np.ndarray, *, exact: bool = True) -> Access:
        """boxes: of each tile (first row, end, first column, end) of a contiguous tensor as a matrix of ``columns`` columns."""
        size = tensor.element_size()
        table = np.asarray(boxes, dtype=np.int64).reshape(-1, 4) * np.array([1, 1, size, size])
        rows = tensor.numel() // max(1, columns)
        table[:, :2] = table[:, :2].clip(max=rows)
        table[:, 2:] = table[:, 2:].clip(max=columns * size)
        return cls(tensor.data_ptr(), max(1, columns * size), table, exact)

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The first address that any tile touches, and the one past the last; (0, 0) if none does."""
        first, end = self.hulls()
        there = first < end
        return (int(first[there].min()), int(end[there].max())) if there.any() else (0, 0)

    def hulls(self) -> tuple[np.ndarray, np.ndarray]:
        """Addresses, first and past the last, of what lies between a box's first byte and its last; equal where it is empty."""
        first = self.origin + self.boxes[:, 0] * self.pitch + self.boxes[:, 2]
        end = self.origin + (self.boxes[:, 1] - 1) * self.pitch + self.boxes[:, 3]
        empty = (self.boxes[:, 0] >= self.boxes[:, 1]) | (self.boxes[:, 2] >= self.boxes[:, 3])
        return first, np.where(empty, first, end)


@dataclass(frozen=True, eq=False)
class RunWords:
    """int32 words in which the bodies of an operation count runs. Each plan has its own, of zeros: plans count their runs apart.

    symmetric: they are written by peers.
    """

    count: int
    symmetric: bool


@dataclass(frozen=True, eq=False)
class Operation:
    """A node of the graph: ``tiles`` tasks of one kind, in any order.

    name: of the trace. body: ``body(task, tile, run, CONSTANTS)`` of ``@triton.jit``; see ``kernel``. constants: a frozen dataclass of what
    the body is compiled for. tensors: what the body gets by ``tensor_of(task, i, ...)``, ``words`` behind them. They and ``kept`` are kept
    alive.
    """

    name: str
    body: JITFunction
    constants: Any
    tensors: tuple[torch.Tensor, ...]
    tiles: int
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    nbytes: int = 0
    """Memory that its operands and results take: for bandwidth of a whole program."""
    kept: tuple[torch.Tensor, ...] = ()
    """Tensors that the body does not look at."""
    together: int = 1
    """So many tiles in a row settle among themselves who of them writes what; they do not count as meeting."""
    interleaved: bool = False
    """A tile loads after it has begun to store, or its warps are not in step: what it stores is exactly what it loads, or none of it."""
    words: tuple[RunWords, ...] = ()
    """What the body counts runs in; two operations may share them."""
    meets: bool = False
    """Each tile begins with meeting the same tile of all other ranks."""
    unguarded: bool = False
    """Other ranks read what it reads, and nothing waits for them; see ``peers``."""
    stores: bool = True
    """False where its writes only say what comes after it."""
    agreed: tuple = ()
    """What has to be the same on all ranks, besides name and tiles."""


def overlaps(left: Access, right: Access) -> np.ndarray:
    """bool (tiles of left, tiles of right): whether their boxes have a byte in common, or may have."""
    found = np.empty((len(left.boxes), len(right.boxes)), dtype=bool)
    for rows, table in _overlaps_by_rows(left, right):
        found[rows] = table
    return found


def _overlaps_by_rows(left: Access, right: Access) -> Iterator[tuple[slice, np.ndarray]]:
    """Some rows of ``overlaps`` at a time, since what it is made of takes several times its memory."""
    sides = _sides(left, right)
    step = max(1, _CELLS // max(1, len(right.boxes)))
    for begin in range(0, len(left.boxes), step):
        rows = slice(begin, begin + step)
        yield rows, _all_meet([(first[rows, None], end[rows, None], *others) for first, end, *others in sides])


def _overlaps_tile_by_tile(left: Access, right: Access) -> np.ndarray:
    """bool (tiles,): the diagonal of ``overlaps``."""
    return _all_meet(_sides(left, right))


def _sides(left: Access, right: Access) -> list[tuple[np.ndarray, ...]]:
    """What has to meet where boxes overlap: first and end, of each box of left, then of right; by rows and by columns, or by addresses."""
    moved = _in_rows_of(left, right)
    if moved is None:
        return [(*left.hulls(), *right.hulls())]
    return [(*left.boxes.T[side], *moved.T[side]) for side in (slice(0, 2), slice(2, 4))]


def _all_meet(sides: Sequence[tuple[np.ndarray, ...]]) -> np.ndarray:
    """Where the ranges of every side have something in common; empty ones have not."""
    met = [
        (first < other_end) & (other_first < end) & (first < end) & (other_first < other_end)
        for first, end, other_first, other_end in sides
    ]
    return np.logical_and.reduce(met)


def _same_bytes(left: Access, right: Access) -> np.ndarray:
    """bool (tiles,): whether a tile touches the same bytes by both."""
    single = (left.boxes[:, 1] - left.boxes[:, 0] == 1) & (right.boxes[:, 1] - right.boxes[:, 0] == 1)
    same = [one == other for one, other in zip(left.hulls(), right.hulls(), strict=True)]
    return np.logical_and.reduce([*same, single | (left.pitch == right.pitch)])


def _in_rows_of(left: Access, right: Access) -> np.ndarray | None:
    """Right's boxes counted in left's rows; None where a box would go from one row into the next."""
    if left.pitch != right.pitch:
        return None
    rows, columns = divmod(right.origin - left.origin, left.pitch)
    moved = right.boxes + np.array([rows, rows, columns, columns])
    return moved if not moved.size or moved[:, 3].max() <= left.pitch else None


def conflicts(later: Operation, earlier: Operation) -> np.ndarray | None:
    """bool (tiles of later, tiles of earlier): who has to wait for whom; None if nobody has to."""
    found = None
    pairs = [(write, access) for write in later.writes for access in (*earlier.reads, *earlier.writes)]
    pairs += [(read, write) for read in later.reads for write in earlier.writes]
    for mine, theirs in pairs:
        if not near(mine, theirs):
            continue
        matrix = overlaps(mine, theirs)
        found = matrix if found is None else found | matrix
    return found if found is not None and found.any() else None


def near(left: Access, right: Access) -> bool:
    """Whether two accesses may touch the same memory at all, seen as whole."""
    return left.span[0] < right.span[1] and right.span[0] < left.span[1]


def meeting_tiles(operation: Operation) -> tuple[int, int] | None:
    """A tile that writes what another tile of the same operation reads or writes, and that one; None if all keep apart.

    The same tile twice where the operation is interleaved and the tile writes part of what it reads, or something twice. What is found
    does not depend on how an interleaved operation is cut into tiles: what its tensors share, some tile or two of them share.
    """
    group = np.arange(operation.tiles) // operation.together
    accesses = (*operation.reads, *operation.writes)
    for write, (number, access) in itertools.product(operation.writes, enumerate(accesses)):
        if not near(write, access):
            continue
        if operation.interleaved and write is not access:
            mixed = _overlaps_tile_by_tile(write, access)
            if number < len(operation.reads):
                mixed &= ~_same_bytes(write, access)
            if mixed.any():
                return int(mixed.argmax()), int(mixed.argmax())
        if write is access and not write.exact:
            continue
        for rows, table in _overlaps_by_rows(write, access):
            met = np.argwhere(table & (group[rows, None] != group))
            if len(met):
                return rows.start + int(met[0, 0]), int(met[0, 1])
    return None


def check_tiles(operation: Operation) -> None:
    """Raises InvalidArgumentError where tiles meet: see ``meeting_tiles``."""
    meeting = meeting_tiles(operation)
    if meeting is not None and meeting[0] == meeting[1]:
        raise InvalidArgumentError(
            f"{operation.name}: tile {meeting[0]} would write a part of what it reads, or the same memory by two outputs, in no order; "
            "give it outputs that share no memory with each other, nor with its inputs unless one is exactly the other"
        )
    if meeting is not None:
        raise InvalidArgumentError(
            f"{operation.name}: tile {meeting[0]} would write what tile {meeting[1]} of the same operation uses, and their order is open; "
            "give it an output that shares no memory with its inputs (or is exactly the input, where the operation is elementwise)"
        )


def dependencies(operations: Sequence[Operation], *, in_order: bool = False) -> list[list[list[tuple[int, Ranges]]]]:
    """Of each operation, of each tile: the operations and their tiles that have to be complete before it begins.

    What follows from other waits is left out. in_order: every tile waits for all of the operation before that has results.
    """
    waits: list[list[list[tuple[int, Ranges]]]] = []
    after: list[list[int]] = []
    """Of each tile: the operations, as bits, that are complete as a whole when it begins."""
    whole: list[int] = []
    """Of each operation: itself, and what is complete when all of it is."""
    seen = _Seen()
    for index, operation in enumerate(operations):
        mine: list[list[tuple[int, Ranges]]] = [[] for _ in range(operation.tiles)]
        known, complete = [0] * operation.tiles, 1 << index
        # The latest first: what they have waited for needs no wait of its own.
        for earlier in _before(operations, index) if in_order else seen.near(operation):
            if all(bits >> earlier & 1 for bits in known):
                continue
            matrix = _all(operation, operations[earlier]) if in_order else conflicts(operation, operations[earlier])
            if matrix is None:
                continue
            every = np.asarray(matrix.all(axis=1))
            for tile in np.flatnonzero(matrix.any(axis=1)).tolist():
                if known[tile] >> earlier & 1:
                    continue
                if every[tile]:
                    mine[tile].append((earlier, [(0, operations[earlier].tiles)]))
                    known[tile] |= whole[earlier]
                else:
                    ranges = list(_ranges(matrix[tile]))
                    mine[tile].append((earlier, ranges))
                    for first, _ in ranges:
                        known[tile] |= after[earlier][first]
            if matrix.any(axis=0).all():
                complete |= whole[earlier]
        waits.append(mine)
        after.append(known)
        whole.append(functools.reduce(int.__or__, known, complete))
        seen.add(operation)
    return waits


def _all(later: Operation, earlier: Operation) -> np.ndarray:
    return np.ones((later.tiles, earlier.tiles), dtype=bool)


class _Seen:
    """The accesses of the operations so far, by the memory that they span."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, bool, int]] = []
        self._operations = 0

    def add(self, operation: Operation) -> None:
        """The next operation."""
        for accesses, writes in ((operation.reads, False), (operation.writes, True)):
            self._spans += [(*access.span, writes, self._operations) for access in accesses]
        self._operations += 1

    def near(self, operation: Operation) -> list[int]:
        """Operations that may be in conflict with this one, the latest first."""
        if not self._spans:
            return []
        table = np.array(self._spans, dtype=np.int64)
        found: set[int] = set()
        for accesses, writes in ((operation.reads, False), (operation.writes, True)):
            for access in accesses:
                first, end = access.span
                hit = (table[:, 0] < end) & (first < table[:, 1]) & (writes | (table[:, 2] != 0))
                found.update(table[hit, 3].tolist())
        return sorted(found, reverse=True)


def _before(operations: Sequence[Operation], index: int) -> list[int]:
    """The operation before this one; those that only prefetch take no part in the order."""
    if not _is_ordered(operations[index]):
        return []
    before = [earlier for earlier in range(index) if _is_ordered(operations[earlier])]
    return before[-1:]


def _is_ordered(operation: Operation) -> bool:
    """Whether it does anything that another operation, of this rank or a peer, can notice."""
    return bool(operation.reads or operation.writes or operation.words)


def _ranges(needed: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], needed, [False])).astype(np.int8)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        yield int(first), int(end)
