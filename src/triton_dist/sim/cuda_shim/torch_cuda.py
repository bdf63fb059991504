"""``torch.cuda`` for scripts under ``triton-dist run``: what is replaced, by what, and how it is put back.

Only here does this package replace functions of torch for a whole process: the one that ``triton-dist run`` owns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton.testing
from torch.overrides import _get_current_function_mode_stack

from ...errors import InvalidArgumentError
from ..cost_model import OperatorTime
from ..gpu_sheets import DeviceProperties, clock_khz, device_properties
from ..work import TorchCall
from . import graphs, measuring, memory, missing, random_states, streams, tensor_types
from .streams import cuda_device, device_index, here
from .tensors import DeviceMode, mark_host

NCCL_VERSION = (2, 27, 7)
"""The NCCL that the simulator pretends to have, for scripts that ask before they use a function of torch.distributed."""


def current_device() -> int:
    """Index of the rank's GPU on its node. A rank has one GPU, chosen from the start."""
    return here("torch.cuda.current_device()").local_rank


def device_count() -> int:
    """GPUs of the rank's node: one a rank."""
    return here("torch.cuda.device_count()").local_world_size


def set_device(device: Any) -> None:
    """Raises InvalidArgumentError for any GPU but the rank's own."""
    rank = here("torch.cuda.set_device()")
    index = device_index(device)
    if index >= 0 and index != rank.local_rank:
        raise InvalidArgumentError(
            f"torch.cuda.set_device({device!r}): simulated rank {rank.rank} has the GPU {cuda_device(rank)}; use LOCAL_RANK, which is "
            f"{rank.local_rank}"
        )


def get_device_properties(device: Any = None) -> DeviceProperties:
    rank = here("torch.cuda.get_device_properties()")
    if device_index(device) >= rank.local_world_size:
        raise InvalidArgumentError(f"there is no GPU {device!r}: this node has {rank.local_world_size}, one a rank")
    return device_properties(rank.machine.gpu)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    properties = get_device_properties(device)
    return properties.major, properties.minor


def synchronize(device: Any = None) -> None:
    here("torch.cuda.synchronize()").synchronize(why="torch.cuda.synchronize()")


def sleep(cycles: int) -> None:
    """``torch.cuda._sleep``: keeps the current stream busy for that many simulated cycles."""
    rank = here("torch.cuda._sleep()")
    rank.submit(TorchCall(None, "torch.cuda._sleep", OperatorTime(cycles / clock_khz(rank.machine.gpu) * 1e6, 0.0)))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    total = get_device_properties(device).total_memory
    return total, total


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """For what only makes sense with real memory or several devices."""


