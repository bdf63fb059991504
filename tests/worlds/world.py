"""The fixture ``world``'s value: ``world(body, world_size, ...)`` runs a body on every rank, of whatever machine there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.worlds import gpus
from tests.worlds.messages import Job, pack, unpack
from tests.worlds.pool import WorkerPool


class World(Protocol):
    """Takes what ``triton_dist.simulate`` takes; ``seed`` and ``schedule`` choose the order of things where that can be chosen.

    timeout: seconds, where time can run out. Returns the results by rank; raises the first error.
    """

    def __call__(self, body: Callable[..., Any], world_size: int, **options: Any) -> list[Any]: ...


def simulated_world(
    body: Callable[..., Any],
    world_size: int,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float = 0,
    **options: Any,
) -> list[Any]:
    """On simulated ranks. Body, arguments and results are packed as for a worker process, so that what can't be sent is found here."""
    job = unpack(pack(Job(body, tuple(args), dict(kwargs or {}))))
    return unpack(pack(triton_dist.simulate(job.body, world_size, args=job.args, kwargs=job.kwargs, **options)))


class GpuWorld:
    """On GPUs: rank r on GPU r, or all ranks on the first one. Pools of workers are made when asked for; the last ``KEPT`` used are kept.

    count: how many GPUs there are.
    """

    KEPT = 2

    def __init__(self, count: int, shared: bool) -> None:
        self._count = count
        self._shared = shared
        self._pools: dict[int, WorkerPool] = {}

    def __call__(
        self,
        body: Callable[..., Any],
        world_size: int,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        schedule: str = "random",
        timeout: float = 120,
    ) -> list[Any]:
        if not self._shared and world_size > self._count:
            pytest.skip(f"needs {world_size} GPUs")
        return self.pool(world_size).run(body, args, kwargs, timeout)

    def pool(self, world_size: int) -> WorkerPool:
        """The workers of a world of this size."""
        if world_size not in self._pools:
            environment = {"CUDA_VISIBLE_DEVICES": gpus.first()} if self._shared else {}
            self._pools[world_size] = WorkerPool(world_size, "tests.worlds.machines:Gpus", environment)
        self._pools[world_size] = latest = self._pools.pop(world_size)
        while len(self._pools) > self.KEPT:
            self._pools.pop(next(iter(self._pools))).close()
        return latest

    def close(self) -> None:
        """End all workers."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


class CpuProcessWorld:
    """On CPU processes. Pools of workers are made when asked for and kept."""

    def __init__(self) -> None:
        self._pools: dict[int, WorkerPool] = {}

    def __call__(
        self,
        body: Callable[..., Any],
        world_size: int,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        schedule: str = "random",
        timeout: float = 60,
    ) -> list[Any]:
        if world_size not in self._pools:
            self._pools[world_size] = WorkerPool(world_size, "tests.worlds.machines:CpuRanks")
        return self._pools[world_size].run(body, args, kwargs, timeout)

    def close(self) -> None:
        """End all workers."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


def meet() -> None:
    """For bodies: every rank waits here, with its device idle, until all have come. By the host, with no primitive of the package."""
    triton_dist.synchronize()
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.all_reduce(torch.zeros(1))  # of host memory, so that gloo does it, also where ranks share a GPU
