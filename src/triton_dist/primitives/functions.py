"""The device primitives as kernels call them: ``triton.jit`` functions over ``lowering.emit``.

They work in ``triton_dist.jit`` and plain ``triton.jit`` kernels. Each carries the stamp of the lowerings as a literal in
its own source, so that a changed lowering changes Triton's cache key of every kernel that uses one; ``python -m
triton_dist.primitives.stamp`` rewrites the literals. Who calls each of them and what it orders is in ``table.py``.

Parameter names are those of Triton-distributed, hence the mixed style. Defaults that are not numbers are named constexpr objects: Triton
3.6 takes no bare strings there, and no version takes a call.

Each kind of wait emits by itself and none calls another: of a wait that was inlined and then copied by the compiler, Triton 3.9's
PTX names only the innermost two lines for sure, and the second has to be the user's.
"""

from __future__ import annotations

import triton.language as tl

from triton_dist.primitives import compare, lowering
from triton_dist.primitives.primitive_function import primitive

_NOT_GIVEN = tl.constexpr(None)
_EQUAL = tl.constexpr("eq")
_SET = tl.constexpr("set")
_GPU = tl.constexpr("gpu")
_INTER_NODE = tl.constexpr("inter_node")


@primitive
def rank(axis: tl.constexpr = -1):
    """Rank of this process in the world, int32. ``axis`` is -1 or 0: the world has one dimension."""
    return lowering.emit("rank", axis=axis, function="rank", stamp="db5f5821986c02d5")


@primitive
def num_ranks(axis: tl.constexpr = -1):
    """Number of ranks in the world, int32. ``axis`` is -1 or 0: the world has one dimension."""
    return lowering.emit("num_ranks", axis=axis, function="num_ranks", stamp="db5f5821986c02d5")


@primitive
def symm_at(ptr, rank):
    """The pointer to the same symmetric object on ``rank`` (a world rank, any integer), with the type of ``ptr``.

    ``ptr`` points into the symmetric heap of any rank. It may be a tensor of pointers, which then all point into this
    process's own heap; ``rank`` may be a tensor too, and the two are broadcast. Unchecked on a GPU; on the simulator a
    pointer outside the heap is a NotSymmetricError and a rank with no direct pointer an UnreachablePeerError.
    """
    return lowering.emit("symm_at", ptr, rank, function="symm_at", stamp="db5f5821986c02d5")


@primitive
def wait(
    barrierPtrs,
    numBarriers,
    scope: tl.constexpr,
    semantic: tl.constexpr = _NOT_GIVEN,
    waitValue=1,
    cmp: tl.constexpr = _EQUAL,
    sem: tl.constexpr = _NOT_GIVEN,
):
    """Blocks until each of ``numBarriers`` consecutive words at ``barrierPtrs`` compares to ``waitValue`` as ``cmp`` says.

    Called by all threads of the block. Words are 32 or 64 bits. ``cmp`` is "eq", "ne", "gt", "ge", "lt" or "le"; ordered
    compares look at the sign of the difference, so a counter may wrap around. ``scope`` is "cta", "gpu" or "sys" ("sys" if
    another GPU writes the word); ``semantic`` (or ``sem``) is "acquire", the default, or "relaxed". Everything that the
    block does afterwards comes after the wait, whether or not the returned token (int32, value 0) is used.

    Place it before a software-pipelined loop, not in one: loads of a pipelined loop are issued ahead of the wait.
    """
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp=cmp,
        function="wait",
        stamp="db5f5821986c02d5",
    )


@primitive
def wait_eq(
    barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr = _NOT_GIVEN, waitValue=1, sem: tl.constexpr = _NOT_GIVEN
):
    """``wait`` until each word equals ``waitValue``."""
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp="eq",
        function="wait_eq",
        stamp="db5f5821986c02d5",
    )


@primitive
def wait_ne(
    barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr = _NOT_GIVEN, waitValue=1, sem: tl.constexpr = _NOT_GIVEN
):
    """``wait`` until each word differs from ``waitValue``."""
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp="ne",
        function="wait_ne",
        stamp="db5f5821986c02d5",
    )


@primitive
def wait_gt(
    barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr = _NOT_GIVEN, waitValue=1, sem: tl.constexpr = _NOT_GIVEN
):
    """``wait`` until each word is past ``waitValue`` (signed, wrap-safe)."""
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp="gt",
        function="wait_gt",
        stamp="db5f5821986c02d5",
    )


@primitive
def wait_ge(
    barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr = _NOT_GIVEN, waitValue=1, sem: tl.constexpr = _NOT_GIVEN
):
    """``wait`` until each word has reached ``waitValue`` (signed, wrap-safe)."""
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp="ge",
        function="wait_ge",
        stamp="db5f5821986c02d5",
    )


@primitive
def wait_lt(
    barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr = _NOT_GIVEN, waitValue=1, sem: tl.constexpr = _NOT_GIVEN
):
    """``wait`` until each word is below ``waitValue`` (signed, wrap-safe)."""
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp="lt",
        function="wait_lt",
        stamp="db5f5821986c02d5",
    )


@primitive
def wait_le(
    barrierPtrs, numBarriers, scope: tl.constexpr, semantic: tl.constexpr = _NOT_GIVEN, waitValue=1, sem: tl.constexpr = _NOT_GIVEN
):
    """``wait`` until each word is at most ``waitValue`` (signed, wrap-safe)."""
    return lowering.emit(
        "wait",
        barrierPtrs,
        numBarriers,
        waitValue,
        scope=scope,
        semantic=semantic,
        sem=sem,
        cmp="le",
        function="wait_le",
        stamp="db5f5821986c02d5",
    )


