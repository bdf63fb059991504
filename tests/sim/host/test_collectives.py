"""torch.distributed among simulated ranks, against the values that each collective must give."""

import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from triton_dist.errors import CollectiveMismatchError, DeadlockError, InvalidArgumentError, NotInitializedError
from triton_dist.runtime import streams, symmetric, world
from triton_dist.sim.simulate import simulate

WORLD_SIZES = (1, 2, 3, 4, 8)
pytestmark = [pytest.mark.host_code, pytest.mark.filterwarnings("ignore::FutureWarning")]


def run(fn, world_size, **options):
    """simulate ``fn(rank, world_size)`` with torch.distributed started."""

    def body():
        dist.init_process_group("nccl")
        return fn(dist.get_rank(), dist.get_world_size())

    return simulate(body, world_size, **options)


@pytest.mark.parametrize("backend", ["nccl", "gloo", "cpu:gloo,cuda:nccl", None])
def test_any_backend(backend):
    def fn():
        dist.init_process_group(backend)
        rank = dist.get_rank()
        assert (rank, dist.get_world_size()) == (world.rank(), world.world_size())
        total = torch.tensor([rank])
        dist.all_reduce(total)
        dist.destroy_process_group()
        assert not dist.is_initialized()
        dist.init_process_group(backend)  # again: sequence numbers and names start afresh
        dist.all_reduce(total)
        return total.item()

    assert simulate(fn, 3) == [9, 9, 9]


@pytest.mark.parametrize("url", ["env://", "tcp://localhost:29500?", "file:///nowhere"])
def test_rendezvous_needs_no_network(url):
    def fn():
        dist.init_process_group("gloo", init_method=url, rank=world.rank(), world_size=world.world_size())
        dist.barrier()
        return dist.get_rank()

    assert simulate(fn, 2) == [0, 1]


def test_wrong_rank_is_refused():
    def fn():
        dist.init_process_group("gloo", rank=0, world_size=2)

    with pytest.raises(InvalidArgumentError, match="told rank 0 of 2, but this is simulated rank 1 of 2"):
        simulate(fn, 2)


OPERATIONS = {
    "SUM": lambda stack: stack.sum(0),
    "PRODUCT": lambda stack: stack.prod(0),
    "MIN": lambda stack: stack.amin(0),
    "MAX": lambda stack: stack.amax(0),
}


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_all_reduce(world_size, dtype):
    inputs = [(torch.arange(5) + rank + 1).to(dtype) for rank in range(world_size)]

    def fn(rank, size):
        results = {}
        for name in OPERATIONS:
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
            results[name] = tensor
        return results

    stack = torch.stack(inputs).double()
    for results in run(fn, world_size):
        for name, operation in OPERATIONS.items():
            torch.testing.assert_close(results[name], operation(stack).to(dtype))


def test_bitwise_and_average():
    def fn(rank, size):
        values = {}
        for name in ("BAND", "BOR", "BXOR"):
            values[name] = torch.tensor([rank + 1])
            dist.all_reduce(values[name], getattr(dist.ReduceOp, name))
        average = torch.tensor([float(rank)])
        dist.all_reduce(average, dist.ReduceOp.AVG)
        flag = torch.tensor([rank == 1])
        dist.all_reduce(flag)
        return [value.item() for value in values.values()], average.item(), flag.item()

    assert run(fn, 3) == [([0, 3, 0], 1.0, True)] * 3