_MEMORY_QUERIES = ("memory_stats", "memory_stats_as_nested_dict", "memory_snapshot")
_RESETS = (
    *("reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
    *("reset_peak_host_memory_stats", "reset_accumulated_host_memory_stats"),
)
_UNSUPPORTED = (
    *("make_graphed_callables", "MemPool", "use_mem_pool", "change_current_allocator", "CUDAPluggableAllocator"),
    *("caching_allocator_alloc", "caching_allocator_delete", "current_blas_handle"),
    *("memory_usage", "utilization", "temperature", "power_draw", "device_memory_used"),
)

_CUDA: dict[str, Any] = {
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "StreamContext": streams.StreamContext,
    "stream": streams.StreamContext,
    "Event": streams.Event,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "get_stream_from_external": streams.get_stream_from_external,
    "device": streams.device,
    "device_of": streams.device,
    "CUDAGraph": graphs.CUDAGraph,
    "graph": graphs.graph,
    "graph_pool_handle": graphs.graph_pool_handle,
    "is_current_stream_capturing": graphs.is_current_stream_capturing,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": _nothing,
    "_lazy_init": missing.no_device_code,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_tf32_supported": lambda: True,
    "current_device": current_device,
    "device_count": device_count,
    "set_device": set_device,
    "get_device_properties": get_device_properties,
    "get_device_capability": get_device_capability,
    "get_device_name": lambda device=None: get_device_properties(device).name,
    "get_arch_list": lambda: ["sm_{}{}".format(*get_device_capability())],
    "can_device_access_peer": lambda device, peer_device: True,
    "clock_rate": lambda device=None: get_device_properties(device).clock_rate // 1000,
    "synchronize": synchronize,
    "_sleep": sleep,
    "ipc_collect": _nothing,
    "empty_cache": _nothing,
    "memory_allocated": memory.memory_in_use,
    "max_memory_allocated": memory.memory_in_use,
    "memory_reserved": memory.memory_in_use,
    "max_memory_reserved": memory.memory_in_use,
    "mem_get_info": mem_get_info,
    **{name: getattr(memory, name) for name in _MEMORY_QUERIES},
    "get_allocator_backend": lambda: "native",
    "memory_summary": lambda device=None, abbreviated=False: "the simulator does not count memory",
    **dict.fromkeys(_RESETS, _nothing),
    "set_per_process_memory_fraction": _nothing,
    "get_sync_debug_mode": measuring.get_sync_debug_mode,
    "set_sync_debug_mode": measuring.set_sync_debug_mode,
    "cudart": lambda: measuring.CUDART,
    "_cudart": measuring.CUDART,
    "default_generators": random_states.DefaultGenerators(),
    "manual_seed": random_states.manual_seed,
    "manual_seed_all": random_states.manual_seed,
    "seed": random_states.seed,
    "seed_all": random_states.seed,
    "get_rng_state_all": random_states.get_rng_state_all,
    "set_rng_state_all": random_states.set_rng_state_all,
    "get_rng_state": lambda device=None: torch.default_generator.get_state(),
    "set_rng_state": lambda new_state, device=None: torch.default_generator.set_state(new_state),
    "initial_seed": lambda: torch.default_generator.initial_seed(),
    **tensor_types.TYPES,
    **{name: missing.unsupported(name) for name in _UNSUPPORTED},
}

_ACCELERATOR: dict[str, Any] = {
    "is_available": lambda: True,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "device_count": device_count,
    "current_device_index": current_device,
    "set_device_index": set_device,
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "synchronize": synchronize,
}

_MEMORY = ("_record_memory_history", "_snapshot", "_dump_snapshot")
_NVTX = ("range_push", "range_pop", "range_start", "range_end", "mark")


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.load``: files have tensors of the CPU here; where one device is named for all of them, they are seen there."""

    def load(f: Any, map_location: Any = None, **options: Any) -> Any:
        if callable(map_location) or isinstance(map_location, dict):
            return original(f, map_location=map_location, **options)
        mode = next((mode for mode in _get_current_function_mode_stack() if isinstance(mode, DeviceMode)), None)
        if mode is None or map_location is None:
            return original(f, map_location="cpu", **options)
        mode.real_device(map_location)
        before, mode.loads_onto = mode.loads_onto, mode.named_device(map_location)
        try:
            return original(f, map_location="cpu", **options)
        finally:
            mode.loads_onto = before

    return load


def _set_default_tensor_type(original: Callable[..., None]) -> Callable[..., None]:
    def set_default(t: Any) -> None:
        if isinstance(t, tensor_types.TensorType) or (isinstance(t, str) and t.startswith("torch.cuda.")):
            tensor_types.set_default_tensor_type(t)
        original(t)

    return set_default


def _from_numpy(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda array: mark_host(original(array))


def _autocast(original: Callable[..., None]) -> Callable[..., None]:
    """``torch.autocast("cuda")`` casts the operators that run here, those of the CPU."""

    def init(self: Any, device_type: str, dtype: torch.dtype | None = None, **options: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, **options)

    return init


def replacements() -> dict[tuple[Any, str], Any]:
    """What is set while scripts run: (owner, name) and the value."""
    table: dict[tuple[Any, str], Any] = {(torch.cuda, name): value for name, value in _CUDA.items()}
    table |= {(torch.cuda.nvtx, name): _nothing for name in _NVTX}
    if hasattr(torch, "accelerator"):
        table |= {(torch.accelerator, name): value for name, value in _ACCELERATOR.items()}
    table |= {
        (torch, "Generator"): random_states.Generator,
        (torch, "Stream"): streams.Stream,
        (torch, "Event"): streams.AnyEvent,
        (torch, "set_default_tensor_type"): _set_default_tensor_type(torch.set_default_tensor_type),
        (torch.Tensor, "record_stream"): streams.record_stream,
        (torch._C, "_cuda_getCurrentRawStream"): streams.current_raw_stream,
        (torch._C, "_cuda_getDevice"): current_device,
        (torch._C, "__getattr__"): missing.native_name,
        (torch.cuda.profiler, "cudart"): lambda: measuring.CUDART,
        (torch.cuda.nccl, "version"): lambda: NCCL_VERSION,
        (triton.testing, "do_bench"): measuring.do_bench,
        (torch, "load"): _load(torch.load),
        (torch, "from_numpy"): _from_numpy(torch.from_numpy),
        (torch.amp.autocast_mode.autocast, "__init__"): _autocast(torch.amp.autocast_mode.autocast.__init__),
        (torch.utils._device, "CURRENT_DEVICE"): torch.utils._device.CURRENT_DEVICE,  # which the ranks' scripts may leave changed
        (torch.cuda.graphs, "CUDAGraph"): graphs.CUDAGraph,
        (torch.cuda.graphs, "graph"): graphs.graph,
    }
    table |= {(torch.cuda.streams, name): _CUDA[name] for name in ("Stream", "ExternalStream", "Event")}
    table |= {(torch.cuda.memory, name): missing.unsupported(f"memory.{name}") for name in _MEMORY}
    for module in (torch.cuda.memory, torch.cuda.random):
        own = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
        table |= {(module, name): _CUDA[name] for name in own & set(_CUDA)}
    return table


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Replace torch's names while the scripts run. Only ``triton-dist run`` does this, and tests of it."""
    table = replacements()
    missing = object()
    before = {(owner, name): vars(owner).get(name, missing) for owner, name in table}
    try:
        for (owner, name), value in table.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in before.items():
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
