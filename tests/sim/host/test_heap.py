"""The symmetric heap: same offsets, when memory is used again, and what goes wrong by name."""

import gc
import mmap

import numpy as np
import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl

from triton_dist.errors import (
    AddressInUseError,
    AllocationMismatchError,
    DeadlockError,
    HeapFullError,
    InvalidArgumentError,
    NotSymmetricError,
    UnreachablePeerError,
    UseAfterFreeError,
)
from triton_dist.runtime import streams, symmetric, world
from triton_dist.runtime.address_map import GUARD_BYTES, heap_base
from triton_dist.runtime.offsets import ALIGNMENT, GAP, OffsetAllocator
from triton_dist.sim import address_space
from triton_dist.sim.simulate import simulate

WORLD_SIZES = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_same_offset_on_every_rank(world_size):
    def fn():
        tensors = [
            symmetric.symm_zeros((3, 5), torch.bfloat16),
            symmetric.symm_empty(7, torch.int64),
            symmetric.symm_zeros((), torch.int32),
        ]
        return [tensor.data_ptr() - heap_base(world.rank()) for tensor in tensors], [tuple(tensor.shape) for tensor in tensors]

    results = simulate(fn, world_size)
    assert all(result == results[0] for result in results)
    offsets, shapes = results[0]
    assert shapes == [(3, 5), (7,), ()]
    assert offsets[0] >= GUARD_BYTES
    assert len(set(offsets)) == 3
    assert all(offset % ALIGNMENT == 0 for offset in offsets)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_peers_see_each_other(world_size):
    def fn():
        rank, size = world.rank(), world.world_size()
        board = symmetric.symm_zeros((size, 4), torch.float32)
        dist.init_process_group("gloo")
        for peer in range(size):
            symmetric.symm_peer(board[rank, 1:3], peer).fill_(rank + 1)
        streams.synchronize()
        dist.barrier()
        return board.clone()

    expected = torch.zeros(world_size, 4)
    expected[:, 1:3] = torch.arange(1.0, world_size + 1)[:, None]
    for board in simulate(fn, world_size):
        assert torch.equal(board, expected)


def test_views_of_peers_keep_strides_and_dtype():
    def fn():
        matrix = symmetric.symm_zeros((4, 6), torch.int16)
        view = matrix.t()[1:5:2, 1:]
        peer = symmetric.symm_peer(view, 1)
        assert (peer.shape, peer.stride(), peer.dtype) == (view.shape, view.stride(), view.dtype)
        assert peer.data_ptr() - heap_base(1) == view.data_ptr() - heap_base(world.rank())
        as_bytes = symmetric.symm_peer(matrix.view(torch.uint8)[2], 0)
        assert as_bytes.data_ptr() - heap_base(0) == matrix[2].data_ptr() - heap_base(world.rank())
        assert symmetric.symm_peer(matrix[:0], 0).shape == (0, 6)

    simulate(fn, 2)


def test_contents():
    def fn():
        zeros, empty, full = symmetric.symm_zeros(5), symmetric.symm_empty(5), symmetric.symm_full(5, 3.0)
        counts = symmetric.symm_empty(2, torch.int32)
        nothing = symmetric.symm_zeros((0, 3))
        symmetric.symm_free(nothing)
        return zeros.tolist(), empty.isnan().all().item(), full.tolist(), counts.tolist()

    assert simulate(fn, 2)[0] == ([0.0] * 5, True, [3.0] * 5, [-1, -1])


def test_memory_is_zero_again_after_reuse():
    def fn():
        address = None
        for _ in range(3):
            tensor = symmetric.symm_zeros(3000)
            assert tensor.abs().sum().item() == 0
            assert address in (None, tensor.data_ptr()), "freed memory is used again"
            address = tensor.data_ptr()
            tensor.fill_(7)
            symmetric.symm_free(tensor)
            del tensor

    simulate(fn, 3)


