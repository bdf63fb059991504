"""What single threads and warps call, as jit functions over ``lowering.emit``: vectors, exchanges in a warp, further atomics.

As in ``functions.py`` each carries the stamp of the lowerings. Names that begin with two underscores, and those without a scope in them
(``ld_acquire``, ``red_release``, ...), are Triton-distributed's.
"""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.primitives import lowering, vector_functions
from triton_dist.primitives.functions import __syncthreads, atomic_add, ld, st, tid

_NOT_GIVEN = tl.constexpr(None)
_GPU = tl.constexpr("gpu")
_CTA = tl.constexpr("cta")
_NO_SCOPE = tl.constexpr("")
_SEQUENTIAL = tl.constexpr("sc")
_ALL = tl.constexpr(0xFFFFFFFF)


@triton.jit
def ntid(axis: tl.constexpr = 0):
    """Threads of the block along ``axis`` (0, 1 or 2), int32; blocks have one dimension, so 1 and 2 give 1."""
    tl.static_assert(axis >= 0 and axis <= 2, "ntid: axis must be 0, 1 or 2")
    return tl.full((), lowering.num_threads() if axis == 0 else 1, tl.int32)


@triton.jit
def laneid():
    """Index of the calling thread in its warp, int32."""
    return tid(0) % lowering.threads_per_warp()


@triton.jit
def warp_id():
    """Index of the calling thread's warp in the block, int32."""
    return tid(0) // lowering.threads_per_warp()


@triton.jit
def ld_vector(
    ptr, vec_size: tl.constexpr = 1, scope: tl.constexpr = _NO_SCOPE, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN
):
    """The ``vec_size`` elements from ``ptr`` on as a vector; each thread for itself.

    ``vec_size`` is a power of two up to 128. ``ptr`` must be a multiple of the access: 16 bytes where the elements are a multiple of
    that, else 8, else one element. ``semantic`` (or ``sem``) is "weak", the default, which orders nothing, or "relaxed" or "acquire" at
    ``scope`` ("cta", "gpu", "sys").
    """
    return lowering.emit(
        "ld_vector", ptr, vec_size=vec_size, scope=scope, semantic=semantic, sem=sem, function="ld_vector", stamp="db5f5821986c02d5"
    )


