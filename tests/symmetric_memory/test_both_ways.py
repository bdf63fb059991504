"""Torch's symmetric memory in this package's primitives: refused, or adopted."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

import triton_dist
from triton_dist import language as dl
from triton_dist.errors import AllocationMismatchError, NotSymmetricError
from triton_dist.runtime.symmetric import is_symmetric, symm_adopt, symm_peer
from triton_dist.sim.simulate import simulate


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
