"""The Triton driver of the simulator: which device and stream are current, and a launcher that hands a launch to the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import triton.backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from ..errors import UnsupportedOperationError
from . import context
from .gpus import DEFAULT_GPU, GPU, GPUS
from .launch import Launcher, simulated_time

# Triton's own modules that pick a compiler by the current target. Everyone else (kernels that ask for the capability while they
# are traced, host code that picks a config) is told the pretended GPU, so that it takes the branches it takes there.
_PICKS_COMPILER = ("triton.runtime.jit", "triton.compiler.compiler")


def current_gpu() -> GPU:
    """The model that the calling thread's rank pretends to have."""
    rank = context.current()
    return rank.machine.gpu if rank is not None else DEFAULT_GPU


class _Utilities:
    """What Triton asks of a driver when it loads a kernel."""

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple:
        # module, function, registers, spilled registers, most threads of a block
        return None, kernel, 0, 0, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        gpu = current_gpu()
        if gpu.device_id != device:
            gpu = next((gpu for gpu in GPUS.values() if gpu.device_id == device), DEFAULT_GPU)
        return {
            "max_shared_mem": gpu.max_shared_memory,
            "multiprocessor_count": gpu.sm_count,
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }


class _DeviceInterface:
    """What ``triton.testing.do_bench`` measures with; there is no wall time of a GPU to measure here."""

    @staticmethod
    def synchronize() -> None:
        """Kernels of this rank's streams have run when it returns."""
        rank = context.current()
        if rank is not None:
            rank.synchronize()

    @staticmethod
    def Event(**options: object) -> object:  # noqa: N802  (the name that Triton calls)
        raise UnsupportedOperationError(
            "triton.testing.do_bench times kernels by the clock of a GPU, and the simulator has none; "
            "use triton_dist.sim.driver.benchmark for simulated milliseconds"
        )


def _register() -> None:
    """Let Triton find the simulator's compiler also where this package is on the path only, or entry points are switched off."""
    if "sim" not in triton.backends.backends:
        from _triton_dist_backend.compiler import SimBackend
        from _triton_dist_backend.driver import SimDriverEntry

        triton.backends.backends["sim"] = triton.backends.Backend(SimBackend, SimDriverEntry)


class SimDriver(DriverBase):
    """Triton's driver while ``simulate`` runs, or always on a machine with no GPU once ``triton_dist`` is imported."""

    launcher_cls = Launcher

    def __init__(self) -> None:
        self.utils = _Utilities()
        _register()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return GPUTarget("sim" if caller in _PICKS_COMPILER else "cuda", current_gpu().capability, 32)

    def get_current_device(self) -> int:
        return current_gpu().device_id

    def set_current_device(self, device: int) -> None:
        """Every rank has one device, so there is nothing to choose."""

    def get_current_stream(self, device: int) -> int:
        rank = context.current()
        return rank.stream if rank is not None else 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return divmod(current_gpu().capability, 10)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> type[_DeviceInterface]:
        return _DeviceInterface

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is no cache between a simulated kernel and its memory."""

    def get_benchmarker(self) -> Callable:
        return benchmark


def benchmark(kernel_call: Callable[[], object], *, quantiles=None, **_ignored) -> list[float] | float:
    """Cost of ``kernel_call()`` in simulated milliseconds: what the autotuner compares, the same on every machine.

    kernel_call: launches the kernel once on the current stream.
    quantiles: None gives one number, a sequence gives a list with one number for each entry.
    """
    cost = simulated_time(kernel_call) / 1000
    return cost if quantiles is None else [cost] * len(quantiles)