def test_half_precision_sums_round_once():
    def fn(rank, size):
        tensor = torch.tensor([256.0 if rank == 0 else 0.5], dtype=torch.bfloat16)
        dist.all_reduce(tensor)
        return tensor.item()

    assert run(fn, 8) == [260.0] * 8  # 259.5 in float32; one rounding a step would lose every 0.5


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_gathers(world_size):
    def fn(rank, size):
        mine = torch.arange(6.0).view(2, 3) + 10 * rank
        listed = [torch.empty(2, 3) for _ in range(size)]
        dist.all_gather(listed, mine)
        joined, stacked = torch.empty(2 * size, 3), torch.empty(size, 2, 3)
        dist.all_gather_into_tensor(joined, mine)
        dist.all_gather_into_tensor(stacked, mine)
        assert torch.equal(torch.cat(listed), joined)
        assert torch.equal(stacked.view_as(joined), joined)
        uneven = [torch.empty(source + 1) for source in range(size)]
        dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
        assert [part.tolist() for part in uneven] == [[float(source)] * (source + 1) for source in range(size)]
        at_root = [torch.empty(2, 3) for _ in range(size)] if rank == size - 1 else None
        dist.gather(mine, at_root, dst=size - 1)
        if at_root is not None:
            assert torch.equal(torch.cat(at_root), joined)
        return joined

    expected = torch.cat([torch.arange(6.0).view(2, 3) + 10 * rank for rank in range(world_size)])
    for joined in run(fn, world_size):
        assert torch.equal(joined, expected)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_reduce_scatter_broadcast_scatter_reduce(world_size):
    def fn(rank, size):
        rows = torch.arange(size * 2.0) + rank
        single, listed = torch.empty(2), torch.empty(2)
        dist.reduce_scatter_tensor(single, rows)
        dist.reduce_scatter(listed, list(rows.chunk(size)), dist.ReduceOp.MAX)
        base = torch.arange(2.0) + 2 * rank
        assert torch.equal(single, base * size + size * (size - 1) / 2)
        assert torch.equal(listed, base + size - 1)

        tensor = torch.full((3,), float(rank))
        dist.broadcast(tensor, src=size - 1)
        assert tensor.tolist() == [size - 1.0] * 3

        part = torch.empty(2)
        dist.scatter(part, list(torch.arange(size * 2.0).chunk(size)) if rank == 0 else None, src=0)
        assert part.tolist() == [2.0 * rank, 2.0 * rank + 1]

        total = torch.tensor([float(rank)])
        dist.reduce(total, dst=0)
        assert total.item() == (size * (size - 1) / 2 if rank == 0 else rank)

    run(fn, world_size)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_all_to_all(world_size):
    def fn(rank, size):
        sent, received = torch.arange(size * 2) + 100 * rank, torch.empty(size * 2, dtype=torch.int64)
        dist.all_to_all_single(received, sent)
        expected = [100 * source + 2 * rank + i for source in range(size) for i in range(2)]
        assert received.tolist() == expected
        outputs = [torch.empty(2, dtype=torch.int64) for _ in range(size)]
        dist.all_to_all(outputs, list(sent.chunk(size)))
        assert torch.cat(outputs).tolist() == expected
        # Rank r sends d + 1 rows to rank d, so it receives r + 1 rows from each.
        rows = sum(range(1, size + 1))
        sent = torch.arange(rows * 2).view(rows, 2) + 1000 * rank
        received = torch.empty((rank + 1) * size, 2, dtype=torch.int64)
        dist.all_to_all_single(received, sent, [rank + 1] * size, list(range(1, size + 1)))
        start = sum(range(1, rank + 1))
        for source in range(size):
            expected_rows = torch.arange(rows * 2).view(rows, 2)[start : start + rank + 1] + 1000 * source
            assert torch.equal(received[source * (rank + 1) : (source + 1) * (rank + 1)], expected_rows)

    run(fn, world_size)


def test_objects():
    def fn(rank, size):
        gathered, listed = [None] * size, [None] * size if rank == 0 else None
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
        dist.gather_object(rank, listed, dst=0)
        shared = ["from 1", {1: 2}] if rank == 1 else [None, None]
        dist.broadcast_object_list(shared, src=1)
        part = [None]
        dist.scatter_object_list(part, [f"for {i}" for i in range(size)] if rank == 0 else None, src=0)
        return gathered, listed, shared, part[0]

    for rank, (gathered, listed, shared, part) in enumerate(run(fn, 3)):
        assert gathered == [{"rank": i, "text": "x" * i} for i in range(3)]
        assert listed == ([0, 1, 2] if rank == 0 else None)
        assert shared == ["from 1", {1: 2}]
        assert part == f"for {rank}"


