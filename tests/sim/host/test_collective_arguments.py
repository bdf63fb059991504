"""torch.distributed among simulated ranks: ranks that there are not, layouts that NCCL refuses, and calls that are put off to be one."""

import pytest
import torch
import torch.distributed as dist

from triton_dist.errors import CollectiveMismatchError, InvalidArgumentError
from triton_dist.sim.simulate import simulate
from triton_dist.tools.run.simulated import simulated_cuda

SIZE = 2
pytestmark = [pytest.mark.host_code, pytest.mark.filterwarnings("ignore::FutureWarning")]


def run(fn, world_size=SIZE, backend="nccl", **options):
    def body():
        dist.init_process_group(backend)
        return fn(dist.get_rank(), dist.get_world_size())

    return simulate(body, world_size, **options)


def parts():
    return [torch.ones(2) for _ in range(SIZE)]


ROOTED = {
    "broadcast": lambda group, root: dist.broadcast(torch.ones(2), group_src=root, group=group),
    "reduce": lambda group, root: dist.reduce(torch.ones(2), group_dst=root, group=group),
    "gather": lambda group, root: dist.gather(torch.ones(2), None, group_dst=root, group=group),
    "scatter": lambda group, root: dist.scatter(torch.ones(2), None, group_src=root, group=group),
    "send": lambda group, root: dist.send(torch.ones(2), group_dst=root, group=group),
    "recv": lambda group, root: dist.recv(torch.ones(2), group_src=root, group=group),
}


@pytest.mark.parametrize("root", [SIZE, 9, -1, -2])
@pytest.mark.parametrize("name", ROOTED)
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_rank_that_there_is_not(name, root, backend):
    with pytest.raises(InvalidArgumentError, match=rf"dist\.{name}: there is no rank {root} in group"):
        run(lambda rank, size: ROOTED[name](None, root), backend=backend)


def test_a_root_by_its_number_in_the_world():
    with pytest.raises(InvalidArgumentError, match="there is no rank 9"):
        run(lambda rank, size: dist.broadcast(torch.ones(1), src=9))
    with pytest.raises(InvalidArgumentError, match="there is no rank -1"):
        run(lambda rank, size: dist.reduce(torch.ones(1), dst=-1))


def strided(*shape):
    return torch.ones(*shape, 2)[..., 0]


NOT_CONTIGUOUS = {
    "all_reduce": lambda: dist.all_reduce(strided(4)),
    "reduce": lambda: dist.reduce(strided(4), dst=0),
    "broadcast": lambda: dist.broadcast(strided(4), src=0),
    "all_gather, input": lambda: dist.all_gather([torch.ones(4) for _ in range(SIZE)], strided(4)),
    "all_gather, outputs": lambda: dist.all_gather([strided(4) for _ in range(SIZE)], torch.ones(4)),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.ones(SIZE * 4), strided(4)),
    "reduce_scatter, inputs": lambda: dist.reduce_scatter(torch.ones(4), [strided(4) for _ in range(SIZE)]),
    "reduce_scatter, output": lambda: dist.reduce_scatter(strided(4), [torch.ones(4) for _ in range(SIZE)]),
    "all_to_all": lambda: dist.all_to_all(parts(), [strided(2) for _ in range(SIZE)]),
    "all_to_all_single, input": lambda: dist.all_to_all_single(torch.ones(SIZE), strided(SIZE)),
    "all_to_all_single, output": lambda: dist.all_to_all_single(strided(SIZE), torch.ones(SIZE)),
    "gather": lambda: dist.gather(strided(2), parts() if dist.get_rank() == 0 else None, dst=0),
    "scatter": lambda: dist.scatter(strided(2), parts() if dist.get_rank() == 0 else None, src=0),
}


@pytest.mark.parametrize("name", NOT_CONTIGUOUS)
def test_layouts_that_nccl_refuses(name):
    with pytest.raises(InvalidArgumentError, match="NCCL refuses those; pass tensor.contiguous"):
        run(lambda rank, size: NOT_CONTIGUOUS[name]())
    run(lambda rank, size: NOT_CONTIGUOUS[name](), backend="gloo")


def test_layouts_that_nccl_takes():
    def fn(rank, size):
        images = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
        dist.all_reduce(images)
        assert images.unique().tolist() == [size]
        outputs = [torch.zeros(3, 2).t() for _ in range(size)]
        dist.all_gather(outputs, torch.arange(6.0).view(2, 3) + rank)
        assert [output[1, 2].item() for output in outputs] == [5 + peer for peer in range(size)]
        if rank == 0:
            dist.send(strided(3), 1)
        elif rank == 1:
            dist.recv(strided(3), 0)

    run(fn, 3)


@pytest.mark.parametrize("backend", ["cpu:gloo,cuda:nccl", None])
def test_a_group_of_both_asks_nccl_for_tensors_of_the_gpu(backend):
    def fn(device):
        dist.init_process_group(backend)
        dist.all_reduce(torch.ones(4, 2, device=device)[:, 0])

    with simulated_cuda() as run_on_cuda:
        run_on_cuda(lambda: fn("cpu"), SIZE)
        with pytest.raises(InvalidArgumentError, match="NCCL refuses"):
            run_on_cuda(lambda: fn("cuda"), SIZE)


@pytest.mark.parametrize("async_ops", [False, True])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_calls_that_are_put_off_to_be_one(world_size, async_ops):
    def fn(rank, size):
        after, before = (rank + 1) % size, (rank - 1) % size
        sums = [torch.full((number + 1,), float(rank)) for number in range(3)]
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=async_ops) as coalesced:
            for tensor in sums:
                dist.all_reduce(tensor)
        if async_ops:
            coalesced.wait()
        assert all(tensor.unique().tolist() == [sum(range(size))] for tensor in sums)
        came, told = torch.zeros(2), torch.full((1,), float(rank))
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=async_ops) as coalesced:
            dist.send(torch.full((2,), float(rank)), after)  # which waits for its receiver otherwise
            dist.recv(came, before)
            dist.broadcast(told, src=size - 1)
        if async_ops:
            coalesced.wait()
        assert came.tolist() == [before] * 2 and told.item() == size - 1
        dist.all_reduce(told)
        assert told.item() == size * (size - 1)

    run(fn, world_size)


def test_put_off_calls_are_checked():
    def mixed(rank, size):
        with dist._coalescing_manager(device=torch.device("cpu")):
            dist.broadcast(torch.ones(1 + rank), src=0)

    with pytest.raises(CollectiveMismatchError, match="give both the same dtype and number of elements"):
        run(mixed)

    def nested(rank, size):
        dist.group.WORLD._start_coalescing(None)
        dist.group.WORLD._start_coalescing(None)

    with pytest.raises(InvalidArgumentError, match="inside another one"):
        run(nested)
    with pytest.raises(InvalidArgumentError, match="without _start_coalescing"):
        run(lambda rank, size: dist.group.WORLD._end_coalescing(None))
