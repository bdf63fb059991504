"""Allocation by all ranks: offsets, peers, what is wrong with requests."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.runtime.cuda.fake_driver import (
    FakeDriver,
)
from tests.runtime.cuda.fake_world import FakeWorld, everyone, offset_of
from triton_dist import errors
from triton_dist.runtime.address_map import heap_base
from triton_dist.runtime.symmetric import address_of


def allocations_have_one_offset(fake: FakeDriver) -> None:
    world = FakeWorld()
    tensors = [
        triton_dist.symm_zeros((3, 5), torch.bfloat16),
        triton_dist.symm_empty(7, torch.int64),
        triton_dist.symm_zeros((), torch.int32),
        triton_dist.symm_zeros((0, 4)),
    ]
    offsets = [offset_of(tensor) for tensor in tensors]
    assert everyone(offsets) == [offsets] * world.world_size
    assert len(set(offsets)) == 4
    assert all(address_of(tensor) - heap_base(world.rank) == offset for tensor, offset in zip(tensors, offsets, strict=True))
    assert [tuple(tensor.shape) for tensor in tensors] == [(3, 5), (7,), (), (0, 4)]
    with pytest.raises(errors.InvalidArgumentError, match="negative"):
        triton_dist.symm_empty((2, -1) if world.rank == world.world_size - 1 else (2, 1))
    with pytest.raises(errors.HeapFullError, match="larger heap_size"):
        triton_dist.symm_empty((1 << 40, 1 << 40))
    world.leave()
    assert fake.in_use == (0, 0, 0)


def peers_see_each_other(fake: FakeDriver) -> None:
    world = FakeWorld()
    rank, size = world.rank, world.world_size
    board = triton_dist.symm_zeros((size, 6), torch.int32)
    for peer in range(size):
        triton_dist.symm_peer(board.t()[1:4:2, rank], peer).fill_(rank + 1)
    dist.barrier()
    expected = torch.zeros(size, 6, dtype=torch.int32)
    expected[:, 1:4:2] = torch.arange(1, size + 1)[:, None]
    assert torch.equal(board, expected)
    odd = triton_dist.symm_peer(board.view(torch.uint8)[:, 1:], (rank + 1) % size)
    assert offset_of(odd) == offset_of(board) + 1 and odd.stride() == (24, 1)
    assert triton_dist.is_symmetric(odd)
    assert not triton_dist.is_symmetric(torch.zeros(1))


def mismatches_name_two_ranks(fake: FakeDriver) -> None:
    world = FakeWorld()
    last = world.world_size - 1
    with pytest.raises(errors.AllocationMismatchError) as caught:
        triton_dist.symm_empty((4, 2 + (world.rank == last)), torch.float16)
    assert f"rank {last} asked for allocation float16[4, 3], but rank 0 asked for allocation float16[4, 2]" in str(caught.value)
    tensor = triton_dist.symm_empty(4)
    with pytest.raises(errors.AllocationMismatchError, match="asked for free 'tensor'"):
        triton_dist.symm_free(tensor) if world.rank == 0 else triton_dist.symm_empty(4)
    named = triton_dist.symm_empty(4, name=f"of rank {world.rank}")
    triton_dist.symm_free(named)  # names are for people, ranks need not agree on them
    # Nothing has come of the mistakes: the ranks still agree.
    assert len(set(everyone(offset_of(triton_dist.symm_empty(4))))) == 1


def heaps_that_differ_are_noticed(fake: FakeDriver) -> None:
    """An allocator that has gone astray on one rank is found at the next call."""
    world = FakeWorld()
    kept = triton_dist.symm_empty(100)
    if world.rank == 1:
        world.heap.lookup(address_of(kept)).offset += 4096
    with pytest.raises(errors.AllocationMismatchError, match=r"heaps differ: .* rank 1 was float32\[100\] at .* rank 0 was float32"):
        triton_dist.symm_empty(5)


def requests_are_checked(fake: FakeDriver) -> None:
    FakeWorld()
    for shape in (2.5, (1, "2"), None):
        with pytest.raises(errors.InvalidArgumentError, match="integer"):
            triton_dist.symm_empty(shape)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="64 bits"):
        triton_dist.symm_empty(1 << 63)


SCENARIOS = [
    allocations_have_one_offset,
    peers_see_each_other,
    mismatches_name_two_ranks,
    heaps_that_differ_are_noticed,
    requests_are_checked,
]
