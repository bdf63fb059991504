"""The constant map of the address space: where each rank's symmetric heap lies, in every process and on every machine.

Rank ``r``'s heap is in slot ``r + 1``; slot 0 holds this process's own context page. A symmetric pointer therefore
knows its rank, and the pointer to the same object on another rank is a constant distance away.
"""

from __future__ import annotations

STRIDE_BITS = 39
STRIDE = 1 << STRIDE_BITS
"""Bytes from one rank's heap to the next: 512 GiB, more than any GPU's memory."""

CONTEXT = 1 << 44
"""Address of this process's own context page."""

FIRST_SLOT = CONTEXT >> STRIDE_BITS
"""The slot number (address divided by ``STRIDE``) of the context page."""

MAX_WORLD_SIZE = 127
"""Ranks of one NVLink domain that the map has room for; it ends below 0x5000_0000_0000, clear of program and library addresses."""

GUARD_BYTES = 2 << 20
"""The first bytes of each heap stay unmapped, so that a NULL or a small offset faults."""

MAX_HEAP_SIZE = STRIDE - 2 * GUARD_BYTES
"""Bytes of the largest heap: a slot less the guard at its start and as much at its end."""

MULTICAST = 1 << 52
"""Where the simulator's multicast addresses begin, one stride a team: beyond what can be mapped."""


def heap_base(rank: int) -> int:
    """First address of the slot that holds ``rank``'s heap."""
    return CONTEXT + (rank + 1) * STRIDE


def rank_of(address: int) -> int | None:
    """The rank whose slot holds ``address``, or None if it lies outside every heap slot."""
    rank = (address >> STRIDE_BITS) - FIRST_SLOT - 1
    return rank if 0 <= rank < MAX_WORLD_SIZE else None
