"""The constant address map of a process on CUDA: which memory is mapped in which slot, made by all ranks together and undone as a whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...errors import HeapFullError, UnreachablePeerError
from ..address_map import CONTEXT, GUARD_BYTES, STRIDE, heap_base
from ..agreement import Gather, agreed
from . import driver, lone_page
from .exchange import exchange_descriptors
from .undo import UndoStack, map_memory


def data_base(rank: int) -> int:
    """Address of offset 0 of ``rank``'s heap, just behind the unmapped guard."""
    return heap_base(rank) + GUARD_BYTES


class AddressMap:
    """The slots of this process. Made by all ranks together: on return everything is mapped, on an error nothing is.

    Each step is agreed on by all ranks before the next one, so that nobody waits for a rank that has failed.

    device: ordinal of this rank's GPU. heap_size: bytes of each rank's heap, a multiple of what the driver maps. gather: among all ranks.
    Raises the same error on every rank: HeapFullError, AddressInUseError, UnreachablePeerError, CudaDriverError.
    """

    def __init__(self, device: int, rank: int, world_size: int, heap_size: int, gather: Gather) -> None:
        self._device = device
        self._rank = rank
        self._heap_size = heap_size
        self._undo = UndoStack()
        self._undo.push(lone_page.take_back)  # when the memory is free again
        ranks = range(world_size)
        try:
            handles: list[Any] = []
            agreed(gather, ranks, "allocating the symmetric heap", lambda: self._create(handles))
            own, page = handles
            shared = share(own, rank, ranks, gather)
            agreed(gather, ranks, "mapping the symmetric heap", lambda: self._map_all(own, page, shared))
        except BaseException:
            self._undo.run()
            raise

    def _create(self, handles: list[Any]) -> None:
        """Fill ``handles``: the memory of this rank's heap and of its context page."""
        for size in (self._heap_size, driver.granularity(self._device)):
            handles.append(driver.create(self._device, size))
            self._undo.call("cuMemRelease", handles[-1])

    def _map_all(self, own: Any, page: Any, shared: dict[int, int]) -> None:
        try:
            lone_page.give_way()
            self._reserve(CONTEXT)
            map_memory(CONTEXT, driver.granularity(self._device), page, self._device, self._undo)
            self._reserve(heap_base(self._rank))
            map_memory(data_base(self._rank), self._heap_size, own, self._device, self._undo)
            for peer, descriptor in shared.items():
                self._reserve(heap_base(peer))
                map_of_peer(peer, data_base(peer), self._heap_size, descriptor, self._device, self._undo)
        finally:
            close_all(shared)

    def _reserve(self, slot: int) -> None:
        """Reserve a whole slot: its guard stays unmapped, so that NULL faults, and what lies behind the heap is for adopted memory."""
        driver.reserve(slot, STRIDE)
        self._undo.call("cuMemAddressFree", slot, STRIDE)

    def close(self) -> None:
        """Unmap and release everything. No tensor of the heap may be used afterwards."""
        self._undo.run()


def share(handle: Any, rank: int, ranks: Sequence[int], gather: Gather) -> dict[int, int]:
    """Give memory to every other one of ``ranks`` and get theirs, as descriptors by rank. Collective, see ``exchange_descriptors``."""
    exported: list[int] = []

    def export() -> None:
        exported.append(driver.export_descriptor(handle))

    try:
        agreed(gather, ranks, "exporting memory", export)
        return exchange_descriptors(exported[0], rank, ranks, gather)
    finally:
        for descriptor in exported:
            os.close(descriptor)


def close_all(descriptors: dict[int, int]) -> None:
    """Close and forget descriptors."""
    while descriptors:
        os.close(descriptors.popitem()[1])


def map_of_peer(peer: int, address: int, size: int, descriptor: int, device: int, undo: UndoStack) -> None:
    """Import and map memory of ``peer``'s GPU. Raises UnreachablePeerError where this GPU can't reach it.

    A GPU that this process does not see can't be asked about beforehand: whether it is reached shows here only.
    """
    try:
        handle = driver.import_descriptor(descriptor)
        undo.call("cuMemRelease", handle)
        map_memory(address, size, handle, device, undo)
    except driver.CudaDriverError as error:
        if error.out_of_memory:
            raise HeapFullError(f"the driver has no memory left to map {size} bytes of rank {peer}: {error}") from error
        raise UnreachablePeerError(
            f"this rank's GPU ({driver.describe_device(device)}) can't reach the memory of rank {peer}'s GPU: {error}; "
            "look at nvidia-smi topo -p2p r, and whether both processes run in one container or cgroup"
        ) from error