def test_names():
    class Holder:
        pass

    def fn():
        flags = symmetric.symm_zeros(1)
        holder = Holder()
        holder.counters = symmetric.symm_zeros(1)
        typed: torch.Tensor = symmetric.symm_zeros(1)
        many = [symmetric.symm_zeros(1) for _ in range(2)]
        named = symmetric.symm_zeros(
            1,
            name="inbox",
        )
        first, holder.second = symmetric.symm_zeros(1), symmetric.symm_zeros(1).view(-1)
        # fmt: off
        third = symmetric.symm_zeros(1); fourth = symmetric.symm_zeros(1)  # noqa: E702  (two statements on purpose)
        if fourth.numel(): fifth = symmetric.symm_zeros(1)  # noqa: E701
        # fmt: on
        rest = third, fourth, fifth
        heap = world.require_world("").simulation.heap
        return [heap.find(tensor, "").name for tensor in (flags, holder.counters, typed, *many, named, first, holder.second, *rest)]

    names = simulate(fn, 2)[1]
    assert names == ["flags", "counters", "typed", "many", "many#2", "inbox", "first", "second", "third", "fourth", "fifth"]


def test_out_of_bounds_names_the_tensor():
    def fn():
        flags = symmetric.symm_zeros(2, torch.int32)
        streams.write_value(torch.as_strided(flags, (1,), (1,), 1), 5)
        return flags.tolist()

    assert simulate(fn, 2) == [[0, 5]] * 2


def test_allocation_by_a_group():
    def fn():
        dist.init_process_group("gloo")
        group = dist.new_group([1, 2])
        if world.rank() == 0:
            return None
        tensor = symmetric.symm_zeros(4, group=group)
        with pytest.raises(UnreachablePeerError, match=r"exists on ranks \[1, 2\], not on rank 0"):
            symmetric.symm_peer(tensor, 0)
        symmetric.symm_peer(tensor, 3 - world.rank()).fill_(world.rank())
        dist.barrier(group)
        return tensor.tolist()

    assert simulate(fn, 3) == [None, [2.0] * 4, [1.0] * 4]


def test_group_must_be_a_process_group():
    with pytest.raises(InvalidArgumentError, match="must be a torch.distributed process group"):
        simulate(lambda: symmetric.symm_zeros(4, group=[0, 1]), 2)


def test_returned_tensors_outlive_the_simulation():
    def fn(value):
        return symmetric.symm_full(1000, value)

    kept = simulate(fn, 3, args=(1.0,))
    for value in range(2, 6):
        later = simulate(fn, 4, args=(float(value),))
        assert not {tensor.data_ptr() for tensor in later} & {tensor.data_ptr() for tensor in kept}
        del later
    assert all((tensor == 1.0).all() for tensor in kept)
    view = kept[0][10:20]
    del kept
    gc.collect()
    simulate(fn, 3, args=(9.0,))
    assert (view == 1.0).all(), "a view, or any rank's tensor, keeps the offset"


def test_dropped_tensors_are_freed():
    def fn():
        addresses = {symmetric.symm_empty(100_000).data_ptr() for _ in range(20)}
        return len(addresses)

    # A rank may drop its tensor a little later than another rank asks for the next one.
    assert max(simulate(fn, 3, heap_size=8 << 20)) <= 4


def test_memory_comes_back_without_the_garbage_collector():
    def fn():
        tensor = symmetric.symm_zeros(1000)
        streams.write_value(tensor[:1].view(torch.int32), 1)
        return tensor

    gc.collect()
    gc.disable()
    try:
        addresses = [simulate(fn, 2)[0].data_ptr() for _ in range(3)]
    finally:
        gc.enable()
    assert len(set(addresses)) == 1


def test_freed_offsets_wait_for_the_last_tensor():
    def fn():
        first = symmetric.symm_zeros(8)
        kept = first[2:4] if world.rank() == 1 else None
        address = first.data_ptr()
        symmetric.symm_free(first)
        assert not symmetric.is_symmetric(first)
        del first
        second = symmetric.symm_zeros(8)
        assert second.data_ptr() != address
        return kept

    simulate(fn, 2)


