"""``torch.ops.symm_mem`` on simulated ranks, against torch in higher precision."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.distributed_c10d import _get_default_store

from triton_dist.errors import (
    CollectiveMismatchError,
    DataRaceError,
    DeadlockError,
    NotSymmetricError,
    OutOfBoundsError,
    SymmetricMemoryError,
    UnsupportedOperationError,
)
from triton_dist.sim.simulate import simulate

ops = torch.ops.symm_mem


def world() -> str:
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    return dist.group.WORLD.group_name


def value(rank, *shape, dtype=torch.float32):
    """What a rank brings; every rank can make every other's."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def symmetric(content, group):
    tensor = symm_mem.empty(content.shape, dtype=content.dtype, device="cuda")
    symm_mem.rendezvous(tensor, group)
    return tensor.copy_(content)


ALL_REDUCES = {
    "one_shot_all_reduce": lambda x, g: ops.one_shot_all_reduce(x, "sum", g),
    "one_shot_all_reduce_out": lambda x, g: ops.one_shot_all_reduce_out(x, "sum", g, torch.empty_like(x)),
    "one_shot_all_reduce_copy": lambda x, g: ops.one_shot_all_reduce_copy(x, x.clone(), "sum", g),
    "one_shot_all_reduce_copy_out": lambda x, g: ops.one_shot_all_reduce_copy_out(x, x.clone(), "sum", g, torch.empty_like(x)),
    "two_shot_all_reduce_": lambda x, g: ops.two_shot_all_reduce_(x, "sum", g),
    "two_shot_all_reduce_out": lambda x, g: ops.two_shot_all_reduce_out(x, "sum", g, torch.empty_like(x)),
    "multimem_all_reduce_": lambda x, g: ops.multimem_all_reduce_(x, "sum", g),
    "multimem_one_shot_all_reduce": lambda x, g: ops.multimem_one_shot_all_reduce(x, "sum", g),
    "multimem_one_shot_all_reduce_out": lambda x, g: ops.multimem_one_shot_all_reduce_out(x, "sum", g, torch.empty_like(x)),
}


@pytest.mark.parametrize("name", sorted(ALL_REDUCES))
@pytest.mark.parametrize("world_size, dtype", [(1, torch.float32), (2, torch.bfloat16), (3, torch.float16), (4, torch.bfloat16)])
def test_all_reduce(name, world_size, dtype):
    if not hasattr(ops, name):
        pytest.skip("not in this torch")

    def fn():
        group = world()
        x = symmetric(value(dist.get_rank(), 5, 8, dtype=dtype), group)
        if "multimem" in name and dtype == torch.float16:
            with pytest.raises(SymmetricMemoryError, match="takes torch.float32 and torch.bfloat16"):
                ALL_REDUCES[name](x, group)
            return wanted
        result = ALL_REDUCES[name](x, group)
        assert name != "two_shot_all_reduce_" or result.data_ptr() == x.data_ptr()
        return result.clone()

    wanted = sum(value(rank, 5, 8, dtype=dtype).double() for rank in range(world_size)).to(dtype)
    results = simulate(fn, world_size, check="all", seed=world_size)
    for result in results:
        torch.testing.assert_close(result, wanted)
        assert torch.equal(result, results[0])


def test_all_reduce_of_a_part_in_a_group_of_some_ranks():
    def fn():
        world()
        pairs = [dist.new_group([0, 3]), dist.new_group([2, 1])]
        group = pairs[0 if dist.get_rank() in (0, 3) else 1].group_name
        x = symmetric(torch.full((10,), float(dist.get_rank())), group)
        return ops.one_shot_all_reduce(x[2:6], "sum", group).tolist(), x.tolist()

    for rank, (result, left) in enumerate(simulate(fn, 4, check="all")):
        assert result == [3.0] * 4 and left == [float(rank)] * 10


def test_an_operator_holds_the_stream_and_not_the_host():
    def fn():
        group = world()
        x = symmetric(torch.ones(4), group)
        first = ops.one_shot_all_reduce(x, "sum", group)
        x.fill_(5)
        second = ops.one_shot_all_reduce(x, "sum", group)
        return first.tolist(), second.tolist()

    for seed in range(4):
        assert simulate(fn, 3, check="all", seed=seed) == [([3.0] * 4, [15.0] * 4)] * 3


