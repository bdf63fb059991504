"""The SHMEM functions as kernels call them: ``triton.jit`` functions over ``lowering.emit``, with NVSHMEM's names and meaning.

A name without a suffix is called by each thread for itself; ``_warp`` by all threads of a warp together, ``_block`` by all threads of the
block together, each with the same arguments in all of them. ``dest`` of a put and ``source`` of a get are symmetric addresses of any rank's
heap, the other one is any memory of this GPU. Sizes are in bytes unless said otherwise. Who calls and what is ordered is in ``table.py``;
language/extra/libshmem_device.py exports the names; those of teams are in ``shmem_team_functions.py``. ``qp_id`` is taken and not used:
there are no queue pairs.

The stamp is as in ``functions.py``; no function calls another one here, so that a report of a wait names the user's line.
"""

from __future__ import annotations

import triton.language as tl

from triton_dist.primitives import lowering, shmem
from triton_dist.primitives.primitive_function import primitive


@primitive
def remote_ptr(local_ptr, pe):
    """The pointer to the same symmetric object on ``pe``, with the type of ``local_ptr``; NULL where there is no direct pointer to it.

    NULL for a rank on another host, for a number that is no rank, and on a GPU for a pointer that is not symmetric (on the simulator that
    is a NotSymmetricError).
    """
    return lowering.emit("remote_ptr", local_ptr, pe, function="remote_ptr", stamp="db5f5821986c02d5")


@primitive
def remote_mc_ptr(team, ptr):
    """The multicast address of the symmetric object at ``ptr`` on the ranks of ``team``, for the ``multimem`` functions of
    ``language_extra``; NULL where there is none, which on GPUs is always so: the heap has no multicast mapping.
    """
    return lowering.emit("remote_mc_ptr", ptr, team, function="remote_mc_ptr", stamp="db5f5821986c02d5")


@primitive
def putmem(dest, source, bytes, pe):
    """Copies ``bytes`` bytes to ``dest`` on ``pe``, by the calling thread; the source may be changed when it returns. Delivery is
    ordered by ``fence`` and ``quiet`` only.
    """
    lowering.emit("shmem_put", dest, source, bytes, pe, level="thread", nbi=0, function="putmem", stamp="db5f5821986c02d5")


@primitive
def putmem_warp(dest, source, bytes, pe):
    """Copies ``bytes`` bytes to ``dest`` on ``pe``, by the warp; the source may be changed when it returns. Delivery is ordered by
    ``fence`` and ``quiet`` only.
    """
    lowering.emit("shmem_put", dest, source, bytes, pe, level="warp", nbi=0, function="putmem_warp", stamp="db5f5821986c02d5")


@primitive
def putmem_block(dest, source, bytes, pe):
    """Copies ``bytes`` bytes to ``dest`` on ``pe``, by the block; the source may be changed when it returns. Delivery is ordered by
    ``fence`` and ``quiet`` only.
    """
    lowering.emit("shmem_put", dest, source, bytes, pe, level="block", nbi=0, function="putmem_block", stamp="db5f5821986c02d5")


@primitive
def putmem_nbi(dest, source, bytes, pe, qp_id=0):
    """Copies ``bytes`` bytes to ``dest`` on ``pe``, by the calling thread; the source may be changed after ``quiet``. Delivery is
    ordered by ``fence`` and ``quiet`` only.
    """
    lowering.emit("shmem_put", dest, source, bytes, pe, level="thread", nbi=1, function="putmem_nbi", stamp="db5f5821986c02d5")


@primitive
def putmem_nbi_warp(dest, source, bytes, pe):
    """Copies ``bytes`` bytes to ``dest`` on ``pe``, by the warp; the source may be changed after ``quiet``. Delivery is ordered by
    ``fence`` and ``quiet`` only.
    """
    lowering.emit("shmem_put", dest, source, bytes, pe, level="warp", nbi=1, function="putmem_nbi_warp", stamp="db5f5821986c02d5")


@primitive
def putmem_nbi_block(dest, source, bytes, pe):
    """Copies ``bytes`` bytes to ``dest`` on ``pe``, by the block; the source may be changed after ``quiet``. Delivery is ordered by
    ``fence`` and ``quiet`` only.
    """
    lowering.emit("shmem_put", dest, source, bytes, pe, level="block", nbi=1, function="putmem_nbi_block", stamp="db5f5821986c02d5")