def test_coalesced():
    def fn(rank, size):
        tensors = [torch.full((2,), float(rank)), torch.full((3,), float(rank + 1))]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        outputs = [torch.empty(size * 2), torch.empty(size * 3)]
        with dist._coalescing_manager():
            for output, tensor in zip(outputs, tensors, strict=True):
                dist.all_gather_into_tensor(output, tensor)
        scattered = [torch.empty(2), torch.empty(3)]
        with dist._coalescing_manager():
            for output, tensor in zip(scattered, outputs, strict=True):
                dist.reduce_scatter_tensor(output, tensor)
        return [tensor.tolist() for tensor in tensors + scattered]

    assert run(fn, 2) == [[[1.0] * 2, [3.0] * 3, [2.0] * 2, [6.0] * 3]] * 2


def test_async_work():
    def fn(rank, size):
        first, second = torch.tensor([rank]), torch.tensor([rank * 10])
        works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, async_op=True)]
        while not works[1].is_completed():
            pass
        works[0].wait()
        assert works[0].is_success()
        assert works[1].result()[0].item() == second.item()
        assert works[1].get_future().wait()[0] is second
        return first.item(), second.item()

    assert run(fn, 3) == [(3, 30)] * 3


def test_sub_groups():
    def fn(rank, size):
        even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
        mine = even if rank % 2 == 0 else odd
        total = torch.tensor([rank])
        dist.all_reduce(total, group=mine)
        assert dist.get_rank(mine) == rank // 2
        assert dist.get_process_group_ranks(mine) == [rank % 2, rank % 2 + 2]
        own = dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], use_local_synchronization=True)
        pair = torch.tensor([rank])
        dist.all_reduce(pair, group=own)
        dist.destroy_process_group(own)
        return total.item(), pair.item()

    assert run(fn, 4) == [(2, 1), (4, 1), (2, 5), (4, 5)]


def test_device_mesh_and_functional_collectives():
    import torch.distributed._functional_collectives as functional

    def fn():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        rank = dist.get_rank()
        total = torch.tensor([rank])
        dist.all_reduce(total, group=mesh.get_group("tp"))
        summed = functional.all_reduce(torch.tensor([float(rank)]), "sum", mesh["dp"])
        gathered = functional.all_gather_tensor(torch.tensor([rank]), 0, mesh["tp"])
        return total.item(), summed.tolist(), gathered.tolist(), mesh.get_local_rank("tp")

    assert simulate(fn, 4) == [
        (1, [2.0], [0, 1], 0),
        (1, [4.0], [0, 1], 1),
        (5, [2.0], [2, 3], 0),
        (5, [4.0], [2, 3], 1),
    ]


def test_data_parallel_module_and_dtensor():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def fn():
        mesh = init_device_mesh("cpu", (2,))
        rank = dist.get_rank()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        model(torch.full((3, 4), rank + 1.0)).sum().backward()
        whole = torch.arange(8.0).view(4, 2)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        product = (sharded @ sharded.redistribute(mesh, [Replicate()]).t()).full_tensor()
        assert torch.equal(product, whole @ whole.t())
        return model.module.weight.grad.unique().item(), sharded.to_local().tolist()

    assert simulate(fn, 2) == [(4.5, [[0.0, 1.0], [2.0, 3.0]]), (4.5, [[4.0, 5.0], [6.0, 7.0]])]


def test_monitored_barrier():
    def fn():
        dist.init_process_group("gloo")
        dist.monitored_barrier()
        return True

    assert simulate(fn, 3) == [True] * 3


