"""A barrier of the ranks of one node by flags that return to zero, as a kernel of one block, and a barrier chosen by its context."""

from __future__ import annotations

from typing import Any

import torch

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.language_extra import __syncthreads, atomic_cas, tid

from ...runtime import streams, symmetric, world
from ...runtime.foreign_streams import as_stream
from ...utils import nvshmem_barrier_all_on_stream


@triton_dist.jit(do_not_specialize=["local_rank", "rank", "local_world_size"])
def barrier_all_intra_node_atomic_cas_block(local_rank, rank, local_world_size, symm_flag_ptr):
    """Barrier of a node's ranks, one block of at least ``local_world_size`` threads on each.

    symm_flag_ptr: ``local_world_size`` symmetric int32 words, zero at first and after every barrier. Word ``i`` of a rank is set by the
    node's rank ``i``, which waits for it to be zero before, and cleared by its owner. Needs atomics on peers' memory.
    """
    thread = tid(0)
    __syncthreads()
    if thread < local_world_size:
        word = dl.symm_at(symm_flag_ptr + local_rank, rank - local_rank + thread)
        while atomic_cas(word, 0, 1, "sys", "release") != 0:
            pass
        while atomic_cas(symm_flag_ptr + thread, 1, 0, "sys", "acquire") != 1:
            pass
    __syncthreads()


class BarrierAllContext:
    """A barrier of all ranks, or (``is_intra_node``) of this node's ranks, with its memory. Every rank makes it."""

    def __init__(self, is_intra_node: bool) -> None:
        self.is_intra_node = is_intra_node
        self.rank, self.local_rank, self.num_local_ranks = world.rank(), world.local_rank(), world.local_world_size()
        if is_intra_node:
            self.symm_barrier: torch.Tensor = symmetric.symm_zeros((self.num_local_ranks,), torch.int32, name="symm_barrier")

    def finalize(self) -> None:
        """Give the memory back. Every rank calls it."""
        if self.is_intra_node:
            streams.synchronize()
            symmetric.symm_free(self.symm_barrier)


def barrier_all_on_stream(ctx: BarrierAllContext | None, stream: Any = None) -> None:
    """The barrier of ``ctx`` on ``stream`` (default: the current one); None is all ranks."""
    if ctx is None or not ctx.is_intra_node:
        nvshmem_barrier_all_on_stream(stream)
        return
    with streams.stream(as_stream(stream, "barrier_all_on_stream")):
        barrier_all_intra_node_atomic_cas_block[(1,)](ctx.local_rank, ctx.rank, ctx.num_local_ranks, ctx.symm_barrier)