@primitive
def getmem(dest, source, bytes, pe):
    """Copies ``bytes`` bytes from ``source`` on ``pe`` to ``dest`` here, by the calling thread; the data is there when it returns."""
    lowering.emit("shmem_get", dest, source, bytes, pe, level="thread", nbi=0, function="getmem", stamp="db5f5821986c02d5")


@primitive
def getmem_warp(dest, source, bytes, pe):
    """Copies ``bytes`` bytes from ``source`` on ``pe`` to ``dest`` here, by the warp; the data is there when it returns."""
    lowering.emit("shmem_get", dest, source, bytes, pe, level="warp", nbi=0, function="getmem_warp", stamp="db5f5821986c02d5")


@primitive
def getmem_block(dest, source, bytes, pe):
    """Copies ``bytes`` bytes from ``source`` on ``pe`` to ``dest`` here, by the block; the data is there when it returns."""
    lowering.emit("shmem_get", dest, source, bytes, pe, level="block", nbi=0, function="getmem_block", stamp="db5f5821986c02d5")


@primitive
def getmem_nbi(dest, source, bytes, pe):
    """Copies ``bytes`` bytes from ``source`` on ``pe`` to ``dest`` here, by the calling thread; the data is there after ``quiet``."""
    lowering.emit("shmem_get", dest, source, bytes, pe, level="thread", nbi=1, function="getmem_nbi", stamp="db5f5821986c02d5")


@primitive
def getmem_nbi_warp(dest, source, bytes, pe):
    """Copies ``bytes`` bytes from ``source`` on ``pe`` to ``dest`` here, by the warp; the data is there after ``quiet``."""
    lowering.emit("shmem_get", dest, source, bytes, pe, level="warp", nbi=1, function="getmem_nbi_warp", stamp="db5f5821986c02d5")


@primitive
def getmem_nbi_block(dest, source, bytes, pe):
    """Copies ``bytes`` bytes from ``source`` on ``pe`` to ``dest`` here, by the block; the data is there after ``quiet``."""
    lowering.emit("shmem_get", dest, source, bytes, pe, level="block", nbi=1, function="getmem_nbi_block", stamp="db5f5821986c02d5")


@primitive
def putmem_signal(dest, source, bytes, sig_addr, signal, sig_op: tl.constexpr, pe):
    """As ``putmem``; then the word at ``sig_addr`` on ``pe`` is set to ``signal``, or added to, behind the data.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The source may be changed when it returns.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "putmem_signal")
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        bytes,
        sig_addr,
        signal,
        pe,
        level="thread",
        nbi=0,
        sig_op=operation,
        function="putmem_signal",
        stamp="db5f5821986c02d5",
    )


@primitive
def putmem_signal_warp(dest, source, bytes, sig_addr, signal, sig_op: tl.constexpr, pe):
    """As ``putmem_warp``; then the word at ``sig_addr`` on ``pe`` is set to ``signal``, or added to, behind the data.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The source may be changed when it returns.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "putmem_signal_warp")
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        bytes,
        sig_addr,
        signal,
        pe,
        level="warp",
        nbi=0,
        sig_op=operation,
        function="putmem_signal_warp",
        stamp="db5f5821986c02d5",
    )


@primitive
def putmem_signal_block(dest, source, bytes, sig_addr, signal, sig_op: tl.constexpr, pe):
    """As ``putmem_block``; then the word at ``sig_addr`` on ``pe`` is set to ``signal``, or added to, behind the data.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The source may be changed when it returns.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "putmem_signal_block")
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        bytes,
        sig_addr,
        signal,
        pe,
        level="block",
        nbi=0,
        sig_op=operation,
        function="putmem_signal_block",
        stamp="db5f5821986c02d5",
    )


@primitive
def putmem_signal_nbi(dest, source, bytes, sig_addr, signal, sig_op: tl.constexpr, pe):
    """As ``putmem_nbi``; then the word at ``sig_addr`` on ``pe`` is set to ``signal``, or added to, behind the data.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The source may be changed after ``quiet``.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "putmem_signal_nbi")
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        bytes,
        sig_addr,
        signal,
        pe,
        level="thread",
        nbi=1,
        sig_op=operation,
        function="putmem_signal_nbi",
        stamp="db5f5821986c02d5",
    )


