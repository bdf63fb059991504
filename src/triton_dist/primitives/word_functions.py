"""Triton-distributed's names for several words at once and for multicast, as jit functions; each thread calls them for itself.

The plain ones are forms of ``ld_vector`` and ``st_vector``. Those with ``multimem`` in their name take a multicast address, which
``libshmem_device.remote_mc_ptr`` gives: what is stored there is stored on every rank of the team, and what is loaded is the sum over its
ranks. They order nothing: a barrier of the team before a sum and after a store does.
"""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.primitives import word_groups
from triton_dist.primitives.functions import st
from triton_dist.primitives.thread_functions import ld_vector, st_vector

_NO_SCOPE = tl.constexpr("")
_NOT_GIVEN = tl.constexpr(None)


@triton.jit
def load_v4_u32(ptr):
    """Four uint32 from ``ptr`` on, in one access of 16 bytes."""
    words = ld_vector(word_groups.pointer_to(ptr, tl.uint32, "load_v4_u32", stamp="db5f5821986c02d5"), 4)
    return words[0], words[1], words[2], words[3]


@triton.jit
def load_v4_s32(ptr):
    """Four int32 from ``ptr`` on, in one access of 16 bytes."""
    words = ld_vector(word_groups.pointer_to(ptr, tl.int32, "load_v4_s32", stamp="db5f5821986c02d5"), 4)
    return words[0], words[1], words[2], words[3]


@triton.jit
def load_v4_b32(ptr, scope: tl.constexpr = _NO_SCOPE, semantic: tl.constexpr = _NO_SCOPE):
    """Four int32 from ``ptr`` on, in one access of 16 bytes; ``semantic`` "" (weak), "relaxed" or "acquire" at ``scope``."""
    order: tl.constexpr = "weak" if semantic == "" else semantic
    words = ld_vector(word_groups.pointer_to(ptr, tl.int32, "load_v4_b32", stamp="db5f5821986c02d5"), 4, scope, order)
    return words[0], words[1], words[2], words[3]


@triton.jit
def load_v2_b64(ptr):
    """Two int64 from ``ptr`` on, in one access of 16 bytes, relaxed at system scope: each of the two is read as one."""
    words = ld_vector(word_groups.pointer_to(ptr, tl.int64, "load_v2_b64", stamp="db5f5821986c02d5"), 2, "sys", "relaxed")
    return words[0], words[1]


@triton.jit
def st_v4_u32(ptr, val0, val1, val2, val3):
    """Stores four 32-bit values from ``ptr`` on, in one access of 16 bytes, relaxed at GPU scope."""
    words = word_groups.words_of((val0, val1, val2, val3), tl.int32, "st_v4_u32", stamp="db5f5821986c02d5")
    st_vector(word_groups.pointer_to(ptr, tl.int32, "st_v4_u32"), words, "gpu", "relaxed")


@triton.jit
def st_v4_b32(ptr, val0, val1, val2, val3, scope: tl.constexpr = _NO_SCOPE, semantic: tl.constexpr = _NO_SCOPE):
    """Stores four 32-bit values from ``ptr`` on, in one access of 16 bytes; ``semantic`` "" (weak), "relaxed" or "release" at ``scope``."""
    order: tl.constexpr = "weak" if semantic == "" else semantic
    words = word_groups.words_of((val0, val1, val2, val3), tl.int32, "st_v4_b32", stamp="db5f5821986c02d5")
    st_vector(word_groups.pointer_to(ptr, tl.int32, "st_v4_b32"), words, scope, order)


@triton.jit
def st_v2_u32(ptr, val0, val1):
    """Stores two 32-bit values from ``ptr`` on as one word of 8 bytes, relaxed at system scope: who reads all 8 sees both or neither.

    So a datum and its flag travel together (the low-latency protocol); ``load_v2_b64`` reads two such pairs.
    """
    pair = word_groups.words_of((val0, val1), tl.int32, "st_v2_u32", stamp="db5f5821986c02d5").recast(tl.int64)
    st(word_groups.pointer_to(ptr, tl.int64, "st_v2_u32"), pair[0], "sys", "relaxed")


@triton.jit
def multimem_st_b32(ptr, val0):
    """Stores a 32-bit value at the multicast address ``ptr``."""
    word_groups.multimem_store(ptr, (val0,), tl.int32, "multimem_st_b32", stamp="db5f5821986c02d5")


@triton.jit
def multimem_st_b64(ptr, val0):
    """Stores a 64-bit value at the multicast address ``ptr``."""
    word_groups.multimem_store(ptr, (val0,), tl.int64, "multimem_st_b64", stamp="db5f5821986c02d5")


@triton.jit
def multimem_st_p_b32(ptr, val, mask):
    """``multimem_st_b32`` in the threads whose ``mask`` is not 0.

    By a branch, since some versions of ptxas drop the predicate of ``multimem.st``.
    """
    if mask != 0:
        word_groups.multimem_store(ptr, (val,), tl.int32, "multimem_st_p_b32", stamp="db5f5821986c02d5")


@triton.jit
def multimem_st_v2(ptr, val0, val1):
    """Stores two 32-bit words at the multicast address ``ptr``, which points to float32, or to float16 or bfloat16, two of them a word."""
    word_groups.multimem_store(ptr, (val0, val1), tl.int32, "multimem_st_v2", stamp="db5f5821986c02d5")


@triton.jit
def multimem_st_v4(ptr, val0, val1, val2, val3):
    """Stores four 32-bit words at the multicast address ``ptr``, which points to float32, or to float16 or bfloat16, two of them a word."""
    word_groups.multimem_store(ptr, (val0, val1, val2, val3), tl.int32, "multimem_st_v4", stamp="db5f5821986c02d5")


@triton.jit
def multimem_ld_reduce_v4(ptr, acc_dtype: tl.constexpr = _NOT_GIVEN):
    """The sum over the ranks of a team of the 16 bytes at the multicast address ``ptr``, in four words.

    ``ptr`` points to float32, which gives four float32, or to float16 or bfloat16, which gives four int32 of two elements each. Sums are
    formed in fp32 and rounded once (``acc_dtype`` is tl.float32 or None), or formed in the elements' own type (``acc_dtype`` is that); the
    order of the ranks in them is the switch's.
    """
    words = word_groups.multimem_sum(ptr, 4, acc_dtype, "multimem_ld_reduce_v4", stamp="db5f5821986c02d5")
    return words[0], words[1], words[2], words[3]
