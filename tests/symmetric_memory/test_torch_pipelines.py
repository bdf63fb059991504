"""Torch's own pipelines over symmetric memory (copies on two streams, barriers on channels), run unchanged instead of our references."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from triton_dist.errors import UnsupportedOperationError
from triton_dist.sim.simulate import simulate
from triton_dist.tools.run.simulated import simulated_cuda


def value(rank, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank)).cuda()


def group_name():
    dist.init_process_group("nccl")
    return dist.group.WORLD.group_name


def all_gather_matmul():
    group, rank, world_size = group_name(), dist.get_rank(), dist.get_world_size()
    shards, B = [value(r, 4, 8) for r in range(world_size)], value(99, 8, 5)
    for _ in range(2):
        A, (out,) = symm_mem._fused_all_gather_matmul_impl(torch.ops.aten.mm.out, shards[rank], [B], None, [{}], [B.dtype], 0, group, True)
    assert torch.equal(A, torch.cat(shards))
    torch.testing.assert_close(out, torch.cat(shards) @ B)


def matmul_reduce_scatter():
    group, rank, world_size = group_name(), dist.get_rank(), dist.get_world_size()
    factors = [(value(r, 4 * world_size, 8), value(50 + r, 8, 5)) for r in range(world_size)]
    for _ in range(2):
        out = symm_mem._fused_matmul_reduce_scatter_impl(torch.ops.aten.mm.out, *factors[rank], {}, torch.float32, "sum", 0, group)
    torch.testing.assert_close(out, sum(a @ b for a, b in factors).chunk(world_size)[rank])


def low_contention():
    group, rank, world_size = group_name(), dist.get_rank(), dist.get_world_size()
    inputs = [value(r, 2 * world_size, 3) for r in range(world_size)]
    gathered = symm_mem._low_contention_all_gather(inputs[rank], group)
    reduced = symm_mem._low_contention_reduce_scatter(inputs[rank], "sum", group)
    torch.cuda.current_stream().wait_stream(symm_mem._get_backend_stream())
    assert torch.equal(gathered, torch.cat(inputs))
    torch.testing.assert_close(reduced, sum(inputs).chunk(world_size)[rank])


@pytest.mark.parametrize("pipeline", [all_gather_matmul, matmul_reduce_scatter, low_contention])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_pipeline(pipeline, world_size):
    with simulated_cuda() as simulate:
        simulate(pipeline, world_size, check="all", seed=world_size)


@pytest.mark.parametrize(
    "name",
    ["_pipelined_all_gather_and_consume", "_pipelined_produce_and_all2all", "_low_contention_all_gather", "_low_contention_reduce_scatter"],
)
def test_without_torch_cuda_they_are_refused_by_name(name):
    def fn():
        group = group_name()
        getattr(symm_mem, name)(torch.empty(4), group)

    with pytest.raises(UnsupportedOperationError, match=f"{name} asks torch.cuda for streams.*triton-dist run"):
        simulate(fn, 2)
