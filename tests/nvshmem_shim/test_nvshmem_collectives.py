"""Collectives of ``nvshmem.core`` among simulated ranks, against the values that they must give."""

import pytest
import torch

from triton_dist.errors import InvalidArgumentError, NotSymmetricError
from triton_dist.nvshmem_shim import core
from triton_dist.sim.simulate import simulate
from triton_dist.tools.run.simulated import simulated_cuda

WORLD = core.Teams.TEAM_WORLD
WORLD_SIZES = (1, 2, 3, 4, 8)


def symmetric(values):
    made = core.tensor(tuple(values.shape), values.dtype)
    made.copy_(values)
    return made


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(5,), (3, 7), (0,)])
def test_every_collective(world_size, dtype, shape):
    def fn():
        rank, size = core.my_pe(), core.n_pes()
        each = [(torch.arange(shape.numel()).view(shape) + 3 * peer).to(dtype) for peer in range(size)]
        stack, mine, out = torch.stack(each), symmetric(each[rank]), symmetric(torch.full(shape, -1).to(dtype))
        for op, right in (("sum", stack.double().sum(0)), ("max", stack.amax(0)), ("min", stack.amin(0))):
            core.reduce(WORLD, out, mine, op)
            assert torch.equal(out, right.to(dtype))
        whole = symmetric(torch.zeros((size, *shape), dtype=dtype))
        core.fcollect(WORLD, whole, mine)
        assert torch.equal(whole, stack)
        core.reducescatter(WORLD, out, whole, "sum")
        assert torch.equal(out, (each[rank].double() * size).to(dtype))
        sent = symmetric(torch.stack([each[rank] + peer for peer in range(size)]))
        core.alltoall(WORLD, whole, sent)
        assert torch.equal(whole, torch.stack([each[peer] + rank for peer in range(size)]))
        for root in range(size):
            core.broadcast(WORLD, out, mine, root)
            assert torch.equal(out, each[root])
        core.reduce(WORLD, mine, mine, "sum")
        assert torch.equal(mine, stack.double().sum(0).to(dtype))

    shape = torch.Size(shape)
    simulate(fn, world_size)


@pytest.mark.parametrize("seed", range(3))
def test_a_team_and_a_stream_of_its_own(seed):
    def fn():
        rank = core.my_pe()
        even = core.team_split_strided(WORLD, 0, 2, 2)
        odd = core.team_split_strided(WORLD, 1, 2, 2)
        team, place = (odd, rank // 2) if rank % 2 else (even, rank // 2)
        side, raw, whole = torch.cuda.Stream(), core.buffer(16), core.buffer(32)
        total, x = core.tensor((4,), torch.int32), core.tensor((4,), torch.int32)
        with torch.cuda.stream(side):
            raw.tensor.fill_(rank)
            x.fill_(rank)
        core.fcollect(team, whole, raw, stream=side)
        core.reduce(team, total, x, "sum", stream=side.cuda_stream)
        core.broadcast(team, x, total, root=1, stream=side)
        side.synchronize()
        assert core.team_my_pe(team) == place
        return whole.tensor.unique().tolist(), total.unique().tolist(), x.unique().tolist()

    with simulated_cuda() as run:
        assert run(fn, 4, seed=seed) == [([0, 2], [2], [2]), ([1, 3], [4], [4])] * 2


CALLS = {
    "reduce": lambda dst, src, **options: core.reduce(WORLD, dst, src, "sum", **options),
    "reducescatter": lambda dst, src, **options: core.reducescatter(WORLD, dst, src, "sum", **options),
    "fcollect": lambda dst, src, **options: core.fcollect(WORLD, dst, src, **options),
    "alltoall": lambda dst, src, **options: core.alltoall(WORLD, dst, src, **options),
    "broadcast": lambda dst, src, **options: core.broadcast(WORLD, dst, src, **options),
}
SIZES = {"reduce": (4, 4), "reducescatter": (4, 8), "fcollect": (8, 4), "alltoall": (8, 8), "broadcast": (4, 4)}


@pytest.mark.parametrize("name", CALLS)
def test_mistakes_are_named(name):
    into, sent = SIZES[name]

    def fn():
        call, dst, src = CALLS[name], core.tensor((into,), torch.float32), core.tensor((sent,), torch.float32)
        for wrong in ((None, src), (dst, None), (3, src), (dst, src.numpy()), (dst, [1.0] * sent)):
            with pytest.raises(InvalidArgumentError, match=f"nvshmem.core.{name}.* is not a torch tensor"):
                call(*wrong)
        with pytest.raises(NotSymmetricError, match="dst is not in symmetric memory"):
            call(torch.zeros(into), src)
        with pytest.raises(NotSymmetricError, match="src is not in symmetric memory"):
            call(dst, torch.zeros(sent))
        for wrong in ((dst[:-1], src), (dst, src[:-1]), (dst.view(torch.int32), src)):
            with pytest.raises(InvalidArgumentError, match="equal part"):
                call(*wrong)
        with pytest.raises(InvalidArgumentError, match="dst must be contiguous"):
            call(dst[::2], src)
        with pytest.raises(InvalidArgumentError, match="'slow' is not a CUDA stream"):
            call(dst, src, stream="slow")

    simulate(fn, 2)


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda x: core.reduce(WORLD, x, x, "product"), "op='product' must be one of"),
        (lambda x: core.reducescatter(WORLD, x, x, None), "op=None must be one of"),
        (lambda x: core.reduce(WORLD, core.tensor_get_buffer(x)[0], x, "sum"), "a Buffer has no dtype"),
        (lambda x: core.broadcast(WORLD, x, x, root=2), "root=2 must be a place in the team"),
        (lambda x: core.broadcast(WORLD, x, x, root="0"), "root must be an integer"),
        (lambda x: core.fcollect(9, x, x), "has no team 9"),
        (lambda x: core.alltoall(None, x, x), "None is not the handle of a team"),
    ],
)
def test_mistakes_of_one_collective(use, said):
    with pytest.raises(InvalidArgumentError, match=said):
        simulate(lambda: use(core.tensor((2,), torch.float32)), 2)
