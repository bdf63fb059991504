"""The SHMEM names of a kernel: NVSHMEM's and ROCSHMEM's functions and constants, on every machine that kernels run on.

They are backed by the simulator, or on GPUs by our own symmetric heap over peer access. What each does and orders is in
docs/primitives.md; the functions are in ``primitives/shmem_functions.py`` and ``shmem_team_functions.py``.

Two names for one thing are one function here: ``_wave`` and ``_wg`` are ROCSHMEM's words for a warp and a block, ``_rma`` asks NVSHMEM for
the network's path, and the ``p`` and ``g`` with a C type in front all go by the type that the pointer points to.
"""

from __future__ import annotations

import triton.language as tl

from triton_dist.primitives.functions import num_ranks, rank
from triton_dist.primitives.shmem_functions import (
    fence,
    g,
    getmem,
    getmem_block,
    getmem_nbi,
    getmem_nbi_block,
    getmem_nbi_warp,
    getmem_warp,
    p,
    putmem,
    putmem_block,
    putmem_nbi,
    putmem_nbi_block,
    putmem_nbi_warp,
    putmem_signal,
    putmem_signal_block,
    putmem_signal_nbi,
    putmem_signal_nbi_block,
    putmem_signal_nbi_warp,
    putmem_signal_warp,
    putmem_warp,
    quiet,
    remote_mc_ptr,
    remote_ptr,
    signal_op,
    signal_wait_until,
    uint64_wait_until_equals,
    ulong_put_signal,
)
from triton_dist.primitives.shmem_team_functions import (
    barrier,
    barrier_all,
    barrier_all_block,
    barrier_all_warp,
    barrier_block,
    barrier_warp,
    broadcast,
    broadcast_block,
    broadcast_warp,
    broadcastmem,
    broadcastmem_block,
    broadcastmem_warp,
    fcollect,
    fcollect_block,
    fcollect_warp,
    fcollectmem,
    fcollectmem_block,
    fcollectmem_warp,
    sync_all,
    sync_all_block,
    sync_all_warp,
    team_my_pe,
    team_n_pes,
    team_sync,
    team_sync_block,
    team_sync_warp,
    team_translate_pe,
)

NVSHMEM_CMP_EQ = tl.constexpr(0)
NVSHMEM_CMP_NE = tl.constexpr(1)
NVSHMEM_CMP_GT = tl.constexpr(2)
NVSHMEM_CMP_LE = tl.constexpr(3)
NVSHMEM_CMP_LT = tl.constexpr(4)
NVSHMEM_CMP_GE = tl.constexpr(5)

NVSHMEM_SIGNAL_SET = tl.constexpr(9)
NVSHMEM_SIGNAL_ADD = tl.constexpr(10)

NVSHMEM_TEAM_INVALID = tl.constexpr(-1)
NVSHMEM_TEAM_WORLD = tl.constexpr(0)
NVSHMEM_TEAM_SHARED = tl.constexpr(1)
NVSHMEMX_TEAM_NODE = tl.constexpr(2)

# The names are ROCSHMEM's, the values those that the functions here take, on AMD GPUs too: ROCSHMEM numbers the comparisons otherwise.
ROCSHMEM_CMP_EQ = NVSHMEM_CMP_EQ
ROCSHMEM_CMP_NE = NVSHMEM_CMP_NE
ROCSHMEM_CMP_GT = NVSHMEM_CMP_GT
ROCSHMEM_CMP_GE = NVSHMEM_CMP_GE
ROCSHMEM_CMP_LT = NVSHMEM_CMP_LT
ROCSHMEM_CMP_LE = NVSHMEM_CMP_LE
ROCSHMEM_SIGNAL_SET = NVSHMEM_SIGNAL_SET
ROCSHMEM_SIGNAL_ADD = NVSHMEM_SIGNAL_ADD

my_pe = rank
"""Rank of this process in the world, int32."""

n_pes = num_ranks
"""Number of ranks in the world, int32."""


@tl.core.builtin
def set_rocshmem_ctx(ctx, _semantic=None):
    """Takes ROCSHMEM's context and does nothing with it: what kernels need of the world is at a constant address."""


putmem_wave = putmem_warp
putmem_wg = putmem_block
getmem_wave = getmem_warp
getmem_wg = getmem_block
putmem_signal_wave = putmem_signal_warp
putmem_signal_wg = putmem_signal_block
putmem_nbi_wave = putmem_nbi_warp
putmem_nbi_wg = putmem_nbi_block
getmem_nbi_wave = getmem_nbi_warp
getmem_nbi_wg = getmem_nbi_block
putmem_signal_nbi_wave = putmem_signal_nbi_warp
putmem_signal_nbi_wg = putmem_signal_nbi_block
putmem_rma = putmem
putmem_rma_warp = putmem_warp
putmem_rma_block = putmem_block
putmem_rma_nbi = putmem_nbi
putmem_rma_nbi_warp = putmem_nbi_warp
putmem_rma_nbi_block = putmem_nbi_block
putmem_signal_rma = putmem_signal
putmem_signal_rma_warp = putmem_signal_warp
putmem_signal_rma_block = putmem_signal_block
putmem_signal_rma_nbi = putmem_signal_nbi
putmem_signal_rma_nbi_warp = putmem_signal_nbi_warp
putmem_signal_rma_nbi_block = putmem_signal_nbi_block
barrier_all_wave = barrier_all_warp
barrier_all_wg = barrier_all_block
quiet_pe = quiet
float_p = p
double_p = p
half_p = p
bfloat16_p = p
char_p = p
schar_p = p
short_p = p
int_p = p
long_p = p
longlong_p = p
uchar_p = p
ushort_p = p
uint_p = p
ulong_p = p
ulonglong_p = p
int8_p = p
int16_p = p
int32_p = p
int64_p = p
uint8_p = p
uint16_p = p
uint32_p = p
uint64_p = p
size_p = p
ptrdiff_p = p
float_g = g
double_g = g
half_g = g
bfloat16_g = g
char_g = g
schar_g = g
short_g = g
int_g = g
long_g = g
longlong_g = g
uchar_g = g
ushort_g = g
uint_g = g
ulong_g = g
ulonglong_g = g
int8_g = g
int16_g = g
int32_g = g
int64_g = g
uint8_g = g
uint16_g = g
uint32_g = g
uint64_g = g
size_g = g
ptrdiff_g = g

