"""A barrier between the ranks of a team, as a device function and on a stream: each rank tells every other one, then waits for all.

The epoch is a word in each rank's own memory that the barrier itself increments, so a replayed CUDA graph is right: nothing that changes
from call to call comes from the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist.language as dl

from ...runtime.preload import Launch, preload, specialization
from ...runtime.symmetric import symm_zeros
from ...runtime.world import require_world
from ..team import find_team, workspace, world_ranks_tensor


@triton.jit
def team_barrier(arrived, epoch, world_ranks, index, size):
    """Wait until every rank of a team has come here as often as this one; called by one program of each rank.

    All that the program stored before is visible to the other ranks after their barrier.
    arrived: symmetric int64 words, one for each rank of the team; word ``i`` is written by rank ``i`` of the team only.
    epoch: one int64 word of this rank's own memory, 0 before the first barrier; 32 bits would be counted up in some hours.
    world_ranks: int32 world ranks of the team. index: this rank's place in it. size: its number of ranks.
    """
    now = tl.load(epoch) + 1
    for peer in range(size):
        dl.notify(arrived + index, tl.load(world_ranks + peer), signal=now, sig_op="set", comm_scope="intra_node")
    dl.wait(arrived, size, "sys", "acquire", waitValue=now, cmp="ge")
    tl.store(epoch, now)


@triton.jit(do_not_specialize=["index"])
def barrier_kernel(arrived, epoch, world_ranks, index, size):
    """One program: the barrier of a team."""
    team_barrier(arrived, epoch, world_ranks, index, size)


def barrier(group: object = None) -> None:
    """A barrier of the ranks of ``group`` on the current stream; the host goes on. All of them call it.

    Work queued after it starts when all work queued before it on every rank's current stream has finished.
    group: a ``torch.distributed`` group whose ranks reach each other by direct pointers; None is all ranks.
    The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises NotInitializedError, InvalidArgumentError, CaptureError.
    """
    team = find_team(group, "barrier")
    device = require_world("barrier").device

    def make() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int]:
        arrived = symm_zeros((team.size,), torch.int64, name="arrived", group=group)
        epoch = torch.zeros(1, dtype=torch.int64, device=device)
        arguments = (arrived, epoch, world_ranks_tensor(team, device), team.index, team.size)
        preload("barrier", specialization(*arguments), lambda: [Launch(barrier_kernel, arguments)])
        return arguments

    barrier_kernel[(1,)](*workspace("barrier", team.ranks, make))