def test_a_peer_that_overwrites_what_is_reduced_races():
    def fn():
        group = world()
        x = symmetric(torch.ones(4), group)
        handle = symm_mem.rendezvous(x, group)
        ops.one_shot_all_reduce(x, "sum", group)
        if dist.get_rank() == 0:
            handle.get_buffer(1, (4,), torch.float32).fill_(2)
            handle.put_signal(1)
        else:
            ops.stream_write_value32_(x.view(torch.uint32), 0, 3)
            handle.wait_signal(0)

    with pytest.raises(DataRaceError, match=r"x\[0|tensor\[0"):
        simulate(fn, 2, check="race")


def test_ranks_that_do_not_come_are_named():
    def fn():
        group = world()
        x = symmetric(torch.ones(4), group)
        if dist.get_rank() != 1:
            ops.one_shot_all_reduce(x, "sum", group).tolist()

    seen = r"rank 0, stream 0: symm_mem.one_shot_all_reduce of ranks \[0, 1, 2\], which waits for ranks \[1\]"
    with pytest.raises(DeadlockError, match=seen):
        simulate(fn, 3)


def test_ranks_that_call_different_operators_are_named():
    def fn():
        group = world()
        x = symmetric(torch.ones(4), group)
        (ops.two_shot_all_reduce_ if dist.get_rank() else ops.one_shot_all_reduce)(x, "sum", group).tolist()

    with pytest.raises(CollectiveMismatchError, match="two_shot_all_reduce.*one_shot_all_reduce|one_shot_all_reduce.*two_shot_all_reduce"):
        simulate(fn, 2)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_gathers_and_scatters(world_size):
    def fn():
        group, rank = world(), dist.get_rank()
        rows = torch.stack([value(r, 6, 4) for r in range(world_size)])
        out = symm_mem.empty(world_size * 6, 4)
        symm_mem.rendezvous(out, group)
        assert torch.equal(ops.multimem_all_gather_out(rows[rank], group, out), rows.flatten(0, 1))
        assert torch.equal(ops._low_contention_all_gather(rows[rank], group), rows.flatten(0, 1))
        x = symmetric(value(rank, world_size * 2, world_size * 4), group)
        everyone = sum(value(r, world_size * 2, world_size * 4).double() for r in range(world_size)).float()
        for last, wanted in ((False, everyone.chunk(world_size)[rank]), (True, everyone.chunk(world_size, -1)[rank])):
            got = ops.reduce_scatter_out(x, group, last, torch.empty(wanted.shape))
            torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(ops._low_contention_reduce_scatter(x, "avg", group), everyone.chunk(world_size)[rank] / world_size)
        if hasattr(ops, "multimem_one_shot_reduce_out"):
            into = torch.zeros_like(x)
            ops.multimem_one_shot_reduce_out(x, "sum", world_size - 1, group, into)
            torch.testing.assert_close(into, everyone if rank == world_size - 1 else torch.zeros_like(x))
        peers = ops.get_remote_tensors(x, group) if hasattr(ops, "get_remote_tensors") else ()
        for peer, tensor in enumerate(peers):
            assert torch.equal(tensor, value(peer, world_size * 2, world_size * 4))
        symm_mem.rendezvous(x, group).barrier()

    simulate(fn, world_size, check="all")


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("gather_dim", [0, 1, -1])
def test_all_gather_matmul(world_size, gather_dim):
    def strides(shape):
        """Shards that are gathered along the middle dimension lie one after the other all the same."""
        return (shape[2], shape[0] * shape[2], 1) if gather_dim == 1 else torch.empty(shape).stride()

    def fn():
        group, rank = world(), dist.get_rank()
        shards = [value(r, 4, 6, 8) for r in range(world_size)]
        whole = torch.cat(shards, gather_dim)
        weights = [value(9, whole.shape[-1], 5), value(8, whole.shape[-1], 3)]
        gathered, outs = ops.fused_all_gather_matmul(shards[rank], weights, gather_dim, group)
        assert torch.equal(gathered, whole)
        for out, weight in zip(outs, weights, strict=True):
            torch.testing.assert_close(out, whole @ weight)
            assert out.stride() == strides(out.shape)
        assert gathered.stride() == strides(whole.shape)
        assert ops.fused_all_gather_matmul(shards[rank], weights, gather_dim, group, return_A=False)[0] is None

    simulate(fn, world_size, check="all")


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("reduce_op, scatter_dim", [("sum", 0), ("avg", 1)])
def test_matmul_reduce_scatter(world_size, reduce_op, scatter_dim):
    def fn():
        group, rank = world(), dist.get_rank()
        products = [value(r, 6, 6, 8) @ value(10 + r, 8, 5) for r in range(world_size)]
        wanted = sum(products).chunk(world_size, scatter_dim)[rank] / (world_size if reduce_op == "avg" else 1)
        result = ops.fused_matmul_reduce_scatter(value(rank, 6, 6, 8), value(10 + rank, 8, 5), reduce_op, scatter_dim, group)
        torch.testing.assert_close(result, wanted)

    simulate(fn, world_size, check="all")