__all__ = [
    "NVSHMEMX_TEAM_NODE",
    "NVSHMEM_CMP_EQ",
    "NVSHMEM_CMP_GE",
    "NVSHMEM_CMP_GT",
    "NVSHMEM_CMP_LE",
    "NVSHMEM_CMP_LT",
    "NVSHMEM_CMP_NE",
    "NVSHMEM_SIGNAL_ADD",
    "NVSHMEM_SIGNAL_SET",
    "NVSHMEM_TEAM_INVALID",
    "NVSHMEM_TEAM_SHARED",
    "NVSHMEM_TEAM_WORLD",
    "ROCSHMEM_CMP_EQ",
    "ROCSHMEM_CMP_GE",
    "ROCSHMEM_CMP_GT",
    "ROCSHMEM_CMP_LE",
    "ROCSHMEM_CMP_LT",
    "ROCSHMEM_CMP_NE",
    "ROCSHMEM_SIGNAL_ADD",
    "ROCSHMEM_SIGNAL_SET",
    "barrier",
    "barrier_all",
    "barrier_all_block",
    "barrier_all_warp",
    "barrier_all_wave",
    "barrier_all_wg",
    "barrier_block",
    "barrier_warp",
    "bfloat16_g",
    "bfloat16_p",
    "broadcast",
    "broadcast_block",
    "broadcast_warp",
    "broadcastmem",
    "broadcastmem_block",
    "broadcastmem_warp",
    "char_g",
    "char_p",
    "double_g",
    "double_p",
    "fcollect",
    "fcollect_block",
    "fcollect_warp",
    "fcollectmem",
    "fcollectmem_block",
    "fcollectmem_warp",
    "fence",
    "float_g",
    "float_p",
    "g",
    "getmem",
    "getmem_block",
    "getmem_nbi",
    "getmem_nbi_block",
    "getmem_nbi_warp",
    "getmem_nbi_wave",
    "getmem_nbi_wg",
    "getmem_warp",
    "getmem_wave",
    "getmem_wg",
    "half_g",
    "half_p",
    "int16_g",
    "int16_p",
    "int32_g",
    "int32_p",
    "int64_g",
    "int64_p",
    "int8_g",
    "int8_p",
    "int_g",
    "int_p",
    "long_g",
    "long_p",
    "longlong_g",
    "longlong_p",
    "my_pe",
    "n_pes",
    "p",
    "ptrdiff_g",
    "ptrdiff_p",
    "putmem",
    "putmem_block",
    "putmem_nbi",
    "putmem_nbi_block",
    "putmem_nbi_warp",
    "putmem_nbi_wave",
    "putmem_nbi_wg",
    "putmem_rma",
    "putmem_rma_block",
    "putmem_rma_nbi",
    "putmem_rma_nbi_block",
    "putmem_rma_nbi_warp",
    "putmem_rma_warp",
    "putmem_signal",
    "putmem_signal_block",
    "putmem_signal_nbi",
    "putmem_signal_nbi_block",
    "putmem_signal_nbi_warp",
    "putmem_signal_nbi_wave",
    "putmem_signal_nbi_wg",
    "putmem_signal_rma",
    "putmem_signal_rma_block",
    "putmem_signal_rma_nbi",
    "putmem_signal_rma_nbi_block",
    "putmem_signal_rma_nbi_warp",
    "putmem_signal_rma_warp",
    "putmem_signal_warp",
    "putmem_signal_wave",
    "putmem_signal_wg",
    "putmem_warp",
    "putmem_wave",
    "putmem_wg",
    "quiet",
    "quiet_pe",
    "remote_mc_ptr",
    "remote_ptr",
    "schar_g",
    "schar_p",
    "set_rocshmem_ctx",
    "short_g",
    "short_p",
    "signal_op",
    "signal_wait_until",
    "size_g",
    "size_p",
    "sync_all",
    "sync_all_block",
    "sync_all_warp",
    "team_my_pe",
    "team_n_pes",
    "team_sync",
    "team_sync_block",
    "team_sync_warp",
    "team_translate_pe",
    "uchar_g",
    "uchar_p",
    "uint16_g",
    "uint16_p",
    "uint32_g",
    "uint32_p",
    "uint64_g",
    "uint64_p",
    "uint64_wait_until_equals",
    "uint8_g",
    "uint8_p",
    "uint_g",
    "uint_p",
    "ulong_g",
    "ulong_p",
    "ulong_put_signal",
    "ulonglong_g",
    "ulonglong_p",
    "ushort_g",
    "ushort_p",
]
