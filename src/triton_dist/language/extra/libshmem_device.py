"""The SHMEM names of a kernel: constants with NVSHMEM's values, and the functions that need nothing but a direct pointer.

A name without a suffix is called by each thread for itself, as in NVSHMEM.
"""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.primitives.functions import atomic_add, num_ranks, poll, rank, st, symm_at

NVSHMEM_CMP_EQ = tl.constexpr(0)
NVSHMEM_CMP_NE = tl.constexpr(1)
NVSHMEM_CMP_GT = tl.constexpr(2)
NVSHMEM_CMP_LE = tl.constexpr(3)
NVSHMEM_CMP_LT = tl.constexpr(4)
NVSHMEM_CMP_GE = tl.constexpr(5)

NVSHMEM_SIGNAL_SET = tl.constexpr(9)
NVSHMEM_SIGNAL_ADD = tl.constexpr(10)

NVSHMEM_TEAM_WORLD = tl.constexpr(0)
NVSHMEM_TEAM_SHARED = tl.constexpr(1)
NVSHMEMX_TEAM_NODE = tl.constexpr(2)

my_pe = rank
"""Rank of this process in the world, int32."""

n_pes = num_ranks
"""Number of ranks in the world, int32."""


@triton.jit
def remote_ptr(local_ptr, pe):
    """The pointer to the same symmetric object on ``pe``: ``symm_at`` by its SHMEM name. ``pe`` must be of this NVLink domain."""
    return symm_at(local_ptr, pe)


@triton.jit
def signal_wait_until(sig_addr, cmp_: tl.constexpr, cmp_val):
    """Blocks the calling thread until the word at ``sig_addr`` compares to ``cmp_val``; returns the value seen.

    ``cmp_`` is one of the NVSHMEM_CMP constants. The word has 32 or 64 bits and is read with acquire order at system scope.
    Only the calling thread is ordered: call ``__syncthreads`` before other threads use what the signal announces.
    """
    tl.static_assert(cmp_ >= 0 and cmp_ <= 5, "signal_wait_until: cmp_ must be one of NVSHMEM_CMP_EQ, NE, GT, LE, LT, GE")
    NAMES: tl.constexpr = ("eq", "ne", "gt", "le", "lt", "ge")
    return poll(sig_addr, tl.cast(cmp_val, sig_addr.dtype.element_ty), NAMES[cmp_])


@triton.jit
def signal_op(sig_addr, signal, sig_op: tl.constexpr, pe):
    """Sets the word at ``sig_addr`` on ``pe`` to ``signal``, or adds to it; each calling thread does it once.

    ``sig_op`` is NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD. The word has 32 or 64 bits. The calling thread's earlier stores
    come before it; those of other threads only after ``__syncthreads``.
    """
    if sig_op == NVSHMEM_SIGNAL_SET:
        st(symm_at(sig_addr, pe), signal, "sys", "release")
    elif sig_op == NVSHMEM_SIGNAL_ADD:
        atomic_add(symm_at(sig_addr, pe), signal, "sys", "release")
    else:
        tl.static_assert(False, "signal_op: sig_op must be NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD")
