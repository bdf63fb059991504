"""A one-shot all-reduce as it is written for torch's symmetric memory, and its racy twins."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton

from triton_dist.errors import DataRaceError
from triton_dist.sim.simulate import simulate

from .kernels import one_shot_all_reduce_kernel

BLOCK = 64


def all_reduce(rounds=3, count=150, dtype=torch.float32, meet_before=True, meet_after=True):
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    buffer = symm_mem.empty(count, dtype=dtype, device="cuda")
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD.group_name)
    results = []
    for number in range(rounds):
        buffer.copy_(torch.arange(count) % 7 + rank + number)
        result = torch.empty(count, dtype=dtype)
        one_shot_all_reduce_kernel[(triton.cdiv(count, BLOCK),)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, result, count, rank,
            WORLD=world_size, BLOCK=BLOCK, MEET_BEFORE=meet_before, MEET_AFTER=meet_after,
        )  # fmt: skip
        results.append(result)
    assert not handle.get_signal_pad(rank).view(torch.int32).any()
    dist.barrier()
    return torch.stack(results)


def expected(world_size, rounds=3, count=150):
    return torch.stack([sum(torch.arange(count) % 7 + rank + number for rank in range(world_size)) for number in range(rounds)])


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_shot_all_reduce(world_size, dtype):
    for result in simulate(all_reduce, world_size, kwargs={"dtype": dtype}, check="all", seed=world_size):
        assert torch.equal(result, expected(world_size).to(dtype))


def test_without_the_first_meeting_reads_race_with_the_peers_writes():
    with pytest.raises(DataRaceError, match="buffer"):
        simulate(all_reduce, 2, kwargs={"meet_before": False}, check="race")


def test_without_the_last_meeting_a_peer_overwrites_what_is_read():
    with pytest.raises(DataRaceError, match="buffer"):
        simulate(all_reduce, 2, kwargs={"meet_after": False}, check="race")
