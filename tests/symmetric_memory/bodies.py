"""What ranks do with torch's symmetric memory, on every kind of simulated rank: bodies for the fixture ``world``."""

from __future__ import annotations

import gc

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.distributed._symmetric_memory._nvshmem_triton as nvshmem
import triton
from torch._C._distributed_c10d import _SymmetricMemory

import triton_dist
from triton_dist.errors import (
    AllocationMismatchError,
    CollectiveMismatchError,
    NotSymmetricError,
    SymmetricMemoryError,
    UnsupportedOperationError,
)

from .kernels import gather_by_ptx_kernel, one_shot_all_reduce_kernel

ops = torch.ops.symm_mem


def world() -> str:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return dist.group.WORLD.group_name


def shared(*size, dtype=torch.float32, group=None):
    """A tensor of this rank and the handle of all ranks' tensors."""
    group = group or world()
    tensor = symm_mem.empty(*size, dtype=dtype, device=triton_dist.device())
    return tensor, symm_mem.rendezvous(tensor, group)


def value(rank, *shape, dtype=torch.float32):
    """What a rank brings; every rank can make every other's."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank), dtype=torch.float64).to(dtype)


def refuses(error, words, call, *args):
    """``call`` raises this error, with these words in it."""
    try:
        call(*args)
    except error as raised:
        assert words in str(raised), raised
        return
    raise AssertionError(f"{call} did not raise {error.__name__}")


def buffers_and_pads():
    """What a handle gives, and who sees whose bytes."""
    tensor, handle = shared(4, 3)
    rank, size = handle.rank, handle.world_size
    after = (rank + 1) % size
    tensor.fill_(rank)
    handle.barrier()
    peer = handle.get_buffer(after, (4, 3), torch.float32)
    triton_dist.synchronize()
    assert (peer == after).all() and handle.get_remote_tensor(after, (4, 3), torch.float32).equal(peer)
    assert handle.get_buffer(after, (2,), torch.float32, storage_offset=10).tolist() == [after] * 2
    assert handle.get_buffer(rank, (4, 3), torch.float32).data_ptr() == tensor.data_ptr() == handle.buffer_ptrs[rank]
    assert (size, handle.buffer_size, len(set(handle.buffer_ptrs))) == (dist.get_world_size(), 48, size)
    assert handle.get_signal_pad(after).numel() * 4 == symm_mem.get_signal_pad_size() == handle.signal_pad_size
    knows = getattr(symm_mem, "is_symm_mem_tensor", None)  # newer than torch 2.11
    assert knows is None or (knows(tensor) and not knows(torch.empty(3)))
    assert symm_mem.rendezvous(tensor, dist.group.WORLD).buffer_ptrs == handle.buffer_ptrs
    assert symm_mem.rendezvous(torch.empty(3), dist.group.WORLD) is None
    handle.barrier()
    triton_dist.synchronize()
    assert handle.get_signal_pad(rank).view(torch.int32).eq(0).all()


def signals_in_a_ring():
    """Each rank writes to the next one and signals, several times; a word is set by stream, too."""
    tensor, handle = shared(8, dtype=torch.int32)
    rank, size = handle.rank, handle.world_size
    after, before = (rank + 1) % size, (rank - 1) % size
    word, words = shared(2, dtype=torch.int32)
    word.zero_()
    words.barrier()
    for number in range(5):
        handle.get_buffer(after, (8,), torch.int32).fill_(100 * number + rank)
        handle.put_signal(after, channel=1)
        handle.wait_signal(before, channel=1)
        assert tensor.tolist() == [100 * number + before] * 8
        handle.barrier()
    words.stream_write_value32(words.get_buffer(after, (2,), torch.uint32), 1, 7 + rank)
    words.memset32(word.view(torch.uint32), 0, 5)
    words.barrier()
    assert word.tolist() == [5, 7 + before]
    words.barrier()


def one_shot_kernel(dtype=torch.bfloat16, count=1000):
    """A kernel with pointer tables and signals in the pads."""
    tensor, handle = shared(count, dtype=dtype)
    rank, size = handle.rank, handle.world_size
    result = torch.empty(count, dtype=dtype, device=triton_dist.device())
    for number in range(3):
        tensor.copy_(value(rank + 10 * number, count, dtype=dtype))
        grid = (triton.cdiv(count, 256),)
        one_shot_all_reduce_kernel[grid](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, result, count, rank, size, BLOCK=256, MEET_BEFORE=True, MEET_AFTER=True
        )
        wanted = sum(value(peer + 10 * number, count, dtype=dtype).float() for peer in range(size)).to(dtype)
        torch.testing.assert_close(result, wanted, rtol=1e-2, atol=1e-2)


def inline_ptx():
    """Signals and multicast stores by inline PTX."""
    tensor, handle = shared(16)
    size, result = handle.world_size, torch.empty(2 * handle.world_size, device=triton_dist.device())
    tables = handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.multicast_ptr
    gather_by_ptx_kernel[(1,)](*tables, result, handle.rank, size)
    assert result.tolist() == [40.0 + peer for peer in range(size)] + [80.0 + peer for peer in range(size)]
    handle.barrier()


def collectives():
    """Operators of torch.ops.symm_mem against sums in double precision."""
    group, rank, size = world(), dist.get_rank(), dist.get_world_size()
    mine, wanted = value(rank, 4 * size, 5), sum(value(peer, 4 * size, 5, dtype=torch.float64) for peer in range(size)).float()
    tensor, handle = shared(4 * size, 5)
    for name in ("one_shot_all_reduce", "two_shot_all_reduce_", "multimem_all_reduce_"):
        tensor.copy_(mine)
        handle.barrier()
        torch.testing.assert_close(getattr(ops, name)(tensor, "sum", group), wanted)
    tensor.copy_(mine)
    part = torch.empty(4, 5)
    ops.reduce_scatter_out(tensor, group, False, part)
    torch.testing.assert_close(part, wanted[4 * rank : 4 * rank + 4])
    ops.multimem_all_gather_out(part, group, tensor)
    torch.testing.assert_close(tensor, wanted)
    gathered = ops._low_contention_all_gather(mine, group)
    assert gathered.equal(torch.cat([value(peer, 4 * size, 5) for peer in range(size)]))


def products():
    """The fused operators."""
    group, rank, size = world(), dist.get_rank(), dist.get_world_size()
    a, b = value(rank, 4, 6), value(99, 6, 7)
    whole = torch.cat([value(peer, 4, 6) for peer in range(size)])
    gathered, (product,) = ops.fused_all_gather_matmul(a, [b], gather_dim=0, group_name=group)
    assert gathered.equal(whole)
    torch.testing.assert_close(product, whole @ b)
    tall = value(rank, 2 * size, 6)
    total = sum(value(peer, 2 * size, 6) @ b for peer in range(size))
    scattered = ops.fused_matmul_reduce_scatter(tall, b, "sum", scatter_dim=0, group_name=group)
    torch.testing.assert_close(scattered, total[2 * rank : 2 * rank + 2], rtol=1e-4, atol=1e-4)


def splits_of_all_to_all():
    """Rows whose numbers lie in device memory."""
    group, rank, size = world(), dist.get_rank(), dist.get_world_size()
    rows, _ = shared(4 * size, 2)
    out, _ = shared(4 * size, 2)
    numbers, _ = shared(size, dtype=torch.int64)
    results, _ = shared(2, size, dtype=torch.int64)
    sent = [[1 + (source + target) % 3 for target in range(size)] for source in range(size)]
    numbers.copy_(torch.tensor(sent[rank]))
    rows.copy_(torch.arange(8 * size).view(-1, 2) + 1000 * rank)
    ops.all_to_all_vdev(rows, out, numbers, results, group)
    got = [source[rank] for source in sent]
    assert results.tolist() == [got, [sum(got[:place]) for place in range(size)]]
    starts = [sum(source[:rank]) for source in sent]
    wanted = [1000 * source + 2 * row for source in range(size) for row in range(starts[source], starts[source] + got[source])]
    assert out[: sum(got), 0].tolist() == wanted


def sub_groups():
    """Two groups of half of the ranks each, which meet by themselves, and memory that only one of them allocates."""
    world()
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(size // 2))), dist.new_group(list(range(size // 2, size)))]
    second = rank >= size // 2
    group = groups[second].group_name
    if second:
        shared(3, group=group)
    tensor, handle = shared(5, group=group)
    assert (handle.rank, handle.world_size) == (rank % (size // 2), size // 2)
    tensor.copy_(value(rank, 5))
    result = ops.one_shot_all_reduce(tensor, "sum", group)
    first = size // 2 * second
    torch.testing.assert_close(result, sum(value(peer, 5) for peer in range(first, first + size // 2)))


def fresh_world():
    """Behind a body after which the ranks' heaps differ."""
    gc.collect()
    triton_dist.finalize()
    triton_dist.initialize(heap_size=64 << 20)


