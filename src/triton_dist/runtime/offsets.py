"""Offsets in the symmetric heaps: which ranges of a rank's heap are free, and ranges that are free on several ranks at once."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import HeapFullError
from .address_map import STRIDE

ALIGNMENT = 4096
"""Allocations start at multiples of this many bytes: whole pages of the host, and enough for any vector or TMA access."""

GAP = 512
"""At least this many bytes after each allocation belong to none, so that running past one's end never lands in the next one."""

Range = tuple[int, int]
"""First offset and the offset behind the last one."""


@dataclass
class OffsetAllocator:
    """The free offsets of one heap, as sorted ranges that do not touch each other; first fit. By default all are free."""

    _starts: list[int] = field(default_factory=lambda: [0])
    _ends: list[int] = field(default_factory=lambda: [STRIDE])

    @classmethod
    def of_ranges(cls, ranges: Iterable[Range]) -> OffsetAllocator:
        """An allocator in which only these ranges are free."""
        allocator = cls([], [])
        for start, end in ranges:
            allocator.release(start, end - start)
        return allocator

    @staticmethod
    def padded(nbytes: int) -> int:
        """Bytes that an allocation of ``nbytes`` takes from the heap."""
        return -(-(max(nbytes, 1) + GAP) // ALIGNMENT) * ALIGNMENT

    def allocate(self, nbytes: int, limit: int = STRIDE) -> int:
        """Take the lowest free offset with room for ``nbytes`` below ``limit``. Raises HeapFullError."""
        size = self.padded(nbytes)
        ranges = self.free_ranges(0, limit)
        offset = common_fit([ranges], size)
        if offset is None:
            raise HeapFullError(f"no room for {nbytes} bytes below offset {limit}; {total(ranges)} bytes are free, in pieces")
        self.take(offset, size)
        return offset

    def free(self, offset: int, nbytes: int) -> None:
        """Give the offsets of an allocation of ``nbytes`` back."""
        self.release(offset, self.padded(nbytes))

    def free_ranges(self, low: int = 0, high: int = STRIDE) -> list[Range]:
        """The free ranges between two offsets, in ascending order."""
        clipped = ((max(start, low), min(end, high)) for start, end in zip(self._starts, self._ends, strict=True))
        return [(start, end) for start, end in clipped if start < end]

    def take(self, start: int, size: int) -> None:
        """Take a range that is free as a whole."""
        at = bisect.bisect_right(self._starts, start) - 1
        first, last, end = self._starts[at], self._ends[at], start + size
        pieces = [(lo, hi) for lo, hi in ((first, start), (end, last)) if lo < hi]
        self._starts[at : at + 1] = [lo for lo, _ in pieces]
        self._ends[at : at + 1] = [hi for _, hi in pieces]

    def release(self, start: int, size: int) -> None:
        """Make a range free that was taken; it grows together with free neighbours."""
        end = start + size
        at = bisect.bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == end:
            end = self._ends[at]
            del self._starts[at], self._ends[at]
        if at > 0 and self._ends[at - 1] == start:
            self._ends[at - 1] = end
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)


def total(ranges: Iterable[Range]) -> int:
    """Bytes in ranges that do not overlap."""
    return sum(end - start for start, end in ranges)


def common_ranges(by_rank: Sequence[Sequence[Range]]) -> list[Range]:
    """The offsets that are free on every rank. by_rank: each rank's free ranges, in ascending order."""
    common = list(by_rank[0])
    for ranges in by_rank[1:]:
        if ranges == common:
            continue
        both, ours, theirs = [], 0, 0
        while ours < len(common) and theirs < len(ranges):
            start, end = max(common[ours][0], ranges[theirs][0]), min(common[ours][1], ranges[theirs][1])
            if start < end:
                both.append((start, end))
            # The range that ends first can't meet another one.
            if common[ours][1] <= ranges[theirs][1]:
                ours += 1
            else:
                theirs += 1
        common = both
    return common


def common_fit(by_rank: Sequence[Sequence[Range]], size: int, *, from_top: bool = False) -> int | None:
    """The lowest offset (or the highest) at which every rank has ``size`` bytes free; None if there is none.

    Ranks that pass the same ranges get the same answer without a word to each other.
    """
    for start, end in sorted(common_ranges(by_rank), reverse=from_top):
        first = (end - size) // ALIGNMENT * ALIGNMENT if from_top else start
        if first >= start and first + size <= end:
            return first
    return None