@primitive
def putmem_signal_nbi_warp(dest, source, bytes, sig_addr, signal, sig_op: tl.constexpr, pe):
    """As ``putmem_nbi_warp``; then the word at ``sig_addr`` on ``pe`` is set to ``signal``, or added to, behind the data.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The source may be changed after ``quiet``.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "putmem_signal_nbi_warp")
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        bytes,
        sig_addr,
        signal,
        pe,
        level="warp",
        nbi=1,
        sig_op=operation,
        function="putmem_signal_nbi_warp",
        stamp="db5f5821986c02d5",
    )


@primitive
def putmem_signal_nbi_block(dest, source, bytes, sig_addr, signal, sig_op: tl.constexpr, pe, qp_id=0):
    """As ``putmem_nbi_block``; then the word at ``sig_addr`` on ``pe`` is set to ``signal``, or added to, behind the data.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The source may be changed after ``quiet``.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "putmem_signal_nbi_block")
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        bytes,
        sig_addr,
        signal,
        pe,
        level="block",
        nbi=1,
        sig_op=operation,
        function="putmem_signal_nbi_block",
        stamp="db5f5821986c02d5",
    )


@primitive
def signal_op(sig_addr, signal, sig_op: tl.constexpr, pe):
    """Sets the word at ``sig_addr`` on ``pe`` to ``signal``, or adds to it; each calling thread does it once.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The word has 32 or 64 bits. The calling thread's earlier loads and stores come
    before it; those of other threads only after ``__syncthreads``, and puts only after ``fence`` or ``quiet``.
    """
    operation: tl.constexpr = shmem.signal_operation(sig_op, "signal_op")
    lowering.emit("shmem_signal", sig_addr, signal, pe, sig_op=operation, function="signal_op", stamp="db5f5821986c02d5")


@primitive
def signal_wait_until(sig_addr, cmp_: tl.constexpr, cmp_val):
    """Blocks the calling thread until the word at ``sig_addr`` compares to ``cmp_val``; returns the value seen.

    ``cmp_`` is one of the NVSHMEM_CMP constants. The word has 32 or 64 bits and is read with acquire order at system scope; ordered
    compares look at the sign of the difference. Only the calling thread is ordered: call ``__syncthreads`` before other threads use what
    the signal announces.
    """
    comparison: tl.constexpr = shmem.comparison(cmp_, "signal_wait_until")
    return lowering.emit("shmem_signal_wait", sig_addr, cmp_val, cmp=comparison, function="signal_wait_until", stamp="db5f5821986c02d5")


@primitive
def uint64_wait_until_equals(addr, val):
    """``signal_wait_until`` the word at ``addr`` equals ``val``."""
    return lowering.emit("shmem_signal_wait", addr, val, cmp="eq", function="uint64_wait_until_equals", stamp="db5f5821986c02d5")


@primitive
def ulong_put_signal(dest, source, nelems, sig_addr, signal, sig_op: tl.constexpr, pe):
    """``putmem_signal`` of ``nelems`` elements of 8 bytes."""
    operation: tl.constexpr = shmem.signal_operation(sig_op, "ulong_put_signal")
    size = tl.cast(nelems, tl.int64) * 8
    lowering.emit(
        "shmem_put_signal",
        dest,
        source,
        size,
        sig_addr,
        signal,
        pe,
        level="thread",
        nbi=0,
        sig_op=operation,
        function="ulong_put_signal",
        stamp="db5f5821986c02d5",
    )


@primitive
def p(dest, value, pe, qp_id=0):
    """Stores ``value``, converted to the type that ``dest`` points to, at ``dest`` on ``pe``; each thread for itself. As a blocking
    put.
    """
    lowering.emit("shmem_p", dest, value, pe, function="p", stamp="db5f5821986c02d5")


@primitive
def g(source, pe):
    """The scalar at ``source`` on ``pe``; each thread for itself."""
    return lowering.emit("shmem_g", source, pe, function="g", stamp="db5f5821986c02d5")


@primitive
def quiet():
    """Completes all earlier puts and gets of this rank that are ordered before it: the program's own, and those that other threads
    told of by a barrier or signal.
    """
    lowering.emit("shmem_quiet", function="quiet", stamp="db5f5821986c02d5")


@primitive
def fence():
    """Delivers all earlier puts and stores before later puts, signals and stores to the same rank. Does not complete gets, nor free
    the source of a ``_nbi`` put.
    """
    lowering.emit("shmem_fence", function="fence", stamp="db5f5821986c02d5")