def test_inputs_are_read_in_stream_order():
    """The all-reduce is issued while a fill of its input is still queued behind a signal."""

    def fn(rank, size):
        gate = symmetric.symm_zeros(1, torch.int32)
        opener = streams.Stream()
        streams.wait_value(gate, 1)
        tensor = torch.zeros(3)
        tensor.fill_(rank + 1.0)
        streams.write_value(gate, 1, opener)
        dist.all_reduce(tensor)
        return tensor.tolist()

    for seed in range(4):
        assert run(fn, 3, seed=seed) == [[6.0] * 3] * 3


def test_what_a_group_says_of_itself():
    def fn(rank, size):
        group = dist.group.WORLD
        assert (group.rank(), group.size(), group.name()) == (rank, size, "nccl")
        assert dist.get_backend() == "nccl"
        assert dist.get_backend_config() == "cuda:nccl"
        assert repr(group) == f"SimProcessGroup('{group.group_name}', rank {rank} of ranks [0, 1])"
        outputs = [[torch.empty(2), torch.empty(3)] for _ in range(size)]
        dist.all_gather_coalesced(outputs, [torch.full((2,), float(rank)), torch.full((3,), rank + 10.0)])
        assert [[part[0].item() for part in row] for row in outputs] == [[0.0, 10.0], [1.0, 11.0]]
        with pytest.raises(InvalidArgumentError, match="PREMUL_SUM"):
            group.allreduce([torch.ones(1)], dist.ReduceOp.PREMUL_SUM)
        return dist.all_reduce(torch.ones(1), async_op=True)

    work = run(fn, 2)[0]
    assert work.is_success(), "simulate finishes what was started"


def test_handles_do_not_work_outside():
    kept = run(lambda rank, size: dist.group.WORLD, 2)[0]
    with pytest.raises(NotInitializedError, match="inside simulate"):
        kept.barrier()
    assert not dist.is_initialized()


def test_other_threads_keep_their_torch_distributed(tmp_path):
    """A thread that is no rank gets torch's own process group while a simulation runs."""

    def plain(results):
        dist.distributed_c10d._world = torch_world
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        results.append(type(dist.group.WORLD).__name__)
        dist.destroy_process_group()

    torch_world = dist.distributed_c10d._world

    def fn():
        before, results = dist.distributed_c10d._world, []
        thread = threading.Thread(target=plain, args=(results,))
        thread.start()
        thread.join()
        dist.distributed_c10d._world = before
        return results

    assert simulate(fn, 1) == [["ProcessGroup"]]


def expect_mismatch(fn, *texts, world_size=2):
    with pytest.raises(CollectiveMismatchError) as caught:
        run(fn, world_size)
    for text in texts:
        assert text in str(caught.value)


def test_different_collectives():
    def fn(rank, size):
        if rank == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), src=0)

    expect_mismatch(fn, "rank 0", "rank 1", "all_reduce(sum, float32[2])", "broadcast(root 0, float32[2])", "collective 0")


def test_different_operations_and_roots():
    expect_mismatch(lambda rank, size: dist.all_reduce(torch.ones(1), [dist.ReduceOp.SUM, dist.ReduceOp.MAX][rank]), "sum", "max")
    expect_mismatch(lambda rank, size: dist.broadcast(torch.ones(1), src=rank), "root 0", "root 1")


def test_different_shapes_and_dtypes():
    expect_mismatch(lambda rank, size: dist.all_reduce(torch.ones(2 + rank)), "float32[2]", "float32[3]", "rank 0", "rank 1")
    expect_mismatch(lambda rank, size: dist.all_reduce(torch.ones(2, dtype=[torch.int32, torch.float32][rank])), "int32[2]", "float32[2]")

    def wrong_splits(rank, size):
        dist.all_to_all_single(torch.empty(4), torch.empty(4), [2, 2], [1, 3] if rank == 0 else [2, 2])

    expect_mismatch(wrong_splits, "float32[1]", "float32[2]")


