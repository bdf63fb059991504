"""When memory is used again, and what uses of memory that is gone are named."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.runtime.cuda.fake_driver import (
    FakeDriver,
)
from tests.runtime.cuda.fake_world import FakeWorld, offset_of
from triton_dist import errors
from triton_dist.runtime import world as runtime_world
from triton_dist.runtime.cuda.streams import CudaStreams

MEBIBYTE = 1 << 20


def dropped_tensors_are_freed(fake: FakeDriver) -> None:
    """The memory is used again once nothing on any rank refers to it, by whatever way it does."""
    world = FakeWorld()

    def reused(refer: Callable[[torch.Tensor], Any]) -> tuple[bool, bool]:
        """Whether the memory is used again while what ``refer`` made of it lives on rank 1, and after that."""
        tensor = triton_dist.symm_zeros(1000)
        place = offset_of(tensor)
        kept: Any = refer(tensor) if world.rank == 1 else None
        del tensor
        during = offset_of(triton_dist.symm_empty(1000)) == place
        del kept
        gc.collect()
        triton_dist.symm_empty(1)  # a call of the team, at which it is freed
        return during, offset_of(triton_dist.symm_empty(1000)) == place

    def cycle(tensor: torch.Tensor) -> None:
        ring: list[Any] = [tensor]
        ring.append(ring)

    ways = {
        "view": lambda tensor: tensor[10:20].view(torch.int32),
        "as_strided": lambda tensor: tensor.as_strided((2, 2), (7, 3)),
        "detached": lambda tensor: tensor.detach(),
        "graph": lambda tensor: (tensor.requires_grad_() * tensor).sum(),
        "saved for backward": lambda tensor: torch.ones(1000, requires_grad=True) * tensor,
        "storage": lambda tensor: tensor.untyped_storage(),
        "set_": lambda tensor: torch.empty(0).set_(tensor.untyped_storage(), 5, (3,), (1,)),
        "numpy": lambda tensor: tensor.numpy(),
        "peer": lambda tensor: triton_dist.symm_peer(tensor, 0)[3:],
    }
    for way, refer in ways.items():
        assert reused(refer) == (False, True), way
    assert reused(lambda tensor: tensor.tolist()) == (True, True)
    gc.disable()
    try:
        for _ in range(6):
            cycle(triton_dist.symm_empty(5 * MEBIBYTE, torch.int8))  # collected before the heap counts as full
    finally:
        gc.enable()
    assert world.synchronized, "kernels that were queued have ended before memory is used again"


def teams_free_at_their_own_calls(fake: FakeDriver) -> None:
    world = FakeWorld()
    team = triton_dist.make_team([0, 1] if world.rank < 2 else [2, 3])
    for _ in range(40):
        triton_dist.symm_empty(MEBIBYTE, torch.int8, group=team)  # 40 of them do not fit into the heap
    kept = triton_dist.symm_empty(MEBIBYTE, torch.int8, group=team)
    if world.rank < 2:
        for _ in range(20):
            other = triton_dist.symm_zeros(MEBIBYTE, torch.int8, group=team)
            assert offset_of(other) != offset_of(kept)
    dist.barrier()


def freed_tensors_are_refused(fake: FakeDriver) -> None:
    world = FakeWorld()
    words = triton_dist.symm_zeros(4, torch.int32)
    place = offset_of(words)
    triton_dist.symm_free(words)
    for use in (lambda: triton_dist.symm_peer(words, 0), lambda: triton_dist.symm_free(words)):
        with pytest.raises(errors.UseAfterFreeError, match="'words' was freed before"):
            use()
    assert not triton_dist.is_symmetric(words)
    assert offset_of(triton_dist.symm_zeros(4, torch.int32)) != place, "not used again while a tensor is there"
    if world.rank == 0:
        del words
    assert offset_of(triton_dist.symm_zeros(4, torch.int32)) != place, "rank 1 has one"
    words = None
    triton_dist.symm_empty(1)
    assert offset_of(triton_dist.symm_zeros(4, torch.int32)) == place
    with pytest.raises(errors.NotSymmetricError, match=r"symm_peer needs a symmetric tensor, .*shape \[2\] is in ordinary memory"):
        triton_dist.symm_peer(torch.zeros(2), 0)


def worlds_follow_each_other(fake: FakeDriver) -> None:
    """Tensors of a world that has ended are errors by name, and nothing of the next world lies where they do."""
    world = FakeWorld()
    first = triton_dist.symm_zeros(2 * MEBIBYTE, torch.int8)
    old = triton_dist.symm_zeros(1000)
    old_high = triton_dist.symm_empty(10 * MEBIBYTE, torch.int8)
    place = offset_of(old)
    del first
    world.leave()
    if world.rank == 1:
        old = None  # it matters that rank 0 has one
    world = FakeWorld(8 * MEBIBYTE)
    if old is not None:
        for use in (triton_dist.symm_free, lambda tensor: triton_dist.symm_peer(tensor, 0)):
            with pytest.raises(errors.UseAfterFreeError, match="world that has ended"):
                use(old)
        assert not triton_dist.is_symmetric(old)
    new = [triton_dist.symm_zeros(100_000) for _ in range(4)]
    assert all(not offset_of(tensor) <= place < offset_of(tensor) + 400_000 for tensor in new)
    with pytest.raises(errors.UseAfterFreeError):
        triton_dist.symm_peer(old_high, 0)
    new = old = old_high = None
    triton_dist.symm_empty(1)
    assert offset_of(triton_dist.symm_zeros(7 * MEBIBYTE, torch.int8)) <= place, "free again, and in one piece"
    world.leave()
    assert fake.in_use == (0, 0, 0)


def streams_refuse_what_is_gone(fake: FakeDriver) -> None:
    """Host functions that take any tensor know a symmetric one that is gone."""
    world = FakeWorld()
    streams = CudaStreams(world)
    freed = triton_dist.symm_zeros(4, torch.int64)
    old = triton_dist.symm_zeros(4, torch.int64)
    triton_dist.symm_free(freed)
    calls: list[tuple[str, Callable[[torch.Tensor], Any]]] = [
        ("write_value", lambda tensor: streams.write_value(tensor[0], 1, None)),  # type: ignore[arg-type]
        ("wait_value", lambda tensor: streams.wait_value(tensor[0], 1, "ge", None)),  # type: ignore[arg-type]
        ("copy_async", lambda tensor: streams.copy(torch.zeros(4, dtype=torch.int64), tensor, None)),  # type: ignore[arg-type]
        ("copy_async", lambda tensor: streams.copy(tensor, torch.zeros(4, dtype=torch.int64), None)),  # type: ignore[arg-type]
    ]
    for what, use in calls:
        with pytest.raises(errors.UseAfterFreeError, match=f"{what}: 'freed' was freed before"):
            use(freed)
    world.leave()
    world = streams._world = FakeWorld()
    for what, use in calls:
        with pytest.raises(errors.UseAfterFreeError, match=f"{what}: .*world that has ended"):
            use(old)
    world.heap.check_alive(torch.zeros(1), "any")
    alive = triton_dist.symm_zeros(4, torch.int64)
    world.heap.check_alive(alive, "any")


def allocation_is_refused_in_a_capture(fake: FakeDriver) -> None:
    world = FakeWorld()
    world.capturing = world.rank == 1
    with pytest.raises(errors.CaptureError, match="rank 1: allocation while a CUDA graph is captured"):
        triton_dist.symm_empty(3)
    world.capturing = False
    triton_dist.symm_empty(3)


def children_are_not_ranks(fake: FakeDriver) -> None:
    FakeWorld()
    tensor = triton_dist.symm_zeros(10)
    child = os.fork()
    if not child:
        try:
            triton_dist.symm_empty(1)
        except errors.NotInitializedError as error:
            del tensor
            gc.collect()
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert triton_dist.symm_zeros(10).data_ptr() != tensor.data_ptr()


def a_broken_device_is_unmapped(fake: FakeDriver) -> None:
    """A device that can't be waited for any more, since a kernel has failed, keeps nothing mapped."""
    world = FakeWorld()
    tensor = triton_dist.symm_zeros(4)

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    world.wait_for_device = world.synchronize = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(RuntimeError, match="illegal memory access"):
        triton_dist.finalize()
    assert fake.in_use == (0, 0, 0) and not runtime_world.is_initialized()
    world = FakeWorld()
    with pytest.raises(errors.UseAfterFreeError, match="world that has ended"):
        triton_dist.symm_peer(tensor, 0)


SCENARIOS = [
    dropped_tensors_are_freed,
    teams_free_at_their_own_calls,
    freed_tensors_are_refused,
    worlds_follow_each_other,
    streams_refuse_what_is_gone,
    allocation_is_refused_in_a_capture,
    children_are_not_ranks,
    a_broken_device_is_unmapped,
]
