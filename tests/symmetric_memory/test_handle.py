"""Memory, handles and signals of torch's symmetric memory on simulated ranks."""

import gc

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory

from triton_dist.errors import (
    AllocationMismatchError,
    DataRaceError,
    DeadlockError,
    NotSymmetricError,
    SymmetricMemoryError,
    UnreachablePeerError,
    UnsupportedOperationError,
)
from triton_dist.sim.simulate import simulate


def world() -> str:
    dist.init_process_group("nccl")
    return dist.group.WORLD.group_name


def shared(*size, dtype=torch.float32, group=None):
    """A tensor of this rank and the handle of all ranks' tensors."""
    tensor = symm_mem.empty(*size, dtype=dtype, device="cuda")
    return tensor, symm_mem.rendezvous(tensor, group or world())


def test_buffers_of_all_ranks():
    def fn():
        tensor, handle = shared(4, 3)
        rank, after = handle.rank, (handle.rank + 1) % handle.world_size
        tensor.fill_(rank)
        handle.barrier()
        peer = handle.get_buffer(after, (4, 3), torch.float32)
        assert (peer == after).all() and handle.get_remote_tensor(after, (4, 3), torch.float32).equal(peer)
        assert handle.get_buffer(after, (2,), torch.float32, storage_offset=10).tolist() == [after] * 2
        assert handle.get_buffer(rank, (4, 3), torch.float32).data_ptr() == tensor.data_ptr() == handle.buffer_ptrs[rank]
        assert (handle.world_size, handle.buffer_size, len(set(handle.buffer_ptrs))) == (3, 48, 3)
        assert handle.get_signal_pad(after).dtype == torch.uint32
        assert handle.get_signal_pad(after).numel() * 4 == symm_mem.get_signal_pad_size() == handle.signal_pad_size
        assert min(handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev) >= 1 << 32, "Triton would take it for an int32"
        assert handle.get_signal_pad(after, (2, 2), torch.int16, 4).data_ptr() == handle.signal_pad_ptrs[after] + 8
        knows = getattr(symm_mem, "is_symm_mem_tensor", None)  # newer than torch 2.11
        assert knows is None or (knows(tensor) and not knows(torch.empty(3)))
        assert symm_mem.rendezvous(tensor, dist.group.WORLD).buffer_ptrs == handle.buffer_ptrs
        handle.barrier()

    simulate(fn, 3, check="all")


@pytest.mark.parametrize("seed", range(4))
def test_a_barrier_orders_streams_and_holds_no_host(seed):
    def fn():
        tensor, handle = shared(1, dtype=torch.int32)
        tensor.fill_(0)
        handle.barrier()
        for number in range(1, 4):
            tensor.fill_(number)
            handle.barrier(channel=number)
            total = sum(handle.get_buffer(peer, (1,), torch.int32).clone() for peer in range(handle.world_size))
            handle.barrier(channel=number)
            assert total.item() == number * handle.world_size

    simulate(fn, 4, check="all", seed=seed)


def test_without_a_barrier_a_peers_buffer_races():
    def fn():
        tensor, handle = shared(8)
        tensor.fill_(handle.rank)
        handle.get_buffer(1 - handle.rank, (8,), torch.float32).clone()

    with pytest.raises(DataRaceError, match=r"data race on tensor.* of rank"):
        simulate(fn, 2, check="race")


def test_signals_pass_data_along():
    def fn():
        tensor, handle = shared(8)
        before, after = (handle.rank - 1) % handle.world_size, (handle.rank + 1) % handle.world_size
        handle.get_buffer(after, (8,), torch.float32).copy_(torch.full((8,), float(handle.rank)))
        handle.put_signal(dst_rank=after, channel=3)
        handle.wait_signal(src_rank=before, channel=3)
        return tensor.tolist()

    assert simulate(fn, 3, check="all") == [[2.0] * 8, [0.0] * 8, [1.0] * 8]


def test_a_second_signal_waits_until_the_first_is_taken():
    def fn():
        _, handle = shared(8)
        if handle.rank == 0:
            handle.put_signal(1)
            handle.put_signal(1)
        else:
            handle.wait_signal(0)

    simulate(fn, 2)

    def without_wait():
        _, handle = shared(8)
        for _ in range(2):
            handle.put_signal(1 - handle.rank)

    seen = r"put_signal\(dst_rank=1, channel=0\) of 'tensor', waits for signal_pad of tensor\[0\] of rank 1 == 0; it is 1"
    with pytest.raises(DeadlockError, match=seen):
        simulate(without_wait, 2)


