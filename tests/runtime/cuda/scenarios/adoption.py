"""Memory of other libraries that becomes symmetric, or is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.runtime.cuda.fake_driver import (
    GRANULARITY,
    CUmemAllocationHandleType,
    CUmemAllocationProp,
    CUmemLocationType,
    CUresult,
    FakeDriver,
)
from tests.runtime.cuda.fake_world import HEAP, FakeWorld, cpu_tensor_over, everyone, offset_of
from triton_dist import errors
from triton_dist.runtime.address_map import STRIDE, heap_base
from triton_dist.runtime.symmetric import address_of


def foreign(fake: FakeDriver, size: int = GRANULARITY, mapped: int | None = None, kind: Any = None, device: int = 0) -> torch.Tensor:
    """Memory as another library maps it: int32 over all of ``mapped`` bytes."""
    properties = CUmemAllocationProp()
    properties.location.type, properties.location.id = CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, device
    properties.requestedHandleTypes = kind or CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = fake.cuMemCreate(size, properties, 0)[1]
    mapped = mapped or size
    address = fake.cuMemAddressReserve(mapped, 0, 0, 0)[1]
    fake.cuMemMap(address, min(size, mapped), 0, handle, 0)
    fake.cuMemSetAccess(address, min(size, mapped), [None], 1)
    fake.cuMemRelease(handle)
    return cpu_tensor_over(address, mapped, torch.device("cpu")).view(torch.int32)


def adopted_memory_is_symmetric(fake: FakeDriver) -> None:
    world = FakeWorld()
    rank, size = world.rank, world.world_size
    theirs = foreign(fake)
    before = fake.in_use
    part = theirs[100:120].view(4, 5).t()
    ours = triton_dist.symm_adopt(part)
    assert (ours.shape, ours.stride(), ours.dtype) == (part.shape, part.stride(), part.dtype)
    assert triton_dist.is_symmetric(ours) and not triton_dist.is_symmetric(part)
    assert heap_base(rank) + HEAP < address_of(ours) < heap_base(rank) + STRIDE
    assert len(set(everyone(offset_of(ours)))) == 1
    ours.fill_(rank + 1)
    assert (part == rank + 1).all() and theirs.sum() == 20 * (rank + 1), "the same bytes"
    dist.barrier()
    following = (rank + 1) % size
    assert (triton_dist.symm_peer(ours, following) == following + 1).all()
    dist.barrier()
    triton_dist.symm_peer(ours[1:3], following).fill_(-1)
    dist.barrier()
    assert theirs.sum() == 12 * (rank + 1) - 8
    assert triton_dist.symm_adopt(ours[1:]).data_ptr() == ours[1:].data_ptr(), "symmetric already"
    again = triton_dist.symm_adopt(part)
    assert offset_of(again) != offset_of(ours)
    with pytest.raises(errors.NotSymmetricError, match="symm_peer.*another library.*symm_adopt"):
        triton_dist.symm_peer(part, 0)
    triton_dist.symm_free(again)
    with pytest.raises(errors.UseAfterFreeError, match="'again' was freed"):
        triton_dist.symm_peer(again, 0)
    del ours, again
    triton_dist.symm_empty(1)
    assert fake.in_use == before, "undone when nobody has the tensors"
    kept = triton_dist.symm_adopt(part)
    world.leave()
    assert fake.in_use == (1, 1, 0), "leaving undoes it, too"
    assert theirs.sum() == 12 * (rank + 1) - 8, "the memory itself is not ours to free"
    FakeWorld()
    with pytest.raises(errors.UseAfterFreeError, match="world that has ended"):
        triton_dist.symm_peer(kept, 0)


def adopted_beside_left_over_tensors(fake: FakeDriver) -> None:
    """A tensor of an earlier, larger world lies behind the heap, and does not end where memory can be mapped."""
    world = FakeWorld()
    old = triton_dist.symm_zeros(10 << 20, torch.int8)
    world.leave()
    FakeWorld(4 << 20)
    theirs = foreign(fake)
    ours = triton_dist.symm_adopt(theirs)
    assert not offset_of(old) <= offset_of(ours) < offset_of(old) + old.numel()
    ours.fill_(7)
    assert (theirs == 7).all()


def teams_adopt(fake: FakeDriver) -> None:
    world = FakeWorld()
    if world.rank < 2:
        return
    tensor = triton_dist.symm_adopt(foreign(fake), group=triton_dist.Team(world.rank - 2, (2, 3)))
    triton_dist.symm_peer(tensor, 5 - world.rank).fill_(world.rank)
    triton_dist.symm_zeros(1, group=triton_dist.Team(world.rank - 2, (2, 3)))
    assert (tensor == 5 - world.rank).all()
    with pytest.raises(errors.UnreachablePeerError):
        triton_dist.symm_peer(tensor, 0)


def what_is_not_adopted_is_refused(fake: FakeDriver) -> None:
    """By name, on every rank, also where only one rank has the wrong kind of memory; and nothing stays behind."""
    world = FakeWorld()
    rank, right, wide = world.rank, foreign(fake), foreign(fake, 2 * GRANULARITY)
    fabric = CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC
    cases: list[tuple[torch.Tensor, type[Exception], str]] = [
        (torch.zeros(GRANULARITY // 4, dtype=torch.int32), errors.NotSymmetricError, "rank 1: .*cudaMalloc"),
        (foreign(fake, kind=fabric), errors.NotSymmetricError, "rank 1: .*does not export.*fabric.*NVSHMEM"),
        (foreign(fake, device=3), errors.NotSymmetricError, "rank 1: .*another device"),
        (foreign(fake, mapped=2 * GRANULARITY), errors.NotSymmetricError, r"rank 1: .*several allocations.*4194304 bytes.*2097152"),
        (torch.empty(0), errors.NotSymmetricError, r"rank 1: .*shape \[0\]"),
        (right[:10], errors.AllocationMismatchError, r"rank 1 asked for .*int32\[10\].*rank 0 asked for .*int32\[524288\]"),
        (wide[: right.numel()], errors.AllocationMismatchError, "0 bytes into an allocation of 4194304"),
        (triton_dist.symm_zeros(right.numel(), torch.int32), errors.AllocationMismatchError, "symmetric already"),
        (foreign(fake, 2 * GRANULARITY, mapped=GRANULARITY), None, ""),  # type: ignore[list-item]
    ]
    freed = triton_dist.symm_zeros(3)
    triton_dist.symm_free(freed)
    before = fake.in_use
    for tensor, expected, text in cases:
        if expected is None:
            assert triton_dist.symm_adopt(tensor if rank == 1 else right).numel() == right.numel()  # its first half, mapped from its start
            triton_dist.symm_empty(1)
        else:
            with pytest.raises(expected, match=text):
                triton_dist.symm_adopt(tensor if rank == 1 else right)
        assert fake.in_use == before, text
    with pytest.raises(errors.UseAfterFreeError):
        triton_dist.symm_adopt(freed)
    own, denied = heap_base(rank) // STRIDE, CUresult.CUDA_ERROR_NOT_PERMITTED
    for where, expected, text in (
        (lambda slot: slot == own, errors.NotSymmetricError, "rank 1: .*not map .* a second time"),
        (lambda slot: slot != own, errors.UnreachablePeerError, "rank 1: .*can't reach the memory of rank"),
    ):
        fake.faults = {"cuMemMap": lambda address, *rest, where=where: denied if where(address // STRIDE) else None} if rank == 1 else {}
        with pytest.raises(expected, match=text):
            triton_dist.symm_adopt(right)
        assert fake.in_use == before, text
    # A mapping that is not what it seems: found by looking, not believed.
    fake.faults = {"cuMemMap": lambda address, size, offset, handle, flags: _swap(fake, handle)} if rank == 1 else {}
    with pytest.raises(errors.NotSymmetricError, match="rank 1: .*mapped in part only"):
        triton_dist.symm_adopt(right)
    fake.faults = {}
    assert right.sum() == 0


def _swap(fake: FakeDriver, handle: int) -> None:
    """Put other memory behind a handle just before it is mapped."""
    other = fake.cuMemCreate(GRANULARITY, fake.handles[handle].properties, 0)[1]
    fake.handles[handle], fake.handles[other] = fake.handles[other], fake.handles[handle]
    fake.cuMemRelease(other)


SCENARIOS = [adopted_memory_is_symmetric, adopted_beside_left_over_tensors, teams_adopt, what_is_not_adopted_is_refused]
