"""The ranks that a benchmark runs on: a barrier on the device, a clock, graphs, and agreement between the ranks.

``CudaMachine`` is one process of a job that torchrun started. ``DryMachine`` is one rank of the simulator: every line of a benchmark
runs there, but its clock is the host's and its times mean nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

import triton_dist
from triton_dist.ops import barrier

_DELAY_CYCLES = 2_000_000
"""About 1 ms of an H100: longer than the host needs to queue a barrier, an event and a graph, on a machine that has other work, too."""


@dataclass
class Captured:
    """Calls that were recorded. replay: queues them all. result: what the last of them returned."""

    replay: Callable[[], None]
    result: Any


class Machine(Protocol):
    """What the harness asks of the ranks. Everything queued goes to one stream."""

    rank: int
    world_size: int
    device: torch.device
    dry: bool

    def gather(self, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank; the host waits."""
        ...

    def align(self, ahead: bool) -> None:
        """Queue a barrier of all ranks. ahead: keep the device busy before it, so that the host can queue what follows in the meantime."""
        ...

    def mark(self) -> Any:
        """Queue a point in time."""
        ...

    def elapsed_us(self, begin: Any, end: Any) -> float:
        """Microseconds between two points in time that have passed."""
        ...

    def synchronize(self) -> None:
        """Wait for the device."""
        ...

    def capture(self, call: Callable[[int], Any], inner: int) -> Captured:
        """Record ``call(0)`` to ``call(inner - 1)``. Raises whatever the call or the recording raises."""
        ...


class CudaMachine:
    """One rank of a job under torchrun, on its own GPU, on a stream of its own.

    One stream serves eager calls and captures, so that an operator's workspace for it exists before a capture begins.
    """

    dry = False

    def __init__(self, heap_size: int, timeout_s: float) -> None:
        # Where a call could use multicast, machines without it fail late and differently.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        local_rank = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(local_rank)
        self.device = torch.device("cuda", local_rank)
        self.shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count()
        # NCCL starts at once, unless ranks share a GPU, for which it has no way.
        device = None if self.shared else self.device
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=timeout_s), device_id=device)
        triton_dist.initialize(heap_size)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._control = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        self._token = torch.zeros(1, device=self.device)
        self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        torch.cuda.set_stream(self._stream)
        _enable_torch_symmetric_memory()

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def align(self, ahead: bool) -> None:
        if ahead:
            torch.cuda._sleep(_DELAY_CYCLES)
        barrier() if self.shared else dist.all_reduce(self._token)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_us(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end) * 1e3

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def capture(self, call: Callable[[int], Any], inner: int) -> Captured:
        graph = torch.cuda.CUDAGraph()
        result = None
        torch.cuda.synchronize()
        # "thread_local": what NCCL's own threads do meanwhile does not end the recording.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            for turn in range(inner):
                result = call(turn)
        return Captured(graph.replay, result)

    def close(self) -> None:
        """Leave the world. Every rank calls it."""
        torch.cuda.synchronize()
        dist.barrier(group=self._control)
        triton_dist.finalize()
        if dist.is_initialized():
            dist.destroy_process_group()


class DryMachine:
    """One rank of ``triton_dist.simulate``. A graph is the calls again."""

    dry = True

    def __init__(self) -> None:
        self.rank, self.world_size, self.device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def align(self, ahead: bool) -> None:
        dist.barrier()

    def mark(self) -> float:
        triton_dist.synchronize()
        return time.perf_counter()

    def elapsed_us(self, begin: float, end: float) -> float:
        return (end - begin) * 1e6

    def synchronize(self) -> None:
        triton_dist.synchronize()

    def capture(self, call: Callable[[int], Any], inner: int) -> Captured:
        def replay() -> None:
            for turn in range(inner):
                captured.result = call(turn)

        captured = Captured(replay, None)
        replay()
        return captured


def run_on(act: Callable[[Machine], Any], *, dry_ranks: int | None, heap_size: int, timeout_s: float) -> Any:
    """``act(machine)`` on this rank of a torchrun job or, with ``dry_ranks``, on so many simulated ranks; returns (rank 0's) result."""
    if dry_ranks is not None:
        return triton_dist.simulate(lambda: act(_dry_machine()), dry_ranks, heap_size=heap_size)[0]
    with _cuda_machine(heap_size, timeout_s) as machine:
        return act(machine)


def _enable_torch_symmetric_memory() -> None:
    """For torch's own fused operators, among all ranks. Newer versions need no call, and warn of one."""
    from torch.distributed import _symmetric_memory

    with warnings.catch_warnings(), contextlib.suppress(AttributeError):
        warnings.simplefilter("ignore")
        _symmetric_memory.enable_symm_mem_for_group(dist.distributed_c10d._get_default_group().group_name)


def _dry_machine() -> DryMachine:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return DryMachine()


@contextlib.contextmanager
def _cuda_machine(heap_size: int, timeout_s: float) -> Iterator[CudaMachine]:
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here; --dry-run runs the benchmark's code on simulated ranks")
    machine = CudaMachine(heap_size, timeout_s)
    # Not on an error: the other ranks may wait elsewhere, and the launcher ends them.
    yield machine
    machine.close()
