"""Small helpers that scripts and kernels' host code import from ``triton_dist.utils``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .device_info import get_current_gpu_clock_rate_in_khz, get_max_gpu_clock_rate_in_khz, pretended_gpu, supports_p2p_native_atomic
from .errors import InvalidArgumentError, MissingCapabilityError
from .runtime import streams, world


def bindings(name: str) -> Any:
    """cuda-bindings' module "driver" or "runtime"; where there is no GPU, the simulator's module of the same names.

    Raises ImportError, saying what to install, on a machine with a GPU and no cuda-bindings.
    """
    if pretended_gpu() is not None or not torch.cuda.is_available():
        return importlib.import_module(f"triton_dist.sim.cuda_shim.bindings.{name}")
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise ImportError(f"triton_dist.utils needs cuda-bindings for cuda.bindings.{name}: pip install 'triton-dist[cuda]'") from error


def CUDA_CHECK(err: Any) -> None:  # noqa: N802  (upstream's name)
    """Raise RuntimeError for an error code of cuda-bindings that is not success. err: the code, or the tuple that begins with it."""
    code = err[0] if isinstance(err, tuple) else err
    if type(code).__name__ not in ("CUresult", "cudaError_t", "nvrtcResult"):
        raise InvalidArgumentError(f"CUDA_CHECK takes an error code of cuda-bindings, not {err!r}")
    if int(code) != 0:
        raise RuntimeError(f"CUDA error {code!r}: see the driver's documentation of {getattr(code, 'name', code)}")


def sleep_async(duration_ms: float) -> None:
    """Keep the current stream busy for ``duration_ms`` milliseconds (simulated ones in the simulator); the host goes on."""
    if duration_ms < 0:
        raise InvalidArgumentError(f"sleep_async: duration_ms={duration_ms} is negative")
    context = world.current_world()
    if pretended_gpu() is not None:
        from .sim.cost_model import OperatorTime
        from .sim.work import TorchCall

        context.submit(TorchCall(None, "sleep_async", OperatorTime(duration_ms * 1e6, 0.0)))  # type: ignore[union-attr]
        return
    torch.cuda._sleep(int(get_max_gpu_clock_rate_in_khz() * duration_ms))


def is_fp8_dtype(dtype: torch.dtype) -> bool:
    """Whether elements are floating-point numbers of 8 bits."""
    return dtype.itemsize == 1 and dtype.is_floating_point


def generate_data(configs: Sequence[Any]) -> Iterator[Iterator[torch.Tensor | None]]:
    """For ever: fresh tensors, one for each entry of ``configs``.

    entry: (shape, dtype, (scale, bias), device), the device "cuda" if it is left out: random numbers in [-scale, scale] plus bias;
    an empty entry gives None. shape: sizes, some of which may be functions without arguments, a size, or a function.
    """
    while True:
        yield (_random_tensor(*entry) if entry else None for entry in configs)


def _random_tensor(shape: Any, dtype: torch.dtype, init_args: tuple[float, float], device: Any = "cuda") -> torch.Tensor:
    if callable(shape):
        shape = shape()
    sizes = (shape,) if isinstance(shape, int) else tuple(size() if callable(size) else size for size in shape)
    if str(device).split(":")[0] == "cuda" and world.is_initialized():
        device = streams.device()
    scale, bias = init_args
    if dtype.is_floating_point:
        wide = torch.float32 if is_fp8_dtype(dtype) else dtype
        return ((torch.rand(sizes, dtype=wide, device=device) * 2 - 1) * scale + bias).to(dtype)
    if dtype == torch.bool:
        raise InvalidArgumentError("generate_data: torch.bool has no scale; use rand_tensor")
    return torch.randint(-int(scale), int(scale), sizes, dtype=dtype, device=device) + int(bias)


@contextlib.contextmanager
def with_torch_deterministic(mode: bool, warn_only: bool = True) -> Iterator[None]:
    """Inside, torch uses deterministic algorithms only (``mode`` True) or any (False)."""
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


def requires(condition_func: Callable[[], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: calls of the function raise MissingCapabilityError where ``condition_func()`` is false."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if not condition_func():
                raise MissingCapabilityError(
                    f"{function.__name__} needs {condition_func.__name__}(), which is false on this machine; use another method"
                )
            return function(*args, **kwargs)

        return checked

    return decorate


def requires_p2p_native_atomic(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: warns at a call where atomics on a peer's memory do not work."""

    @functools.wraps(fn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not supports_p2p_native_atomic():
            warnings.warn(f"{fn.__name__} needs atomics on peers' memory, which these GPUs do not have", stacklevel=2)
        return fn(*args, **kwargs)

    return checked


def support_launch_cooperative_grid() -> bool:
    """Whether Triton launches cooperative grids: every version that this package runs with does."""
    return True


def launch_cooperative_grid_options() -> dict[str, bool]:
    """Launch options of a kernel whose programs wait for each other."""
    return {"launch_cooperative_grid": True}


def has_nvshmemi_bc_built() -> bool:
    """Whether NVSHMEM's internal bitcode was built from source; never, the public one is used."""
    return False


def wait_until_max_gpu_clock_or_warning(device_id: int | None = None, timeout_sec: float = 10) -> bool:
    """Wait until the SMs run at their greatest clock, if TRITON_DIST_WAIT_GPU_CLOCK is 1; whether they do, or nobody asked."""
    from .utils import get_bool_env

    if not get_bool_env("TRITON_DIST_WAIT_GPU_CLOCK", False):
        return True
    end = time.monotonic() + timeout_sec
    highest = get_max_gpu_clock_rate_in_khz(device_id)
    while (now := get_current_gpu_clock_rate_in_khz(device_id)) < highest:
        if time.monotonic() > end:
            warnings.warn(f"the SMs run at {now} kHz, not at {highest}, after {timeout_sec} s", stacklevel=2)
            return False
        time.sleep(0.1)
    return True


def cuda_occupancy_max_activate_blocks_per_multiprocessor(triton_func: Any, num_warps: int, *func_args: Any, **func_kwargs: Any) -> int:
    """Programs of a kernel that fit on one SM at a time; 1 in the simulator. func_args, func_kwargs: of the launch."""
    if pretended_gpu() is not None:
        return 1
    compiled = triton_func.warmup(*func_args, grid=(1,), num_warps=num_warps, **func_kwargs)
    compiled._init_handles()
    driver = bindings("driver")
    error, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        driver.CUfunction(compiled.function), num_warps * 32, compiled.metadata.shared
    )
    CUDA_CHECK(error)
    return blocks