@primitive
def consume_token(value, token):
    """``value``, of the same type and alignment, made to depend on the wait that returned ``token``.

    Takes a pointer, a tensor, a scalar; a block pointer or a descriptor is returned as it is, since the wait's block
    barrier already orders what is loaded through it.
    """
    return lowering.emit("consume_token", value, token, function="consume_token", stamp="db5f5821986c02d5")


@primitive
def notify(ptr, rank, signal=1, sig_op: tl.constexpr = _SET, comm_scope: tl.constexpr = _INTER_NODE):
    """Sets the word at ``ptr`` on ``rank`` to ``signal``, or adds to it, after all earlier stores of the block.

    Called by all threads of the block; one of them writes. All earlier stores of the block, TMA stores too, are visible
    to whoever acquires the word. Words are 32 or 64 bits. ``comm_scope``: "gpu" writes the local word, whatever
    ``rank`` is, for waiters on this GPU; "intra_node" and "inter_node" write rank's word at system scope.
    """
    return lowering.emit("notify", ptr, rank, signal, sig_op=sig_op, comm_scope=comm_scope, function="notify", stamp="db5f5821986c02d5")


@primitive
def ld(ptr, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Loads one scalar; each thread for itself. ``semantic`` (or ``sem``) is "relaxed", the default, or "acquire"."""
    return lowering.emit("ld", ptr, scope=scope, semantic=semantic, sem=sem, function="ld", stamp="db5f5821986c02d5")


@primitive
def st(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Stores one scalar; each thread for itself. ``semantic`` (or ``sem``) is "relaxed", the default, or "release"."""
    return lowering.emit("st", ptr, val, scope=scope, semantic=semantic, sem=sem, function="st", stamp="db5f5821986c02d5")


@primitive
def atomic_add(ptr, val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Adds to a 32- or 64-bit word and returns what was there; each thread for itself.

    ``semantic`` (or ``sem``) is "relaxed", the default, "acquire", "release" or "acq_rel".
    """
    return lowering.emit("atomic_add", ptr, val, scope=scope, semantic=semantic, sem=sem, function="atomic_add", stamp="db5f5821986c02d5")


@primitive
def atomic_cas(ptr, cmp_val, target_val, scope: tl.constexpr = _GPU, semantic: tl.constexpr = _NOT_GIVEN, sem: tl.constexpr = _NOT_GIVEN):
    """Replaces a 32- or 64-bit word by ``target_val`` if it holds ``cmp_val``; returns what was there; each thread for itself.

    ``semantic`` (or ``sem``) is "relaxed", the default, "acquire", "release" or "acq_rel".
    """
    return lowering.emit(
        "atomic_cas",
        ptr,
        cmp_val,
        target_val,
        scope=scope,
        semantic=semantic,
        sem=sem,
        function="atomic_cas",
        stamp="db5f5821986c02d5",
    )


@primitive
def poll(ptr, value, CMP: tl.constexpr):
    """One thread's wait until the word at ``ptr`` compares to ``value``, acquire at system scope; returns the word that it saw.

    ``value`` has the word's type. On NVIDIA GPUs it ends as a ``wait`` ends that takes too long. Orders the calling thread only.
    """
    if lowering.polls_in_assembly():
        seen = lowering.emit_poll(ptr, value, CMP, stamp="db5f5821986c02d5")
    else:
        seen = ld(ptr, "sys", "acquire")
        while not compare.holds(seen, value, CMP):
            seen = ld(ptr, "sys", "acquire")
    return seen


@primitive
def tid(axis: tl.constexpr = 0):
    """Index of the calling thread in its block along ``axis`` (0, 1 or 2), int32; blocks have one dimension, so 1 and 2 give 0.

    Not for warp-specialised loops: Triton hands the value on to other warps as if it were the same for all.
    """
    return lowering.emit("tid", axis=axis, function="tid", stamp="db5f5821986c02d5")


@primitive
def __syncthreads():
    """Barrier of the block's threads; it orders their accesses to global and shared memory among themselves."""
    lowering.emit("syncthreads", function="__syncthreads", stamp="db5f5821986c02d5")


@primitive
def fence_cta():
    """Orders the calling thread's memory accesses before it with those after it, as the block's threads see them."""
    lowering.emit("fence", scope="cta", order="acq_rel", function="fence_cta", stamp="db5f5821986c02d5")


@primitive
def fence_gpu():
    """Orders the calling thread's memory accesses before it with those after it, as this GPU's threads see them."""
    lowering.emit("fence", scope="gpu", order="acq_rel", function="fence_gpu", stamp="db5f5821986c02d5")


@primitive
def fence_sys():
    """Orders the calling thread's memory accesses before it with those after it, as every GPU and the host see them."""
    lowering.emit("fence", scope="sys", order="acq_rel", function="fence_sys", stamp="db5f5821986c02d5")


# Builtins, not jit functions: Triton 3.6 makes a run-time value of what a jit function returns. They need no stamp, since
# the launch options that they read are part of Triton's cache key.
num_warps = lowering.num_warps
threads_per_warp = lowering.threads_per_warp
num_threads = lowering.num_threads