def test_use_after_free():
    def touched():
        words = symmetric.symm_zeros(4, torch.int32)
        symmetric.symm_free(words)
        streams.write_value(words[1], 1)

    with pytest.raises(UseAfterFreeError, match="'words' was freed before"):
        simulate(touched, 2)

    def still_queued():
        gate, words = symmetric.symm_zeros(1, torch.int32), symmetric.symm_zeros(4, torch.int32)
        streams.wait_value(gate, 1)
        streams.write_value(words[1], 1)
        symmetric.symm_free(words)
        streams.write_value(gate, 1, streams.Stream())

    with pytest.raises(UseAfterFreeError, match=r"words\[1\].*freed before"):
        simulate(still_queued, 2)

    def freed_twice():
        words = symmetric.symm_zeros(4, torch.int32)
        symmetric.symm_free(words)
        symmetric.symm_free(words)

    with pytest.raises(UseAfterFreeError, match="'words' was freed before"):
        simulate(freed_twice, 2)

    def peer():
        words = symmetric.symm_zeros(4, torch.int32)
        symmetric.symm_free(words)
        symmetric.symm_peer(words, 0)

    with pytest.raises(UseAfterFreeError, match="'words' was freed before"):
        simulate(peer, 2)


def test_ordinary_tensors_are_not_symmetric():
    def fn(call):
        assert not symmetric.is_symmetric(torch.ones(2))
        call(torch.ones(2))

    for call in (symmetric.symm_free, lambda tensor: symmetric.symm_peer(tensor, 0)):
        with pytest.raises(NotSymmetricError, match=r"shape \[2\] is in ordinary memory"):
            simulate(fn, 2, args=(call,))


@pytest.mark.parametrize("shapes", [((4, 2), (4, 3)), (4, 5)])
def test_different_shapes(shapes):
    def fn():
        symmetric.symm_zeros(shapes[world.rank() == 1])

    with pytest.raises(AllocationMismatchError) as caught:
        simulate(fn, 2)
    text = str(caught.value)
    assert "rank 0" in text
    assert "rank 1" in text
    for shape in shapes:
        assert f"float32{list(shape) if isinstance(shape, tuple) else [shape]}" in text


def test_different_dtypes_and_order():
    def dtypes():
        symmetric.symm_zeros(2, [torch.float32, torch.int32][world.rank()])

    with pytest.raises(AllocationMismatchError, match="int32.*float32|float32.*int32"):
        simulate(dtypes, 2)

    def order():
        tensor = symmetric.symm_zeros(2)
        symmetric.symm_free(tensor) if world.rank() == 0 else symmetric.symm_zeros(2)

    with pytest.raises(AllocationMismatchError, match="symm_free"):
        simulate(order, 2)


def test_rank_that_does_not_allocate():
    def fn():
        if world.rank() != 1:
            symmetric.symm_zeros(3)

    with pytest.raises(DeadlockError, match=r"symmetric allocation of float32\[3\] of zeros: waits for ranks \[1\]"):
        simulate(fn, 3)


def test_heap_full_reaches_every_rank():
    def fn():
        with pytest.raises(HeapFullError, match="larger heap_size"):
            symmetric.symm_zeros(1 << 20, torch.uint8)
        return symmetric.symm_zeros(100, torch.uint8).numel()

    assert simulate(fn, 3, heap_size=1 << 20) == [100] * 3


def test_negative_size_and_wrong_dtype():
    with pytest.raises(InvalidArgumentError, match="negative"):
        simulate(lambda: symmetric.symm_zeros((2, -1)), 1)
    with pytest.raises(InvalidArgumentError, match="torch dtype"):
        simulate(lambda: symmetric.symm_zeros(2, np.float32), 1)


