"""Parts of the HIP lowering that are loops or loads, as jit functions in portable Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.primitives.compare import holds


@triton.jit
def load_word(ADDRESS: tl.constexpr):
    """The int32 at a constant address of this process."""
    return tl.load(tl.full((), ADDRESS, tl.int64).to(tl.pointer_type(tl.int32)))


@triton.jit
def poll_words(ptr, count, value, CMP: tl.constexpr, SEMANTIC: tl.constexpr, SCOPE: tl.constexpr):
    """Reads each of ``count`` words by an atomic that adds 0, until the compare holds for it.

    A scalar atomic runs in one thread and hands its value to the block through a barrier, so the whole block leaves together.
    """
    for index in range(count):
        seen = tl.atomic_add(ptr + index, 0, sem=SEMANTIC, scope=SCOPE)
        while not holds(seen, value, CMP):
            seen = tl.atomic_add(ptr + index, 0, sem=SEMANTIC, scope=SCOPE)


@triton.jit
def push_flagged(unit, data, flag, mask):
    """Stores units of ``flagged.py`` by atomics, which write a word as one."""
    upper = flag.to(tl.int64) << 32
    tl.atomic_xchg(unit, (data & 0xFFFFFFFF) | upper, mask=mask, sem="relaxed", scope="sys")
    tl.atomic_xchg(unit + 1, ((data >> 32) & 0xFFFFFFFF) | upper, mask=mask, sem="relaxed", scope="sys")


@triton.jit
def _flagged_word(word, flag, mask):
    seen = tl.atomic_or(word, 0, mask=mask, sem="relaxed", scope="sys")
    while tl.max((mask & ((seen >> 32).to(tl.int32) != flag)).to(tl.int32)) != 0:
        seen = tl.atomic_or(word, 0, mask=mask, sem="relaxed", scope="sys")
    return seen & 0xFFFFFFFF


@triton.jit
def take_flagged(unit, flag, mask):
    """Waits until the units carry the flag, and gives their data."""
    return _flagged_word(unit, flag, mask) | (_flagged_word(unit + 1, flag, mask) << 32)
