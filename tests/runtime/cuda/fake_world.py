"""Processes that are ranks of a CUDA world on a machine with no GPU: gloo, the fake driver, and CPU tensors over its memory."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.runtime.cuda.fake_driver import FakeDriver
from triton_dist.runtime import world as runtime_world
from triton_dist.runtime.address_map import CONTEXT, STRIDE
from triton_dist.runtime.control_group import ControlGroup
from triton_dist.runtime.cuda import device_memory, driver
from triton_dist.runtime.cuda.peers import check_peers
from triton_dist.runtime.cuda.world import CudaWorld
from triton_dist.runtime.symmetric import address_of

HEAP = 16 << 20
DEADLINE = 400.0
"""Seconds for all scenarios of one set of ranks."""


class FakeWorld(CudaWorld):
    """A world whose GPU is the CPU. What follows the start of torch.distributed is the real thing."""

    capturing = False

    def __init__(self, heap_size: int = HEAP) -> None:
        self.device = torch.device("cpu")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.local_rank, self.local_world_size, self.num_nodes, self.node = self.rank, self.world_size, 1, 0
        self.workspaces, self.shmem_initialized = {}, False
        self.synchronized = 0
        self._watchdog = self._board = self._nvshmem = None  # the first two are tested in test_world_without_gpu.py
        self._control = ControlGroup()
        self._begin()
        try:
            check_peers(0, self.world_size, self.gather)
            self.streams = self  # type: ignore[assignment]
            self._make_heap(heap_size)
        except BaseException:
            self._control.end()
            raise
        runtime_world._process_world = self

    def load_waits(self) -> None:
        """There is nothing to load onto."""

    def current(self) -> None:
        return None

    def synchronize(self, stream: Any = None, why: Any = "") -> None:
        self.synchronized += 1

    def wait_for_device(self) -> None:
        """Nothing runs."""

    def leave(self) -> None:
        self.gather("closing")
        self.together("leaving", self.heap.close)
        self._control.end()
        runtime_world._process_world = None

    def words(self, offset: int, count: int) -> list[int]:
        """int32 words of the context page."""
        return self.heap.bytes_at(CONTEXT + offset, 4 * count).view(torch.int32).tolist()


def cpu_tensor_over(address: int, nbytes: int, device: torch.device, dropped: Callable[[], Any] | None = None) -> torch.Tensor:
    memory = (ctypes.c_ubyte * nbytes).from_address(address)
    if dropped is not None:
        weakref.finalize(memory, dropped).atexit = False
    return torch.frombuffer(memory, dtype=torch.uint8)


def use_fake(fake: FakeDriver) -> FakeDriver:
    """Make ``fake`` the driver of this process."""
    driver.bindings = lambda: fake  # type: ignore[assignment]
    device_memory.tensor_over = cpu_tensor_over
    return fake


def offset_of(tensor: torch.Tensor) -> int:
    """Where a symmetric tensor lies in its rank's slot."""
    return address_of(tensor) % STRIDE


def everyone(value: Any) -> list[Any]:
    """The ``value`` of every rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def run_ranks(scenarios: Sequence[Callable[[FakeDriver], Any]], world_size: int) -> dict[str, list[str]]:
    """What each scenario says on each rank: "right", or what went wrong. A rank that fails a scenario goes on with the next one."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(world_size):
            child = os.fork()
            if not child:
                _be_rank(rank, world_size, folder, scenarios)
            children.append(child)
        deadline = time.monotonic() + DEADLINE
        running = set(children)
        while running and time.monotonic() < deadline:
            running -= {child for child in running if os.waitpid(child, os.WNOHANG)[0]}
            time.sleep(0.02)
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        results: dict[str, list[str]] = {scenario.__name__: [] for scenario in scenarios}
        for rank in range(world_size):
            path = Path(folder) / f"{rank}.json"
            said = json.loads(path.read_text()) if path.exists() else {}
            for name, outcomes in results.items():
                outcomes.append(said.get(name, "said nothing: it died or hung"))
        return results


def _be_rank(rank: int, world_size: int, folder: str, scenarios: Sequence[Callable[[FakeDriver], Any]]) -> None:
    said: dict[str, str] = {}
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
        for scenario in scenarios:
            gc.collect()  # tensors in the tracebacks of the scenario before
            fake = use_fake(FakeDriver())
            try:
                scenario(fake)
                said[scenario.__name__] = "right"
            except BaseException:  # noqa: BLE001 - the parent prints it
                said[scenario.__name__] = traceback.format_exc()
            if runtime_world._process_world is not None:
                # Left over where a scenario failed; the next one makes its own.
                runtime_world._process_world.leave()  # type: ignore[attr-defined]
            with open(f"{folder}/{rank}.json.new", "w") as file:
                json.dump(said, file)
            os.replace(f"{folder}/{rank}.json.new", f"{folder}/{rank}.json")
        dist.destroy_process_group()
    finally:
        sys.stdout.flush()
        os._exit(0)