def test_different_sub_groups():
    def fn(rank, size):
        dist.new_group([0, 1] if rank == 0 else [1, 2])

    expect_mismatch(fn, "new_group", "[0, 1]", "[1, 2]", world_size=3)


def test_bad_tensors():
    with pytest.raises(InvalidArgumentError, match="evenly over 2 ranks"):
        run(lambda rank, size: dist.reduce_scatter_tensor(torch.empty(1), torch.empty(3)), 2)
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        run(lambda rank, size: dist.all_gather_into_tensor(torch.empty(2, 4).t(), torch.empty(2, 2)), 2)
    with pytest.raises(InvalidArgumentError, match="add up to the 4 rows"):
        run(lambda rank, size: dist.all_to_all_single(torch.empty(4), torch.empty(4), [1, 1], [2, 2]), 2)


def test_missing_rank_of_a_sub_group_is_named():
    def fn(rank, size):
        group = dist.new_group([0, 2])
        if rank == 0:
            dist.barrier(group)

    with pytest.raises(DeadlockError, match=r"rank 0.*barrier\(\).*rank 2 \(ended\) has not called it"):
        run(fn, 3)


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_ring(world_size):
    def fn(rank, size):
        right, left = (rank + 1) % size, (rank - 1) % size
        received = torch.empty(2)
        requests = [dist.isend(torch.full((2,), float(rank)), right), dist.irecv(received, left)]
        for request in requests:
            request.wait()
        operations = [dist.P2POp(dist.isend, received, right), dist.P2POp(dist.irecv, twice := torch.empty(2), left)]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        return received[0].item(), twice[0].item()

    assert run(fn, world_size) == [((rank - 1) % world_size, (rank - 2) % world_size) for rank in range(world_size)]


def test_tags_order_and_any_source():
    def fn(rank, size):
        if rank == 0:
            late, early, any_ = torch.empty(1), torch.empty(1), torch.empty(1)
            dist.recv(late, 1, tag=2)
            dist.recv(early, 1, tag=1)
            source = dist.recv(any_)
            return late.item(), early.item(), any_.item(), source
        if rank == 1:
            requests = [dist.isend(torch.tensor([float(tag)]), 0, tag=tag) for tag in (1, 2)]
            for request in requests:
                request.wait()
        else:
            dist.send(torch.tensor([7.0]), 0)
        return None

    assert run(fn, 3)[0] == (2.0, 1.0, 7.0, 2)


def test_send_without_receive():
    def fn(backend):
        dist.init_process_group(backend)
        peer = 1 - dist.get_rank()
        dist.send(torch.ones(1), peer)
        received = torch.empty(1)
        dist.recv(received, peer)
        return received.item()

    assert simulate(fn, 2, args=("gloo",)) == [1.0, 1.0]
    with pytest.raises(DeadlockError, match="send to rank 1.*has not received"):
        simulate(fn, 2, args=("nccl",))


def test_send_and_receive_disagree():
    def fn(rank, size):
        dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.ones(3), 0)

    expect_mismatch(fn, "rank 0 sends float32[2]", "rank 1 receives into float32[3]")


def test_a_send_takes_what_its_stream_has_computed():
    def fn():
        dist.init_process_group("nccl")
        gate = symmetric.symm_zeros(1, torch.int32, name="gate")
        if dist.get_rank() == 0:
            streams.wait_value(gate, 1)
            payload = torch.zeros(2)
            payload.fill_(5)
            dist.isend(payload, 1)
            return None
        received = torch.empty(2)
        request = dist.irecv(received, 0)
        streams.write_value(symmetric.symm_peer(gate, 0), 1, streams.Stream())
        request.wait()
        return received.tolist()

    assert simulate(fn, 2) == [None, [5.0, 5.0]]


def test_rows_that_do_not_divide_are_named():
    def fn(rank, size):
        dist.all_to_all_single(torch.empty(3), torch.ones(3))

    with pytest.raises(InvalidArgumentError, match="3 rows of input can't be split evenly over 2 ranks"):
        run(fn, 2)
