"""``torch.cuda`` for scripts under ``triton-dist run``: what is replaced, by what, and how it is put back.

Only here does this package replace functions of torch for a whole process: the one that ``triton-dist run`` owns.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...errors import InvalidArgumentError, UnsupportedOperationError
from ..cost_model import OperatorTime
from ..gpu_sheets import DeviceProperties, clock_khz, device_properties
from ..work import TorchCall
from . import graphs, streams
from .streams import cuda_device, here
from .tensors import DeviceMode, mark_host


def current_device() -> int:
    """Index of the rank's GPU on its node. A rank has one GPU, chosen from the start."""
    return here("torch.cuda.current_device()").local_rank


def device_count() -> int:
    """GPUs of the rank's node: one a rank."""
    return here("torch.cuda.device_count()").local_world_size


def set_device(device: Any) -> None:
    """Raises InvalidArgumentError for any GPU but the rank's own."""
    rank = here("torch.cuda.set_device()")
    index = _index(device)
    if index >= 0 and index != rank.local_rank:
        raise InvalidArgumentError(
            f"torch.cuda.set_device({device!r}): simulated rank {rank.rank} has the GPU {cuda_device(rank)}; use LOCAL_RANK, which is "
            f"{rank.local_rank}"
        )


def _index(device: Any) -> int:
    """The index of a device given as torch.cuda takes it; -1 for the current one."""
    if device is None:
        return -1
    device = DeviceMode.named_device(device)
    if device.type != "cuda":
        raise InvalidArgumentError(f"expected a CUDA device, not {device}")
    return -1 if device.index is None else device.index


def get_device_properties(device: Any = None) -> DeviceProperties:
    rank = here("torch.cuda.get_device_properties()")
    if _index(device) >= rank.local_world_size:
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


def memory_in_use(device: Any = None) -> int:
    """Bytes that the simulator knows of; other tensors are not counted."""
    here("torch.cuda.memory_allocated()")
    return 0


def mem_get_info(device: Any = None) -> tuple[int, int]:
    total = get_device_properties(device).total_memory
    return total, total


def _seed(seed: int) -> None:
    """Device and host draw from one generator here, as the simulator's tensors all do."""
    torch.default_generator.manual_seed(int(seed) & (1 << 64) - 1)


def _no_device_code(*_arguments: Any, **_options: Any) -> None:
    caller = sys._getframe(1)
    raise UnsupportedOperationError(
        f"torch.cuda: {caller.f_code.co_name} ({caller.f_globals.get('__name__')}) has no meaning on the simulator; "
        "leave it out under triton-dist run"
    )


def _unsupported(name: str) -> type:
    """A name of ``torch.cuda`` that raises when it is called. As a class it may stand in annotations and in ``isinstance``."""

    def refuse(cls: type, *_arguments: Any, **_options: Any) -> None:
        raise UnsupportedOperationError(f"torch.cuda.{name} has no meaning on the simulator; leave it out under triton-dist run")

    return type(name, (), {"__new__": refuse})


_TorchGenerator: Any = torch._C.Generator


class Generator(_TorchGenerator):
    """``torch.Generator``: one for "cuda" is a host generator here."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, "cpu")


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """For what only makes sense with real memory or several devices."""


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
    "device": streams.device_context,
    "device_of": streams.device_context,
    "CUDAGraph": graphs.CUDAGraph,
    "graph": graphs.graph,
    "graph_pool_handle": graphs.graph_pool_handle,
    "is_current_stream_capturing": graphs.is_current_stream_capturing,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": _nothing,
    "_lazy_init": _no_device_code,
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
    "memory_allocated": memory_in_use,
    "max_memory_allocated": memory_in_use,
    "memory_reserved": memory_in_use,
    "max_memory_reserved": memory_in_use,
    "mem_get_info": mem_get_info,
    "memory_stats": lambda device=None: {},
    "memory_summary": lambda device=None, abbreviated=False: "the simulator does not count memory",
    "reset_peak_memory_stats": _nothing,
    "reset_max_memory_allocated": _nothing,
    "set_per_process_memory_fraction": _nothing,
    "manual_seed": _seed,
    "manual_seed_all": _seed,
    "get_rng_state": lambda device=None: torch.default_generator.get_state(),
    "set_rng_state": lambda new_state, device=None: torch.default_generator.set_state(new_state),
    "initial_seed": lambda: torch.default_generator.initial_seed(),
    **{name: _unsupported(name) for name in ("make_graphed_callables", "MemPool", "use_mem_pool", "change_current_allocator", "cudart")},
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
    """``torch.load``: what was saved on a GPU is loaded onto this rank's."""

    def load(f: Any, map_location: Any = None, **options: Any) -> Any:
        if not callable(map_location) and not isinstance(map_location, dict):
            map_location = "cpu"
        return original(f, map_location=map_location, **options)

    return load


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
        (torch, "Generator"): Generator,
        (torch, "load"): _load(torch.load),
        (torch, "from_numpy"): _from_numpy(torch.from_numpy),
        (torch.amp.autocast_mode.autocast, "__init__"): _autocast(torch.amp.autocast_mode.autocast.__init__),
        (torch.utils._device, "CURRENT_DEVICE"): torch.utils._device.CURRENT_DEVICE,  # which the ranks' scripts may leave changed
        (torch.cuda.graphs, "CUDAGraph"): graphs.CUDAGraph,
        (torch.cuda.graphs, "graph"): graphs.graph,
    }
    table |= {(torch.cuda.memory, name): _unsupported(f"memory.{name}") for name in _MEMORY}
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