def memory_comes_back(nbytes):
    """More allocations than the heap has room for at once, each with a rendezvous."""
    for number in range(6):
        tensor, handle = shared(nbytes, dtype=torch.uint8)
        tensor.fill_(number)
        handle.barrier()
        assert handle.get_buffer((handle.rank + 1) % handle.world_size, (1,), torch.uint8).item() == number
        handle.barrier()
        del tensor, handle
        gc.collect()


@triton.jit
def put_signal_kernel(dest, source, nbytes, word, value, operation, peer):
    nvshmem.putmem_signal_block(dest, source, nbytes, word, value, operation, peer)


@triton.jit
def signal_wait_kernel(word, comparison, value):
    nvshmem.signal_wait_until(word, comparison, value)


def nvshmem_functions():
    """torch's Triton functions for NVSHMEM: a put with a signal around a ring."""
    world()
    symm_mem.set_backend("NVSHMEM")
    (source, _), (dest, handle), (word, _) = shared(64), shared(64), shared(1, dtype=torch.int64)
    rank, size = handle.rank, handle.world_size
    source.fill_(rank + 1)
    word.zero_()
    handle.barrier()
    nvshmem.requires_nvshmem(put_signal_kernel)[(1,)](dest, source, 256, word, 5, 9, (rank + 1) % size)
    signal_wait_kernel[(1,)](word, 0, 5)
    assert dest.tolist() == [float((rank - 1) % size + 1)] * 64
    handle.barrier()
    symm_mem.set_backend("CUDA")