def test_a_barrier_that_a_rank_leaves_out_is_a_deadlock_that_names_it():
    def fn():
        _, handle = shared(8)
        if handle.rank != 2:
            handle.barrier()
            torch.zeros(1).item()

    seen = r"rank 0, stream 0, barrier\(channel=0\) of 'tensor', waits for signal_pad of tensor\[2\] of rank 0 == 1"
    with pytest.raises(DeadlockError, match=seen):
        simulate(fn, 3)


def test_a_rendezvous_that_leaves_ranks_out_names_them():
    def fn():
        group = world()
        buffer = symm_mem.empty(16)
        if dist.get_rank() != 1:
            symm_mem.rendezvous(buffer, group)

    seen = r"rank 0, host: symmetric rendezvous of 'buffer' \(64 bytes\) in group '0': waits for ranks \[1\]"
    with pytest.raises(DeadlockError, match=seen):
        simulate(fn, 3)


def test_pieces_of_different_sizes_do_not_meet():
    def fn():
        group = world()
        buffer = symm_mem.empty(16 + dist.get_rank())
        symm_mem.rendezvous(buffer, group)

    with pytest.raises(AllocationMismatchError, match="64 bytes.*68 bytes|68 bytes.*64 bytes"):
        simulate(fn, 2)


def test_groups_of_some_ranks():
    def fn():
        world()
        rank = dist.get_rank()
        groups = [dist.new_group([0, 2]), dist.new_group([3, 1])]
        mine = groups[rank % 2]
        tensor, handle = shared(4, dtype=torch.int64, group=mine.group_name)
        tensor.fill_(rank)
        handle.barrier()
        seen = [int(handle.get_buffer(place, (1,), torch.int64)) for place in range(2)]
        handle.barrier()
        return handle.rank, seen

    assert simulate(fn, 4, check="all") == [(0, [0, 2]), (0, [1, 3]), (1, [0, 2]), (1, [1, 3])]


def test_ranks_that_allocate_in_different_orders_still_find_each_other():
    def fn():
        group = world()
        if dist.get_rank():
            symm_mem.empty(64)
            kept = symm_mem.empty(32, dtype=torch.int16)  # noqa: F841
        tensor = symm_mem.empty(32, dtype=torch.int16)
        handle = symm_mem.rendezvous(tensor, group)
        tensor.fill_(dist.get_rank() + 1)
        handle.barrier()
        seen = [int(handle.get_buffer(peer, (1,), torch.int16)) for peer in range(2)]
        handle.barrier()
        return seen

    assert simulate(fn, 2) == [[1, 2], [1, 2]]


def test_words_are_set_in_stream_order():
    def fn():
        tensor, handle = shared(6, dtype=torch.uint32)
        _SymmetricMemory.memset32(tensor, offset=1, val=7, count=3)
        _SymmetricMemory.stream_write_value32(tensor, offset=0, val=0xFFFFFFFF)
        handle.memset32(tensor, offset=4, val=8, count=2)
        handle.stream_write_value32(tensor, offset=4, val=9)
        handle.stream_write_value32(tensor, offset=5, val=9)
        for wrong in ((6, 1, 1), (-1, 1, 1), (0, -1, 1), (0, 1, 0), (0, 1 << 32, 1)):
            with pytest.raises(SymmetricMemoryError):
                _SymmetricMemory.memset32(tensor, *wrong)
        for other in (tensor.view(torch.int16), tensor.view(torch.float32), tensor.view(torch.int32), tensor.view(2, 3), tensor[::2]):
            with pytest.raises(SymmetricMemoryError, match=r"of torch.uint32 with one dimension.*view\(torch.uint32\)"):
                _SymmetricMemory.stream_write_value32(other, 0, 1)
            with pytest.raises(SymmetricMemoryError, match=f"not {other.dtype}"):
                handle.memset32(other, 0, 1)
        return tensor.view(torch.int32).tolist()

    assert simulate(fn, 2, check="all") == [[-1, 7, 7, 7, 9, 9]] * 2


