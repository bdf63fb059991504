"""The part of the symmetric heaps that belongs to one team: what ``make_team`` set aside for it, and what it takes beyond that."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import HeapFullError
from .offsets import OffsetAllocator, Range, common_fit, common_ranges, total


class Arena:
    """Where the allocations of one team lie: at the same offset in the heap of each of its ranks.

    An allocation comes from the ranges that were set aside, else from offsets that are free in the heaps of all members. So a team's
    allocations need a word among its members only, and no other team's. Members that make the same calls with the same free ranges
    get the same offsets.

    ranks: world ranks of the team. maps: the free offsets of the members' heaps that this process keeps: its own, or in the simulator
    those of all members. heap_size: bytes of each rank's heap. from_top: take from the end of the heaps, so that teams and the world,
    which takes from the start, leave each other large pieces.
    """

    def __init__(self, ranks: Sequence[int], maps: Sequence[OffsetAllocator], heap_size: int, *, from_top: bool) -> None:
        self.ranks = tuple(ranks)
        self.heap_size = heap_size
        self.set_aside: list[Range] = []
        self._own = OffsetAllocator.of_ranges(())
        self._maps = maps
        self._from_top = from_top

    def allocate(self, nbytes: int, free: Sequence[Sequence[Range]]) -> int:
        """Take ``nbytes`` at one offset on every member. free: each member's free ranges. Raises HeapFullError, on every member."""
        size = OffsetAllocator.padded(nbytes)
        offset = common_fit([self._own.free_ranges()], size)
        if offset is not None:
            self._own.take(offset, size)
            return offset
        return self._from_heaps(size, free, f"no room for {nbytes} bytes")

    def set_aside_at(self, offset: int) -> bool:
        """Whether an offset is in what was set aside for this team."""
        return any(start <= offset < end for start, end in self.set_aside)

    def free(self, offset: int, size: int) -> None:
        """Give ``size`` bytes of offsets back: to the team where they were set aside for it, else to everyone."""
        if self.set_aside_at(offset):
            self._own.release(offset, size)
        else:
            for offsets in self._maps:
                offsets.release(offset, size)

    def reserve(self, nbytes: int, free: Sequence[Sequence[Range]]) -> None:
        """Set at least ``nbytes`` aside for this team alone, in one piece if none were before. free: as for ``allocate``."""
        missing = nbytes - total(self.set_aside)
        if missing <= 0:
            return
        size = OffsetAllocator.padded(missing)
        start = self._from_heaps(size, free, f"no room for an arena of {nbytes} bytes")
        self.set_aside.append((start, start + size))
        self._own.release(start, size)

    def close(self) -> None:
        """Give what was set aside and is free back to everyone; allocations that still live follow when they are freed."""
        for start, end in self._own.free_ranges():
            for offsets in self._maps:
                offsets.release(start, end - start)
        self.set_aside = []
        self._own = OffsetAllocator.of_ranges(())

    def _from_heaps(self, size: int, free: Sequence[Sequence[Range]], problem: str) -> int:
        inside = [[(start, min(end, self.heap_size)) for start, end in ranges if start < self.heap_size] for ranges in free]
        offset = common_fit(inside, size, from_top=self._from_top)
        if offset is None:
            common = common_ranges(inside)
            largest = max((end - start for start, end in common), default=0)
            raise HeapFullError(
                f"{problem} in the symmetric heap of {self.heap_size} bytes a rank: at offsets that ranks {list(self.ranks)} all have free "
                f"are {total(common)} bytes, the largest piece {largest}; the team has {total(self.set_aside)} set aside, "
                f"{total(self._own.free_ranges())} of them free. Free tensors, or ask for a larger heap_size (simulate, initialize) or "
                "TRITON_DIST_HEAP_SIZE, or make the team early with make_team(..., arena_size=...)"
            )
        for offsets in self._maps:
            offsets.take(offset, size)
        return offset