def test_scaled_products():
    world_size, fp8 = 2, torch.float8_e4m3fn

    def fn():
        group, rank = world(), dist.get_rank()
        shards = [value(r, 4, 16).to(fp8) for r in range(world_size)]
        scales = [value(20 + r, 4, 1).abs() for r in range(world_size)]
        B, B_scale = value(9, 16, 8).to(fp8), torch.tensor([[0.5]])
        whole = torch.cat([shard.float() * scale for shard, scale in zip(shards, scales, strict=True)])
        A, (out,) = ops.fused_all_gather_scaled_matmul(
            shards[rank], [B], scales[rank], [B_scale], 0, group, [None], [None], [torch.bfloat16], [False]
        )
        assert A.dtype == fp8 and out.dtype == torch.bfloat16
        torch.testing.assert_close(out, (whole @ (B.float() * 0.5)).bfloat16())
        reduced = ops.fused_scaled_matmul_reduce_scatter(
            shards[rank], B, scales[rank], B_scale, "sum", 0, 0, group, [4, 8], out_dtype=torch.float32
        )
        products = [(shard.float() * scale) @ (B.float() * 0.5) for shard, scale in zip(shards, scales, strict=True)]
        torch.testing.assert_close(reduced, sum(products).chunk(world_size)[rank])

    simulate(fn, world_size, check="all")


def splits_of(rank, world_size, experts):
    return torch.tensor([(rank + 2 * number) % 4 for number in range(world_size * experts)])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_all_to_all_of_parts(world_size):
    def fn():
        symm_mem.set_backend("NVSHMEM")
        group, rank = world(), dist.get_rank()
        splits = [splits_of(r, world_size, 1) for r in range(world_size)]
        inputs = [value(r, 12, 3) for r in range(world_size)]
        x, given = symmetric(inputs[rank], group), symmetric(splits[rank], group)
        out, results = symmetric(torch.zeros(12, 3), group), symmetric(torch.zeros(2, world_size, dtype=torch.int64), group)
        ops.all_to_all_vdev(x, out, given, results, group)
        wanted = [torch.split(inputs[r][: int(splits[r].sum())], splits[r].tolist())[rank] for r in range(world_size)]
        assert results[0].tolist() == [len(part) for part in wanted]
        assert torch.equal(out[: sum(map(len, wanted))], torch.cat(wanted))

    simulate(fn, world_size, check="all")