def test_a_workspace_grows_by_a_new_one():
    def fn():
        group = world()
        symm_mem.enable_symm_mem_for_group(group)
        assert symm_mem.is_symm_mem_enabled_for_group(group)
        first = symm_mem.get_symm_mem_workspace(group, 100)
        again = symm_mem.get_symm_mem_workspace(group, 50)
        assert again.buffer_ptrs == first.buffer_ptrs and again.buffer_size == 100
        larger = symm_mem.get_symm_mem_workspace(group, 200)
        assert larger.buffer_ptrs != first.buffer_ptrs and larger.buffer_size == 200
        first.barrier(), larger.barrier()

    simulate(fn, 2, check="all")


def test_signal_pads_have_the_size_that_was_asked_for():
    before = symm_mem.get_signal_pad_size()

    def fn():
        group = world()
        symm_mem.set_signal_pad_size(64)
        _, handle = shared(4, group=group)
        assert handle.signal_pad_size == 64 and handle.get_signal_pad(0).numel() == 16
        handle.barrier(channel=7)
        with pytest.raises(SymmetricMemoryError, match="channel 8 of a signal pad of 64 bytes, which has 8 channels for 2 ranks"):
            handle.barrier(channel=8)

    simulate(fn, 2)
    assert symm_mem.get_signal_pad_size() == before


def test_persistent_allocations_come_again():
    def fn():
        def make():
            return _SymmetricMemory.empty_strided_p2p((4,), (1,), torch.float32, torch.device("cuda:0"), alloc_id=5)

        tensor = make()
        address = tensor.data_ptr()
        with pytest.raises(SymmetricMemoryError, match="still in use"):
            make()
        del tensor
        gc.collect()
        assert make().data_ptr() == address

    simulate(fn, 1)


def test_multicast_is_of_gpus():
    def fn():
        return [_SymmetricMemory.has_multicast_support(kind, 0) for kind in (DeviceType.CUDA, DeviceType.CPU)]

    assert simulate(fn, 2, gpu="h100") == [[True, False]] * 2
    assert simulate(fn, 2, gpu="a100") == [[False, False]] * 2


def test_wrong_calls_have_named_errors():
    def fn():
        group = world()
        tensor, handle = shared(4, group=group)
        assert symm_mem.rendezvous(torch.empty(4), group) is None
        with pytest.raises(NotSymmetricError, match="allocate it by torch.distributed._symmetric_memory.empty"):
            torch.ops.symm_mem.one_shot_all_reduce(torch.empty(4), "sum", group)
        with pytest.raises(SymmetricMemoryError, match="no process group of the name 'nobody'"):
            symm_mem.rendezvous(tensor, "nobody")
        with pytest.raises(SymmetricMemoryError, match="no group is given"):
            _SymmetricMemory.rendezvous(tensor)
        with pytest.raises(SymmetricMemoryError, match="end at byte 20, but 'tensor.*' has 16 bytes"):
            handle.get_buffer(0, (5,), torch.float32)
        with pytest.raises(RuntimeError, match="rank 2 is not in the group"):
            handle.get_buffer(2, (1,), torch.float32)
        for rank in (-1, 2):
            with pytest.raises(SymmetricMemoryError, match="not in the group"):
                handle.put_signal(rank)
        with pytest.raises(SymmetricMemoryError, match="make no tensor"):
            _SymmetricMemory.empty_strided_p2p((2, 2), (1,), torch.float32, torch.device("cuda"))
        with pytest.raises(SymmetricMemoryError, match="not one of"):
            symm_mem.set_backend("GLOO")
        with pytest.raises(UnsupportedOperationError, match="no memory pools"):
            symm_mem.get_mem_pool("cuda")

    simulate(fn, 2)


def test_ranks_on_two_nodes_have_no_pointers_to_each_other():
    def fn():
        shared(4)

    with pytest.raises(UnreachablePeerError, match="on different nodes"):
        simulate(fn, 4, num_nodes=2)


def test_everything_is_put_back():
    before = dict(vars(_SymmetricMemory)), dict(vars(symm_mem))
    simulate(lambda: shared(4), 2)
    assert (dict(vars(_SymmetricMemory)), dict(vars(symm_mem))) == before
    with pytest.raises(RuntimeError):
        symm_mem.rendezvous(torch.empty(3), "0")
