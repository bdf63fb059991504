"""The symmetric heap on CUDA: every rank's memory mapped at its slot of the constant address map, in every process of one host."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ...errors import AllocationMismatchError, InvalidArgumentError, NotSymmetricError, UnreachablePeerError, UseAfterFreeError
from ..address_map import CONTEXT, GUARD_BYTES, STRIDE, heap_base, rank_of
from ..offsets import OffsetAllocator
from . import driver
from .exchange import exchange_descriptors

if TYPE_CHECKING:
    from .world import CudaWorld


@dataclass(eq=False)
class Block:
    """One symmetric allocation: the same ``offset`` on all ``ranks``. number: its place in the order of allocations."""

    number: int
    offset: int
    nbytes: int
    ranks: tuple[int, ...]
    name: str
    freed: bool = False
    tensors: int = field(default=0)


class _DeviceMemory:
    """Device memory as torch takes it over; what refers to the tensor keeps this object alive."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


class CudaHeap:
    """This process's view of all heaps. Made by all ranks together.

    size: bytes of each rank's heap, rounded up to what the driver maps.
    """

    def __init__(self, world: CudaWorld, size: int) -> None:
        self._world = world
        self._device = world.device.index
        unit = driver.granularity(self._device)
        self.size = -(-size // unit) * unit
        self._offsets = OffsetAllocator()
        self._blocks: dict[int, Block] = {}
        self._count = 0
        self._dead: set[int] = set()
        self._undo: list[Callable[[], Any]] = []
        world.together("mapping the symmetric heap", self._map_all)
        self._page_size = unit

    # ------------------------------------------------------------------ mapping

    def _map_all(self) -> None:
        world = self._world
        own = driver.create(self._device, self.size)
        self._undo.append(lambda: driver.call("cuMemRelease", own))
        descriptor = driver.export_descriptor(own)
        try:
            received = exchange_descriptors(descriptor, world.rank, world.world_size, world.gather)
        finally:
            os.close(descriptor)
        for rank in range(world.world_size):
            handle = own if rank == world.rank else self._import(received[rank])
            self._map(heap_base(rank), GUARD_BYTES, self.size, handle)
        page = driver.create(self._device, driver.granularity(self._device))
        self._undo.append(lambda: driver.call("cuMemRelease", page))
        self._map(CONTEXT, 0, driver.granularity(self._device), page)

    def _import(self, descriptor: int) -> Any:
        try:
            handle = driver.import_descriptor(descriptor)
        finally:
            os.close(descriptor)
        self._undo.append(lambda: driver.call("cuMemRelease", handle))
        return handle

    def _map(self, slot: int, skip: int, size: int, handle: Any) -> None:
        """Reserve a whole slot and map memory ``skip`` bytes behind its start: the guard stays unmapped, so that NULL faults."""
        driver.reserve(slot, STRIDE)
        self._undo.append(lambda: driver.call("cuMemAddressFree", slot, STRIDE))
        driver.map_memory(slot + skip, size, handle, self._device)
        self._undo.append(lambda: driver.call("cuMemUnmap", slot + skip, size))

    def close(self) -> None:
        """Unmap everything. No tensor of the heap may be used afterwards."""
        torch.cuda.synchronize(self._device)
        while self._undo:
            self._undo.pop()()

    # ------------------------------------------------------------------ tensors

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """A uint8 tensor over mapped device memory."""
        return torch.as_tensor(_DeviceMemory(address, nbytes), device=self._world.device)

    def allocate(
        self, world: CudaWorld, ranks: Sequence[int], shape: Sequence[int], dtype: torch.dtype, name: str | None, *, zero: bool
    ) -> torch.Tensor:
        """Allocate the same tensor on every rank; all ranks of the world call it. See ``runtime.symmetric.symm_empty``."""
        sizes = tuple(int(size) for size in shape)
        if any(size < 0 for size in sizes):
            raise InvalidArgumentError(f"shape {sizes} has a negative size")
        asked = f"{str(dtype).removeprefix('torch.')}{list(sizes)}" + (" of zeros" if zero else "")
        self._agree("allocation", asked)
        nbytes = dtype.itemsize
        for size in sizes:
            nbytes *= size
        # Every rank has freed the same blocks, so the allocators agree without a word.
        block = Block(self._count, self._offsets.allocate(nbytes, self.size), nbytes, tuple(ranks), name or f"symm{self._count}")
        self._count += 1
        self._blocks[block.number] = block
        world.publish_blocks(self._blocks.values())
        flat = self._tensor_of(block, world.rank)
        if zero:
            flat.zero_()
            torch.cuda.current_stream(self._device).synchronize()
            world.gather("zeroed")
        return flat.view(dtype).view(sizes)

    def _tensor_of(self, block: Block, rank: int) -> torch.Tensor:
        memory = _DeviceMemory(heap_base(rank) + GUARD_BYTES + block.offset, max(block.nbytes, 1))
        block.tensors += 1
        weakref.finalize(memory, self._dropped, block).atexit = False
        return torch.as_tensor(memory, device=self._world.device)[: block.nbytes]

    def _dropped(self, block: Block) -> None:
        block.tensors -= 1
        if not block.tensors and not block.freed:  # what symm_free freed is gone already
            self._dead.add(block.number)

    def _agree(self, kind: str, asked: str) -> None:
        """Check that all ranks ask for the same, and free what no rank has a tensor of any more."""
        calls = self._world.gather((kind, asked, sorted(self._dead)))
        for rank, call in enumerate(calls):
            if call[:2] != calls[0][:2]:
                raise AllocationMismatchError(
                    f"symmetric {kind}: rank {rank} asked for {call[0]} {call[1]}, but rank 0 asked for {calls[0][0]} {calls[0][1]}; "
                    "all ranks must make the same symmetric allocations and frees in the same order"
                )
        for number in sorted(set.intersection(*(set(call[2]) for call in calls))):
            block = self._blocks.pop(number)
            block.freed = True
            self._offsets.free(block.offset, block.nbytes)
            self._dead.discard(number)

    def lookup(self, address: int) -> Block | None:
        """The block that an address of any rank's heap lies in."""
        rank = rank_of(address)
        if rank is None:
            return None
        offset = address - heap_base(rank) - GUARD_BYTES
        return next((block for block in self._blocks.values() if block.offset <= offset < block.offset + max(block.nbytes, 1)), None)

    def find(self, tensor: torch.Tensor, what: str) -> Block:
        """The block that a tensor lies in. Raises NotSymmetricError, UseAfterFreeError."""
        block = self.lookup(tensor.data_ptr())
        if block is None:
            if rank_of(tensor.data_ptr()) is not None:
                raise UseAfterFreeError(f"{what}: the symmetric tensor was freed before")
            raise NotSymmetricError(f"{what} needs a symmetric tensor, made by triton_dist.symm_empty; this one is an ordinary tensor")
        return block

    def peer(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """A tensor over the same elements in ``rank``'s memory."""
        block = self.find(tensor, "symm_peer")
        if rank not in block.ranks:
            raise UnreachablePeerError(f"symm_peer: rank {rank} has no part of {block.name!r}; its ranks are {list(block.ranks)}")
        owner = rank_of(tensor.data_ptr())
        if owner == rank:
            return tensor
        # The whole block, seen on the peer, with the strides of the tensor from its first element on.
        base = self._tensor_of(block, rank)
        skip = tensor.data_ptr() - heap_base(owner or 0) - GUARD_BYTES - block.offset
        usable = (block.nbytes - skip) // tensor.element_size() * tensor.element_size()
        typed = base[skip : skip + usable].view(tensor.dtype)
        return typed.as_strided(tensor.shape, tensor.stride())

    def free(self, world: CudaWorld, tensor: torch.Tensor) -> None:
        """Free the block of a tensor on all ranks; all ranks call it, and wait for their device first."""
        block = self.find(tensor, "symm_free")
        torch.cuda.synchronize(self._device)
        self._agree("free", f"{block.name!r}")
        block.freed = True
        self._blocks.pop(block.number, None)
        self._dead.discard(block.number)
        self._offsets.free(block.offset, block.nbytes)
        world.publish_blocks(self._blocks.values())
