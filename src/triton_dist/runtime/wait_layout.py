"""The layout of a wait board: the page of host memory through which waiting kernels and the host talk.

A board is one file of shared memory for each process of a world (``wait_board.py``). Kernels reach it by the pointer in the
context page, and only after ``POLLS_BETWEEN_LOOKS`` failed polls. All offsets are in bytes; they are part of every compiled
kernel, so a change here changes the stamp of the lowerings.

Who writes what: the host the header, ``BOUND``, ``REQUEST`` and the blocks; whoever gives up the ``ABORT`` word; kernels the
records.
"""

from __future__ import annotations

POLLS_BETWEEN_LOOKS = 4096
"""Failed polls of one thread between two looks at the board: a few milliseconds."""

TICK_BITS = 20
"""Kernels count time in ticks of 1 << TICK_BITS nanoseconds, about a millisecond, so that 32 bits last for weeks."""

BOUND = 64
"""uint32: ticks after which a wait gives up; 0 means never."""

ABORT = 68
"""int32: non-zero makes every wait that has to look at the board fall through."""

REQUEST = 72
"""int32: non-zero asks every waiting block for a record with this number as its stamp."""

TIMED_OUT = 1
"""Value of ``ABORT``: a wait of this process took longer than the bound."""

PEER_LOST = 2
"""Value of ``ABORT``: the process of another rank is gone."""

RECORDS = 8192
"""Start of the table of records, a ring: slots are given out by ``context_layout.RECORD_COUNTER``."""

RECORD_SLOTS = 2048
"""Records in the ring, a power of two; more than one for each warp that a GPU of 132 SMs runs in persistent kernels of 8 warps."""

RECORD_BYTES = 64
"""Bytes of a record."""

RECORD_HASH = 0
"""uint64: which compiled kernel; also in the marker comment of its PTX."""

RECORD_ADDRESS = 8
"""uint64: address of the word that is waited for."""

RECORD_EXPECTED = 16
"""uint64: the value waited for. A 32-bit value leaves the upper half zero."""

RECORD_SEEN = 24
"""uint64: what the word held when the record was written."""

RECORD_PLACE = 32
"""Four uint32: number of the wait in its PTX, then the program's three indices."""

RECORD_ELAPSED = 48
"""uint32: ticks since the wait first looked at the board."""

RECORD_KIND = 56
"""uint32: bits of the word, and the comparison's place in ``COMPARISONS`` shifted left by 8."""

RECORD_STAMP = 60
"""int32, written last: the number of the request that it answers, ``STAMP_TIMED_OUT``, or 0 for an empty slot."""

STAMP_TIMED_OUT = 0xFFFFFFFF
"""Stamp of the record of a wait that ran into the bound."""

COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
"""The comparisons by the number that a record has for them."""

BLOCKS = RECORDS + RECORD_SLOTS * RECORD_BYTES
"""Start of the list of symmetric tensors: two uint32, a count of writes (odd during one) and a length, then that many bytes of JSON."""

BLOCKS_BYTES = 256 << 10
"""Room for the list."""

BOARD_BYTES = BLOCKS + BLOCKS_BYTES
"""Bytes of the file: whole pages of 4 KiB."""

MARKER = "// triton_dist wait"
"""Start of the comment in a kernel's PTX that names a wait: then the kernel's hash in hexadecimal and the wait's number."""
