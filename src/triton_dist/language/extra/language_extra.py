"""Per-thread primitives and launch constants: what a kernel imports by name."""

from triton_dist.primitives.functions import (
    __syncthreads,
    atomic_add,
    atomic_cas,
    fence_cta,
    fence_gpu,
    fence_sys,
    ld,
    num_threads,
    num_warps,
    st,
    threads_per_warp,
    tid,
)

__all__ = [
    "__syncthreads",
    "atomic_add",
    "atomic_cas",
    "fence_cta",
    "fence_gpu",
    "fence_sys",
    "ld",
    "num_threads",
    "num_warps",
    "st",
    "threads_per_warp",
    "tid",
]