@triton.jit
def st_vector(ptr, vec, scope: tl.constexpr = _NO_SCOPE, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Stores a vector of the type that ``ptr`` points to, from ``ptr`` on; each thread for itself. Alignment as for ``ld_vector``.

    ``semantic`` (or ``sem``) is "weak", the default, or "relaxed" or "release" at ``scope`` ("cta", "gpu", "sys").
    """
    lowering.emit("st_vector", ptr, vec, scope=scope, semantic=semantic, sem=sem, function="st_vector", stamp="db5f5821986c02d5")


@triton.jit
def make_vector(args):
    """A vector of the scalars in ``args``, a tuple or list; they have one type, and there are a power of two of them."""
    return vector_functions.build(args, stamp="db5f5821986c02d5")


@triton.jit
def zeros_vector(vec_size: tl.constexpr, dtype: tl.constexpr):
    """A vector of ``vec_size`` zeros."""
    return vector_functions.zeros(vec_size, dtype, stamp="db5f5821986c02d5")


@triton.jit
def pack(src, dst_type: tl.constexpr):
    """The elements of a vector as one value of ``dst_type``, which they fill; the first element has the lowest bits."""
    return vector_functions.join(src, dst_type, stamp="db5f5821986c02d5")


@triton.jit
def unpack(src, dst_type: tl.constexpr):
    """The bits of a scalar as a vector of ``dst_type``, lowest bits first."""
    return vector_functions.split(src, dst_type, stamp="db5f5821986c02d5")


@triton.jit
def pack_b32_v2(val0, val1):
    """Two 32-bit values as one uint64, ``val0`` in the lower half."""
    return vector_functions.join(vector_functions.build((val0, val1)), tl.uint64, stamp="db5f5821986c02d5")


@triton.jit
def shfl_sync(mask, value, lane):
    """``value`` of the thread ``lane`` (modulo the warp's size) of the calling thread's warp.

    Called together by the warp's threads whose bits are set in ``mask``; scalars of 8 to 64 bits.
    """
    return lowering.emit("shfl", mask, value, lane, mode="idx", function="shfl_sync", stamp="db5f5821986c02d5")


@triton.jit
def shfl_up_sync(mask, value, delta):
    """``value`` of the thread ``delta`` below; a thread for which there is none keeps its own."""
    return lowering.emit("shfl", mask, value, delta, mode="up", function="shfl_up_sync", stamp="db5f5821986c02d5")


@triton.jit
def shfl_down_sync(mask, value, delta):
    """``value`` of the thread ``delta`` above; a thread for which there is none keeps its own."""
    return lowering.emit("shfl", mask, value, delta, mode="down", function="shfl_down_sync", stamp="db5f5821986c02d5")


@triton.jit
def shfl_xor_sync(mask, value, delta):
    """``value`` of the thread whose index in the warp differs in the bits of ``delta``."""
    return lowering.emit("shfl", mask, value, delta, mode="bfly", function="shfl_xor_sync", stamp="db5f5821986c02d5")


__shfl_sync_i32 = shfl_sync
__shfl_up_sync_i32 = shfl_up_sync
__shfl_down_sync_i32 = shfl_down_sync
__shfl_xor_sync_i32 = shfl_xor_sync


@triton.jit
def ballot_sync(mask, predicate):
    """One bit for each thread of the warp, int32: set where the thread is in ``mask`` and its predicate holds.

    Called together by the warp's threads whose bits are set in ``mask``.
    """
    return lowering.emit("ballot", mask, predicate, function="ballot_sync", stamp="db5f5821986c02d5")


__ballot_sync = ballot_sync


@triton.jit
def any_sync(mask, predicate):
    """Whether the predicate holds for some thread of ``mask``; called as ``ballot_sync``."""
    return lowering.emit("ballot", mask, predicate, function="any_sync", stamp="db5f5821986c02d5") != 0


@triton.jit
def all_sync(mask, predicate):
    """Whether the predicate holds for every thread of ``mask``; called as ``ballot_sync``."""
    holds = lowering.emit("ballot", mask, predicate, function="all_sync", stamp="db5f5821986c02d5")
    return holds == lowering.emit("ballot", mask, True, function="all_sync", stamp="db5f5821986c02d5")


@triton.jit
def elect_sync(mask=_ALL):
    """True in one thread of the warp's threads in ``mask``, the first of them; called as ``ballot_sync``."""
    threads = lowering.emit("ballot", mask, True, function="elect_sync", stamp="db5f5821986c02d5")
    return (((threads & -threads) >> laneid()) & 1) != 0


@triton.jit
def __syncwarp(mask=_ALL):
    """Barrier of the warp's threads that are in ``mask``; it orders their memory accesses among themselves."""
    lowering.emit("syncwarp", mask, function="__syncwarp", stamp="db5f5821986c02d5")


@triton.jit
def atomic_exch(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Replaces the word at ``ptr`` by ``val``; returns what was there; each thread for itself."""
    return lowering.emit("atomic_exch", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_exch", stamp="db5f5821986c02d5")


@triton.jit
def atomic_min(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Puts the smaller of the word at ``ptr`` and ``val`` there; returns what was there; each thread for itself."""
    return lowering.emit("atomic_min", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_min", stamp="db5f5821986c02d5")


@triton.jit
def atomic_max(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Puts the larger of the word at ``ptr`` and ``val`` there; returns what was there; each thread for itself."""
    return lowering.emit("atomic_max", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_max", stamp="db5f5821986c02d5")


@triton.jit
def atomic_and(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Combines the word at ``ptr`` with ``val`` by and; returns what was there; each thread for itself."""
    return lowering.emit("atomic_and", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_and", stamp="db5f5821986c02d5")


@triton.jit
def atomic_or(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Combines the word at ``ptr`` with ``val`` by or; returns what was there; each thread for itself."""
    return lowering.emit("atomic_or", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_or", stamp="db5f5821986c02d5")


@triton.jit
def atomic_xor(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Combines the word at ``ptr`` with ``val`` by exclusive or; returns what was there; each thread for itself."""
    return lowering.emit("atomic_xor", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_xor", stamp="db5f5821986c02d5")


@triton.jit
def ld_acquire(ptr, scope: tl.constexpr = _GPU):
    """``ld`` with acquire order."""
    return ld(ptr, scope, "acquire")


@triton.jit
def ld_b32(ptr):
    """``ld`` of a 32-bit word, relaxed at GPU scope."""
    tl.static_assert(ptr.dtype.element_ty.primitive_bitwidth == 32, "ld_b32: ptr must point to 32-bit elements")
    return ld(ptr)


@triton.jit
def st_b32(ptr, val0):
    """``st`` of a 32-bit word, relaxed at GPU scope."""
    tl.static_assert(ptr.dtype.element_ty.primitive_bitwidth == 32, "st_b32: ptr must point to 32-bit elements")
    st(ptr, val0)


@triton.jit
def red_release(barrier_ptr, value, scope: tl.constexpr = _GPU):
    """Adds to a word with release order; each thread for itself."""
    atomic_add(barrier_ptr, value, scope, "release")


@triton.jit
def arrive_inc(barrier_ptr, thread_idx, value, scope: tl.constexpr):
    """A block barrier, then thread 0 adds ``value`` to the word with release order. Called by the block."""
    __syncthreads()
    if thread_idx == 0:
        red_release(barrier_ptr, value, scope)


@triton.jit
def wait_eq(barrier_ptr, thread_idx, value, scope: tl.constexpr):
    """Thread 0 waits until the word equals ``value``, then a block barrier. Called by the block; ``dl.wait_eq`` is bounded, too."""
    if thread_idx == 0:
        while ld(barrier_ptr, scope, "acquire") != value:
            pass
    __syncthreads()


@triton.jit
def atomic_add_per_warp(barrier_ptr, value, scope: tl.constexpr, semantic: tl.constexpr):
    """The first thread of each warp adds to its word; all threads of the warp get what was there."""
    seen = tl.cast(0, barrier_ptr.dtype.element_ty)
    if laneid() == 0:
        seen = atomic_add(barrier_ptr, value, scope, semantic)
    return shfl_sync(0xFFFFFFFF, seen, 0)


@triton.jit
def globaltimer():
    """Nanoseconds of the GPU's clock, uint64 (NVIDIA GPUs and the simulator)."""
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.uint64, is_pure=False, pack=1)


@triton.jit
def globaltimer_lo():
    """The lower 32 bits of ``globaltimer``, uint32; they wrap every 4.3 seconds."""
    return globaltimer().to(tl.uint32)


@triton.jit
def globaltimer_hi():
    """The upper 32 bits of ``globaltimer``, uint32."""
    return (globaltimer() >> 32).to(tl.uint32)


@triton.jit
def smid():
    """Index of the multiprocessor that runs the block, uint32 (NVIDIA GPUs and the simulator)."""
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.uint32, is_pure=False, pack=1)


@triton.jit
def membar(scope: tl.constexpr = _CTA):
    """A sequentially consistent fence of the calling thread; ``scope`` is "cta", "gl" (or "gpu") or "sys"."""
    lowering.emit("fence", scope="gpu" if scope == "gl" else scope, order="sc", function="membar", stamp="db5f5821986c02d5")


@triton.jit
def fence(semantic: tl.constexpr = _SEQUENTIAL, scope: tl.constexpr = _GPU):
    """A fence of the calling thread: ``semantic`` "sc" or "acq_rel", ``scope`` "cta", "gpu" or "sys"."""
    lowering.emit("fence", scope=scope, order=semantic, function="fence", stamp="db5f5821986c02d5")


@triton.jit
def __fence(scope: tl.constexpr = _GPU):
    """A sequentially consistent fence of the calling thread."""
    lowering.emit("fence", scope=scope, order="sc", function="__fence", stamp="db5f5821986c02d5")
