"""The words of a profiler buffer: what kernels write and the host reads.

A buffer is 64-bit words: a header, then chunks of ``CHUNK`` slots of two words each. A block takes a chunk when it has none or has filled
one, by an atomic addition to the header, so that any number of kernels and launches share a buffer, whatever their grids.

A chunk's first slot says whose it is. First word: the number of the chunk that this one goes on from, plus one, or 0, in 32 bits, and
above them the thread that writes (0 where the block does). Second word: 1, then from the ``_SHIFT``s on the block, the SM and the group.

The other slots are records in the order in which they were made; one with a second word of 0 is empty. First word: the time in nanoseconds;
of a WORD the address. Second word: the kind in the lowest ``KIND_BITS`` bits; from ``TASK_SHIFT`` on the type of the task; of a WORD the
value in 32 bits, then from the ``_SHIFT``s on what is compared or done, and the number of words that are waited for or the rank notified.
"""

from __future__ import annotations

MAGIC = 0x7464_7072_6F66_0001
"""First word of every buffer; its last digits are the number of this layout."""

CAPACITY, TAKEN, DROPPED = 1, 2, 3
"""Words of the header. CAPACITY: chunks that there are. TAKEN: chunks that were asked for. DROPPED: records that found no room."""

HEADER = 8
"""Words before the first chunk."""

CHUNK = 16
"""Slots of a chunk, with the one that says whose it is."""

SLOTS_A_CHUNK = CHUNK // 2
"""Records that ``alloc_profiler_buffer`` reckons with for a chunk: blocks end with chunks that are not full."""

START, END, WAIT, NOTIFY, WORD = 1, 2, 3, 4, 5
"""Kinds of slots. START, END: of a task. WAIT: start of a task that waits for words. NOTIFY: a word is about to be set. WORD: which one,
after a WAIT or a NOTIFY."""

KIND_BITS, TASK_SHIFT = 3, 8
BLOCK_SHIFT, SM_SHIFT, GROUP_SHIFT = 8, 40, 52
GROUP_MAX = 4095
"""The highest group that the first slot of a chunk has room for."""

OPERATION_SHIFT, ARGUMENT_SHIFT = 40, 44
ARGUMENT_MAX = 4095
"""Most words of a wait, and the highest rank, that a WORD has room for."""

WIDE = 8
"""Added to the number of a comparison or operation for words of 64 bits."""

COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
OPERATIONS = ("set", "add")
