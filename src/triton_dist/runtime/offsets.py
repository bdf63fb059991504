"""Offsets in the symmetric heaps: one allocator decides for all ranks, so that an object has the same offset on each of them."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from ..errors import HeapFullError
from .address_map import STRIDE

ALIGNMENT = 4096
"""Allocations start at multiples of this many bytes: whole pages of the host, and enough for any vector or TMA access."""

GAP = 512
"""At least this many bytes after each allocation belong to none, so that running past one's end never lands in the next one."""


@dataclass
class OffsetAllocator:
    """First-fit allocation of heap offsets."""

    _starts: list[int] = field(default_factory=lambda: [0])
    _ends: list[int] = field(default_factory=lambda: [STRIDE])

    @staticmethod
    def padded(nbytes: int) -> int:
        """Bytes that an allocation of ``nbytes`` takes from the heap."""
        return -(-(max(nbytes, 1) + GAP) // ALIGNMENT) * ALIGNMENT

    def allocate(self, nbytes: int, limit: int) -> int:
        """The lowest free offset with room for ``nbytes`` below ``limit``. Raises HeapFullError."""
        size = self.padded(nbytes)
        for at, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            if start + size <= min(end, limit):
                self._starts[at] = start + size
                if start + size == end:
                    del self._starts[at], self._ends[at]
                return start
        free = sum(max(0, min(end, limit) - start) for start, end in zip(self._starts, self._ends, strict=True))
        raise HeapFullError(
            f"no room for {nbytes} bytes in the symmetric heap of {limit} bytes a rank ({free} bytes are free, in pieces); free tensors, "
            "or ask for a larger heap_size (simulate, initialize) or TRITON_DIST_HEAP_SIZE"
        )

    def free(self, offset: int, nbytes: int) -> None:
        """Give the offsets of an allocation back."""
        start, end = offset, offset + self.padded(nbytes)
        at = bisect.bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == end:
            end = self._ends[at]
            del self._starts[at], self._ends[at]
        if at > 0 and self._ends[at - 1] == start:
            self._ends[at - 1] = end
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)
