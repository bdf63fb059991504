"""Whether other ranks have read an input of an all-reduce by the time that it is written again, if nothing waits for just that.

All ranks run the same program. A tile in which they meet is begun by none of them before what it waits for is complete there. So what
comes after such a tile here also comes after everything that the tile waits for on the other ranks, be it by way of other tiles.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from ..errors import InvalidArgumentError
from .graph import Operation, Ranges, near, overlaps

Waits = Sequence[Sequence[Sequence[tuple[int, Ranges]]]]
"""Of each operation, of each tile: who has to be complete before; see ``graph.dependencies``."""


def check_unguarded(operations: Sequence[Operation], waits: Waits) -> None:
    """Raises InvalidArgumentError where a tile writes the input of an unguarded operation before all ranks are known to have read it."""
    if not any(operation.unguarded for operation in operations):
        return
    bits = _bits(operations)
    all_bits = {index: _union(of_tiles) for index, of_tiles in bits.items()}
    known = _read_everywhere(operations, waits, bits)
    for index, operation in enumerate(operations):
        if not operation.stores:
            continue
        by_all_tiles = functools.reduce(int.__and__, known[index])
        for earlier in (earlier for earlier, all_of_it in all_bits.items() if earlier < index and all_of_it & ~by_all_tiles):
            for write, read in itertools.product(operation.writes, operations[earlier].reads):
                if near(write, read):
                    _check_tiles(operation, known[index], overlaps(write, read), bits[earlier])


def _check_tiles(operation: Operation, known: Sequence[int], table: np.ndarray, bits: Sequence[int]) -> None:
    """table: which tiles of the operation write what which tiles of an earlier one read, whose ``bits`` are given."""
    for tile in np.flatnonzero(table.any(axis=1)).tolist():
        if any(not known[tile] & bits[other] for other in np.flatnonzero(table[tile]).tolist()):
            raise InvalidArgumentError(
                f"{operation.name}: tile {tile} would write an input of make_allreduce(double_input_buffer=True) that other ranks may "
                "still read: between the two there has to be another all-reduce, or a barrier, of what follows from all of that one's "
                "output. Pass double_input_buffer=False, and it waits"
            )


def _bits(operations: Sequence[Operation]) -> dict[int, list[int]]:
    """A bit of its own for every tile of the unguarded operations."""
    bits, count = {}, 0
    for index, operation in enumerate(operations):
        if operation.unguarded:
            bits[index] = [1 << count + tile for tile in range(operation.tiles)]
            count += operation.tiles
    return bits


def _read_everywhere(operations: Sequence[Operation], waits: Waits, bits: dict[int, list[int]]) -> list[list[int]]:
    """Of each tile: the tiles with bits that are complete on all ranks when it begins."""
    known: list[list[int]] = []
    here: list[list[int]] = []
    """Of each tile: those that are complete on this rank when it ends."""
    everywhere: list[list[int]] = []
    """As here, on all ranks."""

    @functools.cache
    def when_ended(earlier: int, first: int, end: int) -> tuple[int, int]:
        """Both, when so many tiles of an earlier operation have ended."""
        return _union(here[earlier][first:end]), _union(everywhere[earlier][first:end])

    for index, (operation, of_tiles) in enumerate(zip(operations, waits, strict=True)):
        ended = [[when_ended(earlier, *span) for earlier, ranges in of_tile for span in ranges] for of_tile in of_tiles]
        before = [_union(of_this for of_this, _ in mine) for mine in ended]
        known.append([_union(of_all for _, of_all in mine) for mine in ended])
        own = bits.get(index, [0] * operation.tiles)
        here.append([done | bit for done, bit in zip(before, own, strict=True)])
        everywhere.append([told | done if operation.meets else told for told, done in zip(known[-1], before, strict=True)])
    return known


def _union(sets: Iterable[int]) -> int:
    return functools.reduce(int.__or__, sets, 0)
