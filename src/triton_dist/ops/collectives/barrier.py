"""A barrier between the ranks of a team, as a device function: each rank tells every other one, then waits for all.

The epoch is a word in each rank's own memory that the barrier itself increments, so a replayed CUDA graph is right: nothing that changes
from call to call comes from the host.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl


@triton.jit
def team_barrier(arrived, epoch, world_ranks, index, size):
    """Wait until every rank of a team has come here as often as this one; called by one program of each rank.

    All that the program stored before is visible to the other ranks after their barrier.
    arrived: symmetric int32 words, one for each rank of the team; word ``i`` is written by rank ``i`` of the team only.
    epoch: one int32 word of this rank's own memory, 0 before the first barrier.
    world_ranks: int32 world ranks of the team. index: this rank's place in it. size: its number of ranks.
    """
    now = tl.load(epoch) + 1
    for peer in range(size):
        dl.notify(arrived + index, tl.load(world_ranks + peer), signal=now, sig_op="set", comm_scope="intra_node")
    dl.wait(arrived, size, "sys", "acquire", waitValue=now, cmp="ge")
    tl.store(epoch, now)