def bad_input():
    """Named errors, alike on all ranks."""
    group = world()
    tensor, handle = shared(4)
    rank, size = handle.rank, handle.world_size
    refuses(SymmetricMemoryError, "channel 100000", handle.barrier, 100000)
    refuses(SymmetricMemoryError, "is not in the group", handle.put_signal, size)
    refuses(SymmetricMemoryError, "end at byte", handle.get_buffer, 0, (5,), torch.float32)
    refuses(SymmetricMemoryError, "no group is given", _SymmetricMemory.rendezvous, symm_mem.empty(2, device="cpu"))
    refuses(NotSymmetricError, "not in torch's symmetric memory", ops.one_shot_all_reduce, torch.empty(4), "sum", group)
    refuses(NotSymmetricError, "torch's symmetric memory", triton_dist.symm_peer, tensor, 0)
    refuses(UnsupportedOperationError, "memory pools", symm_mem.get_mem_pool, torch.device("cpu"))
    refuses(SymmetricMemoryError, "is not one of", symm_mem.set_backend, "RCCL")
    tensor.fill_(rank)
    assert ops.one_shot_all_reduce(tensor, "sum", group)[0] == sum(range(size))


DTYPES = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.bool, torch.complex64,
)  # fmt: skip


def every_dtype():
    """Operators that move data take every dtype; those that reduce by multicast refuse by name what torch's do not take."""
    group, rank, size = world(), dist.get_rank(), dist.get_world_size()
    for dtype in DTYPES:
        brought = [torch.full((8,), peer + 1, dtype=torch.float32).to(dtype) for peer in range(size)]
        tensor, handle = shared(8, dtype=dtype)
        tensor.copy_(brought[rank])
        handle.barrier()
        gathered = ops._low_contention_all_gather(tensor, group)
        assert gathered.view(torch.uint8).equal(torch.cat([one.view(torch.uint8) for one in brought])), dtype
        for name in ("one_shot_all_reduce", "multimem_one_shot_all_reduce"):
            if dtype in (torch.float32, torch.bfloat16) or name == "one_shot_all_reduce":
                wanted = torch.full((8,), sum(range(1, size + 1)), dtype=torch.float32).to(dtype)
                assert getattr(ops, name)(tensor, "sum", group).view(torch.uint8).equal(wanted.view(torch.uint8)), (name, dtype)
            else:
                refuses(SymmetricMemoryError, "takes torch.float32 and torch.bfloat16", getattr(ops, name), tensor, "sum", group)
        handle.barrier()


