"""Joining a world: what fails on one rank fails alike on all, is undone, and may be tried again."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

import triton_dist
from tests.runtime.cuda.fake_driver import (
    GRANULARITY,
    CUresult,
    FakeDriver,
)
from tests.runtime.cuda.fake_world import HEAP, FakeWorld
from triton_dist import errors
from triton_dist.runtime.address_map import MAX_HEAP_SIZE, STRIDE, heap_base
from triton_dist.runtime.cuda import exchange
from triton_dist.runtime.cuda.driver import CudaDriverError

MEBIBYTE = 1 << 20


def shared_memory_open() -> int:
    """Descriptors of device memory that this process has open, beyond those of the fake driver itself."""
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed the folder
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sum("fake device memory" in name for name in names)


def failing_starts_are_undone(fake: FakeDriver) -> None:
    """A rank fails at some point; all raise the same error at once, nothing stays mapped or open, and the next try succeeds."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1

    def fail(code: CUresult, condition: Callable[..., bool] = lambda *arguments: True) -> Callable[..., CUresult | None]:
        return lambda *arguments: code if condition(*arguments) else None

    denied, no_memory, invalid = CUresult.CUDA_ERROR_NOT_PERMITTED, CUresult.CUDA_ERROR_OUT_OF_MEMORY, CUresult.CUDA_ERROR_INVALID_VALUE

    def of_rank(rank: int) -> Callable[..., bool]:
        return lambda address, *rest: address // STRIDE == heap_base(rank) // STRIDE

    unreachable = errors.UnreachablePeerError
    cases: list[tuple[str, Callable[..., CUresult | None], type[Exception], str]] = [
        ("cuMemCreate", fail(no_memory), errors.HeapFullError, rf"rank {last}: .*no {HEAP + GRANULARITY} bytes free .* but \d+ of \d+"),
        ("cuMemCreate", fail(no_memory, lambda size, *rest: size == GRANULARITY), errors.HeapFullError, "no 2097152 bytes free"),
        ("cuMemCreate", fail(denied), CudaDriverError, f"rank {last}: cuMemCreate: CUDA_ERROR_NOT_PERMITTED"),
        ("cuMemExportToShareableHandle", fail(denied), CudaDriverError, f"exporting memory: rank {last}"),
        ("cuMemImportFromShareableHandle", fail(denied), unreachable, rf"rank {last}: .*can't reach the memory of rank \d's GPU"),
        ("cuMemMap", fail(invalid, of_rank(0)), unreachable, "rank 0's GPU"),
        ("cuMemMap", fail(no_memory, of_rank(0)), errors.HeapFullError, "no memory left"),
        ("cuMemMap", fail(invalid, of_rank(last)), CudaDriverError, "cuMemMap"),
        ("cuMemSetAccess", fail(invalid, of_rank(0)), unreachable, "PCI 0000:only.*cuMemSetAccess: CUDA_ERROR_INVALID_VALUE.*topo"),
        ("cuMemAddressReserve", fail(no_memory), errors.AddressInUseError, "needs addresses 0x100000000000"),
        ("cuDeviceGetUuid", fail(denied), CudaDriverError, "looking at the GPUs"),
    ]
    dist.barrier()
    for name, fault, expected, text in cases:
        fake.faults = {name: fault} if rank == last else {}
        with pytest.raises(expected, match=text) as caught:
            FakeWorld()
        assert type(caught.value) is expected, name
        fake.faults = {}
        assert fake.in_use == (0, 0, 0), name
        assert shared_memory_open() == 0, name
    world = FakeWorld()
    assert shared_memory_open() == world.world_size + 1, "the heaps and the page, once each"
    assert triton_dist.symm_zeros(3).tolist() == [0] * 3


def taken_addresses_are_named(fake: FakeDriver) -> None:
    """Something else of this process lies in the slot of a rank; who it is is said. The driver may not give the slot again."""
    rank = dist.get_rank()
    held = heap_base(1) + (1 << 30)
    if rank == 0:
        assert fake._mmap(held, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000)
    with pytest.raises(errors.AddressInUseError, match=rf"rank 0: .*needs addresses {heap_base(1):#x} .*anonymous mapping \({held:x}-"):
        FakeWorld()
    if rank == 0:
        fake._libc.munmap(held, mmap.PAGESIZE)
    with pytest.raises(errors.AddressInUseError, match=rf"rank 0: .*needs addresses {heap_base(1):#x} .*in a fresh process"):
        FakeWorld()
    assert fake.in_use == (0, 0, 0)


def heap_sizes_are_checked(fake: FakeDriver) -> None:
    rank = dist.get_rank()
    with pytest.raises(errors.InvalidArgumentError, match="heap_size is 2097152 on rank 0 but 4194304 on rank 1"):
        FakeWorld((2 + 2 * (rank == 1)) * MEBIBYTE)
    with pytest.raises(
        errors.HeapFullError, match=rf"no {(8 << 30) + GRANULARITY} bytes free for the symmetric heap, but 4294967295 of 4294967296"
    ):
        FakeWorld(8 << 30)
    with pytest.raises(errors.InvalidArgumentError, match="room for .* bytes beside the words of device barriers"):
        FakeWorld(MAX_HEAP_SIZE)
    world = FakeWorld(3 * MEBIBYTE + 1)
    assert world.heap.size == 4 * MEBIBYTE, "rounded up to what is mapped"


def unreachable_gpus_are_named(fake: FakeDriver) -> None:
    """Processes that see all GPUs ask; those that see only their own find out by mapping (``failing_starts_are_undone``)."""
    rank, size = dist.get_rank(), dist.get_world_size()
    fake.gpus = tuple(f"gpu{(rank + other) % size}" for other in range(size))
    fake.accessible = rank != 1
    if size > 1:
        with pytest.raises(errors.UnreachablePeerError, match="rank 1: the GPU at PCI 0000:gpu1:00.0.*no peer access to rank 0's.*gpu0"):
            FakeWorld()
    fake.gpus = (f"gpu{rank}",)
    FakeWorld().leave()
    fake.accessible, fake.gpus = False, ("shared", "nobody's")
    FakeWorld()  # ranks on one GPU, and a GPU of no rank


def lost_ranks_do_not_hold_others(fake: FakeDriver) -> None:
    """A rank that fails while handles are passed on: the others stop waiting after a bounded time."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    send, timeout = exchange._sent, exchange._TIMEOUT

    def broken(*arguments: Any) -> Any:
        raise OSError("no socket today")

    exchange._TIMEOUT = 0.5
    exchange._sent = broken if rank == last else send  # type: ignore[assignment]
    try:
        with pytest.raises(errors.TritonDistError, match=f"rank {last}: OSError: no socket today"):
            FakeWorld()
    finally:
        exchange._sent, exchange._TIMEOUT = send, timeout
    assert fake.in_use == (0, 0, 0)
    FakeWorld()


SCENARIOS = [
    failing_starts_are_undone,
    taken_addresses_are_named,
    heap_sizes_are_checked,
    unreachable_gpus_are_named,
    lost_ranks_do_not_hold_others,
]
