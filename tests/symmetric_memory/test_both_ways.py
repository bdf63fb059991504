"""Torch's symmetric memory in this package's primitives: refused, or adopted."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

import triton_dist
from triton_dist import language as dl
from triton_dist.errors import AllocationMismatchError, InvalidArgumentError, NotSymmetricError
from triton_dist.runtime.symmetric import is_symmetric, symm_adopt, symm_peer
from triton_dist.sim.simulate import simulate

from .kernels import one_shot_all_reduce_kernel


@triton_dist.jit
def push_kernel(data, flags, value):
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + tl.arange(0, 16), value + tl.zeros([16], tl.float32))
    dl.notify(flags, peer, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, 1, "sys", "acquire")


@triton.jit
def peer_kernel(data, value):
    tl.store(dl.symm_at(data, 1 - dl.rank()), value)


@triton_dist.jit
def notify_kernel(flags):
    dl.notify(flags, 1 - dl.rank(), signal=1, sig_op="set", comm_scope="intra_node")


def torch_tensor(*size, dtype=torch.float32):
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    tensor = symm_mem.empty(*size, dtype=dtype, device="cuda").fill_(0)
    symm_mem.rendezvous(tensor, dist.group.WORLD).barrier()
    return tensor


def test_adopted_memory_is_like_our_own():
    def fn():
        data, flags = torch_tensor(16), torch_tensor(1, dtype=torch.int32)
        handle, rank = symm_mem.rendezvous(data, dist.group.WORLD), dist.get_rank()
        assert not is_symmetric(data)
        mine, words = symm_adopt(data), symm_adopt(flags)
        assert is_symmetric(mine) and mine.data_ptr() == data.data_ptr()
        push_kernel[(1,)](mine, words, float(rank + 1))
        assert data.tolist() == [2.0 - rank] * 16
        handle.barrier()
        return symm_peer(mine, 1 - rank).tolist() == handle.get_buffer(1 - rank, (16,), torch.float32).tolist()

    assert simulate(fn, 2, check="all") == [True, True]


@pytest.mark.parametrize("use", ["symm_at", "notify", "symm_peer", "symm_free"])
def test_memory_that_is_not_adopted_is_refused(use):
    def fn():
        data = torch_tensor(16, dtype=torch.int32)
        if use == "symm_at":
            peer_kernel[(1,)](data, 1)
        elif use == "notify":
            notify_kernel[(1,)](data)
        else:
            (symm_peer if use == "symm_peer" else lambda tensor, rank: triton_dist.runtime.symmetric.symm_free(tensor))(data, 1)

    with pytest.raises(NotSymmetricError, match="'tensor.*torch's symmetric memory.*symm_adopt"):
        simulate(fn, 2)


def test_adoption_of_different_tensors_is_named():
    def fn():
        data = torch_tensor(16)
        symm_adopt(data if dist.get_rank() else data[:8])

    with pytest.raises(AllocationMismatchError, match="symmetric adoption"):
        simulate(fn, 2)


def test_ordinary_memory_is_not_adopted():
    with pytest.raises(NotSymmetricError, match="ordinary memory"):
        simulate(lambda: symm_adopt(torch.empty(3)), 2)


def test_nvshmem_allocates_on_all_ranks_alike():
    def fn():
        dist.init_process_group("nccl")
        symm_mem.set_backend("NVSHMEM")
        symm_mem.empty(4 + dist.get_rank())

    with pytest.raises(AllocationMismatchError, match="all ranks must make the same allocations"):
        simulate(fn, 2)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_our_memory_in_a_kernel_for_torchs(world_size):
    def fn():
        rank = triton_dist.rank()
        data = triton_dist.symm_empty(100)
        handle = triton_dist.symm_handle(data)
        results = []
        for number in range(2):
            data.fill_(rank + number)
            results.append(torch.empty(100))
            one_shot_all_reduce_kernel[(2,)](
                handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, results[-1], 100, handle.rank,
                WORLD=handle.world_size, BLOCK=64, MEET_BEFORE=True, MEET_AFTER=True,
            )  # fmt: skip
        assert handle.get_buffer(rank, (10, 10), torch.float32).data_ptr() == handle.buffer_ptrs[rank] == data.data_ptr()
        triton_dist.synchronize()
        assert not handle.get_signal_pad(rank).view(torch.int32).any()
        return [set(result.tolist()) for result in results]

    total = sum(range(world_size))
    assert simulate(fn, world_size, check="race") == [[{float(total)}, {float(total + world_size)}]] * world_size


def test_a_handle_of_wrong_arguments():
    def fn():
        data = triton_dist.symm_empty((4, 4))
        with pytest.raises(NotSymmetricError):
            triton_dist.symm_handle(torch.empty(4))
        with pytest.raises(InvalidArgumentError, match="must be contiguous"):
            triton_dist.symm_handle(data.T)
        with pytest.raises(InvalidArgumentError, match="signal_pad_size=6"):
            triton_dist.symm_handle(data, signal_pad_size=6)
        handle = triton_dist.symm_handle(data)
        with pytest.raises(InvalidArgumentError, match="end at byte 68 of 64"):
            handle.get_buffer(0, (17,), torch.float32)
        with pytest.raises(InvalidArgumentError, match="rank 2 is not in the group"):
            handle.get_signal_pad(2)

    simulate(fn, 2)
