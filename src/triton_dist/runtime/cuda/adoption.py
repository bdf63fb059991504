"""Memory that another library made, mapped a second time at our addresses: what ``symm_adopt`` does on CUDA, and why it can't at times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...errors import HeapFullError, NotSymmetricError
from ..agreement import agreed
from ..offsets import Range, common_fit
from ..symmetric import address_of
from . import device_memory, driver
from .mapping import close_all, data_base, map_of_peer, share
from .undo import UndoStack, map_memory

if TYPE_CHECKING:
    from .world import CudaWorld


@dataclass(frozen=True)
class Foreign:
    """An allocation of another library. handle: to it, ours to release. size: bytes of its mapping. skip: where the tensor starts in it."""

    handle: Any
    base: int
    size: int
    skip: int

    def release(self) -> None:
        """Give our reference back; what is mapped stays mapped."""
        driver.call("cuMemRelease", self.handle)


def inspect(tensor: torch.Tensor, device: torch.device) -> Foreign:
    """The allocation that a tensor lies in. Raises NotSymmetricError, saying why, if it can't be mapped again and shared."""
    what = f"symm_adopt: a tensor of shape {list(tensor.shape)}"
    advice = "allocate it by triton_dist.symm_empty or symm_zeros, or by torch's symmetric memory with its CUDA backend"
    if tensor.device.type != device.type or tensor.numel() == 0:
        raise NotSymmetricError(f"{what} on {tensor.device} has no GPU memory that could be adopted; {advice}")
    address = address_of(tensor)
    try:
        handle = driver.retain_allocation(address)
    except driver.CudaDriverError as error:
        raise NotSymmetricError(
            f"{what} is in memory of cudaMalloc or of another kind that can't be mapped a second time ({error}); {advice}"
        ) from error
    try:
        if driver.device_of_allocation(handle) != (device.index or 0):
            raise NotSymmetricError(f"{what} is in the memory of another device than this rank's, {device}; {advice}")
        base, size = driver.mapping_of(address)
        if address + _extent(tensor) > base + size:
            raise NotSymmetricError(
                f"{what} is spread over several allocations (torch's expandable segments?): it needs {_extent(tensor)} bytes from "
                f"{address - base} on, in one of {size} bytes; {advice}"
            )
        os.close(driver.export_descriptor(handle))
    except driver.CudaDriverError as error:
        driver.call("cuMemRelease", handle)
        raise NotSymmetricError(
            f"{what} is in memory that the driver does not export as a file descriptor ({error}): it was made for fabric handles only, or "
            f"not to be shared (backends NVSHMEM and NCCL of torch's symmetric memory may do that); {advice}"
        ) from error
    except NotSymmetricError:
        driver.call("cuMemRelease", handle)
        raise
    return Foreign(handle, base, size, address - base)


def adopt_memory(
    foreign: Foreign, world: CudaWorld, ranks: Sequence[int], free: Sequence[Sequence[Range]], unit: int
) -> tuple[int, UndoStack]:
    """Map the allocations of all ``ranks`` at one offset of their slots, here as on each of them. Collective over ``ranks``.

    free: the offsets behind the heap that are free, by rank; multiples of ``unit``, what the driver maps.
    Returns the offset, and what undoes it. Raises the same on every rank, with nothing mapped: HeapFullError, UnreachablePeerError,
    NotSymmetricError.
    """
    size = -(-foreign.size // unit) * unit
    offset = common_fit(free, size)
    if offset is None:
        raise HeapFullError(f"symm_adopt: no room for {size} bytes behind the heap, at an offset that ranks {list(ranks)} all have free")
    device = world.device.index or 0
    undo = UndoStack()

    def gather(value: Any) -> list[Any]:
        return world.gather_among(ranks, value)

    def map_all() -> None:
        try:
            try:
                map_memory(data_base(world.rank) + offset, foreign.size, foreign.handle, device, undo)
            except driver.CudaDriverError as error:
                raise NotSymmetricError(
                    f"symm_adopt: the driver does not map the tensor's allocation of {foreign.size} bytes a second time: {error}"
                ) from error
            for peer, descriptor in shared.items():
                map_of_peer(peer, data_base(peer) + offset, foreign.size, descriptor, device, undo)
        finally:
            close_all(shared)

    try:
        shared = share(foreign.handle, world.rank, ranks, gather)
        agreed(gather, ranks, "mapping adopted memory", map_all)
        agreed(gather, ranks, "looking at adopted memory", lambda: _check_alias(foreign, data_base(world.rank) + offset, world))
    except BaseException:
        undo.run()
        raise
    return offset, undo


def _check_alias(foreign: Foreign, address: int, world: CudaWorld) -> None:
    """See that both addresses are the same bytes: a mapping of a part of an allocation looks like a whole one."""
    world.synchronize()
    theirs, ours = (device_memory.tensor_over(start + foreign.skip, 1, world.device) for start in (foreign.base, address))
    before = int(theirs.item())
    ours.fill_(before ^ 0xFF)
    world.synchronize()
    same = int(theirs.item()) == before ^ 0xFF
    ours.fill_(before)
    world.synchronize()
    if not same or int(theirs.item()) != before:
        raise NotSymmetricError("symm_adopt: the allocation is mapped in part only, so that a second mapping is of other bytes")


def describe_ordinary(tensor: torch.Tensor, device: torch.device) -> str:
    """What a tensor outside of the heap is and what to do about it, to go on after "a tensor of shape ...": for error messages."""
    if tensor.device.type == device.type:
        try:
            driver.call("cuMemRelease", driver.retain_allocation(address_of(tensor)))
        except driver.CudaDriverError:
            pass
        else:
            whose = "of torch's symmetric memory" if _made_by_torch(tensor) else "that another library mapped (a MemPool of torch?)"
            return f"is in memory {whose}, not in this package's heap; pass what triton_dist.symm_adopt(tensor) returns on all ranks"
    return "is in ordinary memory; allocate it by triton_dist.symm_empty or symm_zeros"


def _made_by_torch(tensor: torch.Tensor) -> bool:
    from torch._C import _distributed_c10d as c10d

    asks = getattr(getattr(c10d, "_SymmetricMemory", None), "is_symm_mem_tensor", None)
    try:
        return bool(asks is not None and asks(tensor))
    except RuntimeError:  # no allocator of that device has been registered
        return False


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last one."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