@pytest.mark.parametrize("world_size, experts, align", [(2, 2, None), (2, 3, 8), (3, 2, 4)])
def test_tokens_go_to_experts_and_come_back(world_size, experts, align):
    def fn():
        symm_mem.set_backend("NVSHMEM")
        group, rank, count = world(), dist.get_rank(), world_size * experts
        splits = [splits_of(r, world_size, experts) for r in range(world_size)]
        inputs = [value(r, 24, 2) for r in range(world_size)]
        x, given = symmetric(inputs[rank], group), symmetric(splits[rank], group)
        there, results = symmetric(torch.zeros(80, 2), group), symmetric(torch.zeros(2, count, dtype=torch.int64), group)
        ops.all_to_all_vdev_2d(x, there, given, results, group, align)
        lengths, begins = results.tolist()
        for expert in range(experts):
            assert begins[expert * world_size] % (align or 1) == 0
            for source in range(world_size):
                place, number = expert * world_size + source, rank * experts + expert
                start, length = int(splits[source][:number].sum()), int(splits[source][number])
                assert lengths[place] == length
                assert torch.equal(there[begins[place] : begins[place] + length], inputs[source][start : start + length])
        back, again = symmetric(torch.zeros(24, 2), group), symmetric(torch.zeros(2, count, dtype=torch.int64), group)
        ops.all_to_all_vdev_2d_offset(there, back, results, again, group)
        used = int(splits[rank].sum())
        assert again[0].tolist() == splits[rank].tolist() and torch.equal(back[:used], inputs[rank][:used])

    simulate(fn, world_size, check="all")


def test_a_part_that_does_not_fit_is_out_of_bounds():
    def fn():
        group = world()
        x, given = symmetric(torch.ones(8, 2), group), symmetric(torch.tensor([4, 4]), group)
        out, results = symmetric(torch.zeros(7, 2), group), symmetric(torch.zeros(2, 2, dtype=torch.int64), group)
        ops.all_to_all_vdev(x, out, given, results, group)
        results.tolist()

    with pytest.raises(OutOfBoundsError, match="rows 4 to 8 of 'out' of rank [01], which has 7 rows"):
        simulate(fn, 2)


def test_puts_and_signals_of_a_stream():
    def fn():
        symm_mem.set_backend("NVSHMEM")
        group, rank = world(), dist.get_rank()
        data, word = symmetric(torch.full((4,), float(rank)), group), symmetric(torch.zeros(1, dtype=torch.int64), group)
        symm_mem.rendezvous(data, group).barrier()
        if rank == 0:
            ops.nvshmem_put_with_signal(data, word, 7, 1)
            ops.nvshmem_wait_for_signal(word, 8, 1)
            ops.nvshmem_get(data, 1)
        else:
            ops.nvshmem_wait_for_signal(word, 7, 0)
            data.add_(10)
            ops.nvshmem_put_with_signal(data, word, 8, 0)
        symm_mem.rendezvous(data, group).barrier()
        both = symmetric(torch.arange(4.0) + 10 * rank, group)
        ops.nvshmem_broadcast(both, 1, group)
        swapped = symmetric(torch.zeros(4), group)
        ops.nvshmem_all_to_all(data.copy_(torch.arange(4.0) + 10 * rank), swapped, group)
        return both.tolist(), swapped.tolist()

    first, second = simulate(fn, 2, check="race")
    assert first == ([10.0, 11.0, 12.0, 13.0], [0.0, 1.0, 10.0, 11.0]) and second[1] == [2.0, 3.0, 12.0, 13.0]


def test_tiles_are_reduced_on_their_roots():
    if not hasattr(ops, "multi_root_tile_reduce"):
        pytest.skip("not in this torch")

    def fn():
        symm_mem.set_backend("NVSHMEM")
        group, rank = world(), dist.get_rank()
        x, out = symmetric(value(rank, 8, 8), group), symmetric(torch.zeros(4, 4), group)
        ops.tile_reduce(x[4:, 4:], out, 1, group)
        wanted = sum(value(r, 8, 8) for r in range(2))
        torch.testing.assert_close(out, wanted[4:, 4:] if rank else torch.zeros(4, 4))
        ops.multi_root_tile_reduce([x[:4, :4], x[:4, 4:]], out, [1, 0], group)
        torch.testing.assert_close(out, wanted[:4, :4] if rank else wanted[:4, 4:])

    simulate(fn, 2, check="race")


