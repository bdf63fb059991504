"""The registers of a block while it runs, and where its lanes are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .types import B128, raw_dtype

if TYPE_CHECKING:
    from ..program import Program
    from .places import Access

Mask = np.ndarray | None
"""Which lanes take part; None for all."""

_NONE: frozenset[int] = frozenset()

_POISON = 0xFF
"""Each byte of a register that nothing was written to: as memory without a content, a NaN or -1."""


class Frame:
    """One run of a block by some lanes.

    context: the program. threads: the thread of each lane. lanes: how many there are. registers: an array for each, see ``types``.
    location: number of the source line in the kernel. known: whether ``threads`` are those of the GPU, not only one way to spread a tile.
    carry: the carry flag. polled: what instructions that a loop may poll with have read last, see ``spin``. waits: those whose reads the
    race check learns of when their loop has ended. site, copy: which block it is, and which of the compiler's copies of it for the elements
    that a thread has: each has variables of its own.
    """

    __slots__ = ("context", "threads", "lanes", "registers", "location", "known", "carry", "polled", "waits", "site", "copy")

    def __init__(
        self, context: Program, threads: np.ndarray, widths: Sequence[int], location: int, known: bool = True,
        waits: frozenset[int] = _NONE, site: int = 0, copy: int = 0,
    ) -> None:  # fmt: skip
        self.context = context
        self.threads = threads
        self.lanes = len(threads)
        self.location = location
        self.known = known
        self.registers: list[np.ndarray] = [_poisoned(width) for width in widths]
        self.carry = np.zeros(1, np.bool_)
        self.polled: dict[int, Access] = {}
        self.waits = waits
        self.site, self.copy = site, copy

    @property
    def covers_block(self) -> bool:
        """Whether every thread of the block is a lane, once."""
        return self.lanes == self.context.threads and self.known

    def write(self, slot: int, contents: np.ndarray, mask: Mask) -> None:
        """Set a register in some lanes."""
        if mask is not None:
            old = self.registers[slot]
            chosen = mask[:, None] if contents.ndim > 1 or old.ndim > 1 else mask
            contents = np.where(chosen, contents, old)
        self.registers[slot] = contents

    def chosen(self, mask: Mask) -> np.ndarray:
        """Numbers of the lanes that take part."""
        return np.arange(self.lanes) if mask is None else np.flatnonzero(mask)


def _poisoned(width: int) -> np.ndarray:
    if width == 1:
        return np.ones(1, np.bool_)
    if width == B128.bits:
        return np.full((1, 2), ~np.uint64(0))
    dtype = raw_dtype(width)
    return np.full(1, int.from_bytes(bytes([_POISON] * dtype.itemsize), "little"), dtype)