def arguments_of_the_handle():
    """Named errors for what is no number, no shape, no dtype."""
    group = world()
    tensor, handle = shared(4)
    for wrong in ("x", 1.5, None, [0], tensor):
        refuses(SymmetricMemoryError, "is not a whole number", handle.barrier, wrong)
        for call in (handle.put_signal, handle.wait_signal):
            refuses(SymmetricMemoryError, "is not a whole number", call, wrong)
            refuses(SymmetricMemoryError, "is not a whole number", call, 0, wrong)
        for call in (handle.get_buffer, handle.get_remote_tensor, handle.get_signal_pad):
            refuses(SymmetricMemoryError, "is not a whole number", call, wrong, (4,), torch.float32)
            refuses(SymmetricMemoryError, "is not a whole number", call, 0, (wrong,), torch.float32)
        if wrong is not None:
            refuses(SymmetricMemoryError, "no dtype of torch", handle.get_buffer, 0, (4,), wrong)
            refuses(SymmetricMemoryError, "is not a whole number", handle.get_buffer, 0, (4,), torch.float32, wrong)
        refuses(SymmetricMemoryError, "is not a whole number", symm_mem.get_symm_mem_workspace, group, wrong)
        for call in (handle.memset32, handle.stream_write_value32):
            refuses(SymmetricMemoryError, "is not a whole number", call, tensor.view(torch.uint32), wrong, 1)
            refuses(SymmetricMemoryError, "is not a whole number", call, tensor.view(torch.uint32), 0, wrong)
            refuses(SymmetricMemoryError, "takes a tensor", call, 5, 0, 1)
    for call in (handle.get_buffer, handle.get_remote_tensor, handle.get_signal_pad):
        refuses(SymmetricMemoryError, "negative size", call, 0, (-4,), torch.float32)
        refuses(SymmetricMemoryError, "not a sequence", call, 0, 4, torch.float32)
        refuses(SymmetricMemoryError, "is not in the group", call, -1, (4,), torch.float32)
    refuses(SymmetricMemoryError, "negative size", symm_mem.empty, -2)
    refuses(SymmetricMemoryError, "negative size", symm_mem.empty, (2, -2))
    refuses(SymmetricMemoryError, "is not a whole number", symm_mem.empty, 1.5)
    of_nccl = {"put_signal": (tensor, handle, 0), "wait_signal": (handle, 0), "reduce_scatter_offset": (tensor, [tensor], group)}
    for name, arguments in of_nccl.items():
        if hasattr(symm_mem, name):
            refuses(SymmetricMemoryError, 'backend "NCCL"', getattr(symm_mem, name), *arguments)
    handle.barrier()