def test_blocks_are_reduced_on_given_ranks():
    if not hasattr(symm_mem, "reduce_scatter_offset"):
        pytest.skip("not in this torch")

    def fn():
        symm_mem.set_backend("NCCL")
        group, rank = world(), dist.get_rank()
        x, wanted = symmetric(value(rank, 4, 9), group), sum(value(r, 4, 9) for r in range(2))
        outs = [torch.empty(4, 2), torch.empty(4, 3)] if rank else [torch.empty(4, 4)]
        symm_mem.reduce_scatter_offset(x, outs, group, dim=1, offsets=[2, 6, 9], dst_ranks=[1, 0, 1])
        for out, (begin, end) in zip(outs, [(0, 2), (6, 9)] if rank else [(2, 6)], strict=True):
            torch.testing.assert_close(out, wanted[:, begin:end])

    simulate(fn, 2, check="race")


def test_wrong_arguments_have_named_errors():
    def fn():
        group = world()
        x = symmetric(torch.ones(4, 4), group)
        with pytest.raises(NotSymmetricError):
            ops.two_shot_all_reduce_(torch.ones(4), "sum", group)
        with pytest.raises(SymmetricMemoryError, match="only 'sum'"):
            ops.one_shot_all_reduce(x, "avg", group)
        with pytest.raises(SymmetricMemoryError, match="contiguous"):
            ops.one_shot_all_reduce(x[:, :2], "sum", group)
        with pytest.raises(SymmetricMemoryError, match="15 elements of torch.float32 is given where 16"):
            ops.one_shot_all_reduce_out(x, "sum", group, torch.empty(15))
        with pytest.raises(SymmetricMemoryError, match="not divisible by the 3 ranks"):
            ops.reduce_scatter_out(x, group, False, torch.empty(1))
        with pytest.raises(SymmetricMemoryError, match="8 bytes for each rank are not divisible by the 16"):
            ops.reduce_scatter_out(x.view(-1)[:12].view(2, 6), group, True, torch.empty(2, 2))
        with pytest.raises(SymmetricMemoryError, match="not one of"):
            ops.fused_matmul_reduce_scatter(torch.ones(3, 3), torch.ones(3, 3), "max", 0, group)
        with pytest.raises(NotSymmetricError, match="NVSHMEM"):
            ops.nvshmem_put(x, 1)
        with pytest.raises(UnsupportedOperationError, match="_async_input_mm has no meaning"):
            ops._async_input_mm(x, x, x, 0)

    simulate(fn, 3)


def test_a_gpu_without_multicast():
    def fn():
        group = world()
        x = symmetric(torch.ones(4), group)
        assert symm_mem.rendezvous(x, group).multicast_ptr == 0
        with pytest.raises(SymmetricMemoryError, match="no multicast address"):
            ops.multimem_all_reduce_(x, "sum", group)

    simulate(fn, 2, gpu="a100")


@pytest.mark.parametrize(("value", "there"), [("1", False), ("0", True), (None, True)])
def test_multicast_that_the_environment_turns_off(monkeypatch, value, there):
    def fn():
        group = world()
        x = symmetric(torch.ones(4), group)
        supported = _SymmetricMemory.has_multicast_support(DeviceType.CUDA, 0)
        return supported, symm_mem.rendezvous(x, group).multicast_ptr != 0

    if value is None:
        monkeypatch.delenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", raising=False)
    else:
        monkeypatch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", value)
    assert simulate(fn, 2) == [(there, there)] * 2


def test_in_a_run_for_its_time():
    def fn():
        group = world()
        x = symmetric(torch.ones(1 << 20), group)
        ops.one_shot_all_reduce(x, "sum", group)

    simulate(fn, 4, execute="timing")


def test_a_compiler_that_asks_for_shapes_waits_for_nobody():
    def fn():
        group = world()
        rank, tensor = dist.get_rank(), symmetric(torch.zeros(4, 3), group)
        handle, store = symm_mem.rendezvous(tensor, group), _get_default_store()
        if rank == 0:
            mode = FakeTensorMode()
            fake = mode.from_tensor(tensor)
            handle.wait_signal(1)
            with mode:
                peers = ops.get_remote_tensors(fake, group)
                shapes = [tuple(peer.shape) for peer in peers] + [tuple((fake @ fake.T).shape)]
            store.set("compiled", "yes")
            return shapes
        store.wait(["compiled"])
        handle.put_signal(0)
        return None

    assert simulate(fn, 2)[0] == [(4, 3), (4, 3), (4, 4)]
