"""The words of the context page: what a kernel can read about its process at one constant address.

The page lies in slot 0 of the address map, at ``CONTEXT``, in every process. The host writes it when the world is made and
kernels only read it, except for one counter. Offsets are in bytes; they are part of every compiled kernel, so a word
never moves: new words go at the end of their group, and a change here changes the stamp of the lowerings.
"""

from __future__ import annotations

from triton_dist.runtime.address_map import CONTEXT

RANK = 0x00
"""int32: rank of this process in the world."""

NUM_RANKS = 0x04
"""int32: number of ranks in the world."""

LOCAL_RANK = 0x08
"""int32: rank among the processes of this host."""

LOCAL_NUM_RANKS = 0x0C
"""int32: number of ranks on this host."""

PEER_MASK = 0x10
"""Two uint64: bit r of the pair is set when rank r's heap is mapped here."""

NVSHMEM_DELTA = 0x20
"""int64: distance in bytes from our heap to the address under which NVSHMEM registered it; 0 when it is not used."""

WAIT_BOARD = 0x28
"""uint64: address, for this GPU, of the wait board in host memory; 0 when there is none. Its layout is in ``wait_layout.py``."""

SHMEM_WORDS = 0x30
"""int64: address of this process's words of the SHMEM barriers; the same offset in each rank's heap, behind what is allocated."""

LAYOUT = 0x38
"""uint64: ``LAYOUT_MARK``, by which code that was compiled elsewhere (a library built ahead of time) knows the page and the address map."""

LAYOUT_VERSION = 1
"""Of this page and of the address map: raised when a word moves or changes its meaning, or when the map changes."""

LAYOUT_MARK = 0x7464_6370 << 32 | LAYOUT_VERSION
"""What stands in the word LAYOUT: a constant, then the version."""

RECORD_COUNTER = 0x100
"""uint32 that kernels add to: the next slot of the wait board's ring of records. In a line of its own, away from the constant words."""

TEAM_TABLE = 0x400
"""Start of the table of teams, one record a team: start, stride, size, this process's rank in it (int32 each).

Size 0 marks a record that no team has. A team has the same record number on all its ranks. Record 0 is the team of all ranks, 1 that
of the ranks that share memory, 2 that of the ranks of this host. Stride 0 says that the ranks are not evenly spaced; the list of
members has them in any case.
"""

TEAM_RECORD_BYTES = 16
"""Bytes of a record of the table of teams."""

MAX_TEAMS = 64
"""Records in the table of teams; further teams work, but kernels can't look them up."""

TEAM_MEMBERS = 0x800
"""Start of the lists of members: for each record one byte for each place in the team, the world rank."""

MEMBERS_PER_TEAM = 128
"""Bytes of a list of members."""

SHMEM_EPOCHS = MAX_TEAMS * MEMBERS_PER_TEAM * 4
"""Offset, among the words of the SHMEM barriers, of the epoch of each team (uint32); before it, for each team, one uint32 for each of
its ranks, which that rank writes."""

SHMEM_BYTES = SHMEM_EPOCHS + MAX_TEAMS * 4
"""Bytes of the words of the SHMEM barriers, zero when the world is made."""

PAGE_BYTES = 2 << 20
"""Bytes of the page: the smallest unit that a CUDA device maps."""


def word_address(offset: int) -> int:
    """Address of the word at byte ``offset`` of the context page, the same in every process."""
    return CONTEXT + offset