def test_address_in_use():
    rank = 120  # no test maps that rank's heap
    libc = address_space._libc()
    address = address_space.data_base(rank) + (1 << 20)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | address_space._MAP_FIXED_NOREPLACE
    assert libc.mmap(address, mmap.PAGESIZE, mmap.PROT_READ, flags, -1, 0) == address
    try:
        with pytest.raises(AddressInUseError, match=f"rank {rank}'s symmetric heap needs addresses .*anonymous mapping"):
            address_space.ensure_mapped(rank, 2 << 20)
    finally:
        libc.munmap(address, mmap.PAGESIZE)
    address_space.ensure_mapped(rank, 2 << 20)


def test_no_heap_beyond_the_map():
    with pytest.raises(HeapFullError, match="127 ranks"):
        address_space.ensure_mapped(127, 1)
    with pytest.raises(HeapFullError, match="smaller heap_size"):
        address_space.ensure_mapped(0, 1 << 40)


def test_offsets_are_reused_and_merged():
    offsets = OffsetAllocator()
    size = offsets.padded(10_000)
    first, second, third = (offsets.allocate(10_000, 1 << 30) for _ in range(3))
    assert (first, second, third) == (0, size, 2 * size)
    offsets.free(first, 10_000)
    offsets.free(second, 10_000)
    assert offsets.allocate(2 * size - GAP, 1 << 30) == 0, "neighbours that are free are one piece"
    offsets.free(third, 10_000)
    assert offsets.allocate(10_000, 1 << 30) == third


def test_offsets_against_a_model():
    """Random allocations and frees: live ones never overlap and always leave the gap."""
    random = np.random.default_rng(0)
    offsets, live = OffsetAllocator(), {}
    for _ in range(2000):
        if live and random.random() < 0.5:
            offset = list(live)[random.integers(len(live))]
            offsets.free(offset, live.pop(offset))
        else:
            nbytes = int(random.integers(0, 20_000))
            live[offsets.allocate(nbytes, 1 << 30)] = nbytes
        ordered = sorted(live.items())
        for (start, size), (following, _) in zip(ordered, ordered[1:], strict=False):
            assert start + max(size, 1) + GAP <= following
    for offset, nbytes in live.items():
        offsets.free(offset, nbytes)
    assert offsets.allocate(1 << 29, 1 << 30) == 0


def test_tensors_in_garbage_cycles_do_not_fill_the_heap():
    """What only a reference cycle still holds is collected before the heap counts as full."""

    def fn():
        for _ in range(8):
            tensor = symmetric.symm_zeros(300_000, torch.uint8)
            cycle: list = [tensor]
            cycle.append(cycle)
        return True

    assert simulate(fn, 2, heap_size=1 << 20) == [True] * 2


@triton.jit
def increment_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1.0)


def test_tensors_of_an_earlier_simulation_are_not_symmetric_in_a_later_one():
    """The host may read and copy them; a kernel that gets one is told so, not that it is beside some other tensor."""

    def fn():
        return symmetric.symm_zeros(4).fill_(world.rank() + 1.0)

    old = simulate(fn, 2)

    def launch():
        symmetric.symm_zeros(4)
        increment_kernel[(1,)](old[world.rank()])
        streams.synchronize()

    with pytest.raises(UseAfterFreeError, match=r"shape \[4\] is symmetric memory of a simulation that has ended; .* clone"):
        simulate(launch, 2)

    def copy():
        fresh = symmetric.symm_zeros(4)
        fresh.copy_(old[1 - world.rank()])
        mine = old[world.rank()].clone()
        increment_kernel[(1,)](mine)
        return fresh.tolist()[0], mine.tolist()[0]

    assert simulate(copy, 2) == [(2.0, 2.0), (1.0, 3.0)]
    increment_kernel[(1,)](old[0])
    assert old[0].tolist() == [2.0, 1.0, 1.0, 1.0], "outside of a simulation it is an ordinary tensor"