def arguments_of_operators():
    """Shapes, dtypes and lists that do not fit, on all ranks alike."""
    group, size = world(), dist.get_world_size()
    tensor, _ = shared(4)
    flat, other = torch.empty(2, 2), torch.empty(4)
    for name in ("one_shot_all_reduce_out", "multimem_one_shot_all_reduce_out", "two_shot_all_reduce_out"):
        refuses(SymmetricMemoryError, "the shapes of input and output differ", getattr(ops, name), tensor, "sum", group, flat)
    refuses(SymmetricMemoryError, "shapes", ops.one_shot_all_reduce_copy_out, tensor, other, "sum", group, flat)
    odd, _ = shared(3, dtype=torch.bfloat16)
    for name in ("multimem_all_reduce_", "multimem_one_shot_all_reduce"):
        refuses(SymmetricMemoryError, "multiples of 4", getattr(ops, name), odd, "sum", group)
    refuses(SymmetricMemoryError, "multiples of 4", ops.multimem_one_shot_reduce_out, odd, "sum", 0, group, torch.empty_like(odd))
    a, b, half = torch.ones(2 * size, 8), torch.ones(8, 4), torch.ones(8, 4, dtype=torch.bfloat16)
    gather, scatter = ops.fused_all_gather_matmul, ops.fused_matmul_reduce_scatter
    for dim in (9, 2, -3):
        refuses(SymmetricMemoryError, f"gather_dim={dim} is none of", gather, a, [b], dim, group)
        refuses(SymmetricMemoryError, f"scatter_dim={dim} is none of", scatter, a, b, "sum", dim, group)
    for wrong in (torch.ones(7, 4), torch.ones(8), torch.ones(2, 8, 4)):
        refuses(SymmetricMemoryError, "have no product", gather, a, [b, wrong], 0, group)
        refuses(SymmetricMemoryError, "have no product", scatter, a, wrong, "sum", 0, group)
    refuses(SymmetricMemoryError, "one dtype", gather, a, [half], 0, group)
    refuses(SymmetricMemoryError, "one dtype", scatter, a, half, "sum", 0, group)
    small, other, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones(1)

    def call(scales=(one,), dtypes=(torch.float32,), biases=(None,), dim=0):
        scaled = ops.fused_all_gather_scaled_matmul
        return scaled(small, [other], one, list(scales), dim, group, list(biases), [None], list(dtypes), [False])

    refuses(SymmetricMemoryError, "out_dtype", call, (one,), (torch.int32,))
    refuses(SymmetricMemoryError, "0 B_scales for 1", call, ())
    refuses(SymmetricMemoryError, "0 out_dtypes for 1", call, (one,), ())
    refuses(SymmetricMemoryError, "0 biases for 1", call, (one,), (torch.float32,), ())
    refuses(SymmetricMemoryError, "B_scale of shape", call, (torch.ones(3),))
    refuses(SymmetricMemoryError, "bias of shape", call, (one,), (torch.float32,), (torch.ones(3),))
    refuses(SymmetricMemoryError, "gather_dim=5", call, (one,), (torch.float32,), (None,), 5)
    assert call()[1][0].shape == (2 * size * size, 4)


def sizes_that_differ():
    shared(4 + dist.get_rank() if dist.is_initialized() else 4)


def rendezvous_of_other_sizes():
    world()
    refuses(AllocationMismatchError, "all ranks must make the same", sizes_that_differ)


def operators_that_differ():
    group = world()
    tensor, _ = shared(4)
    name = "one_shot_all_reduce" if dist.get_rank() == 0 else "two_shot_all_reduce_"
    refuses(CollectiveMismatchError, "all ranks of the group must call the same", getattr(ops, name), tensor, "sum", group)


def signal_that_never_comes():
    _, handle = shared(4)
    handle.wait_signal(1 - handle.rank, channel=2 + handle.rank)
    triton_dist.synchronize()


def rank_that_stays_away():
    _, handle = shared(4)
    tensor = symm_mem.empty(4, device=triton_dist.device())
    if handle.rank:
        symm_mem.rendezvous(tensor, dist.group.WORLD)
    else:
        handle.wait_signal(1)
    triton_dist.synchronize()
