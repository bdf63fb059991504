"""The documented host names of ``triton_dist.utils``: thin forms of what ``triton_dist.runtime`` does."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .device_info import (
    get_cpu_info_linux,
    get_current_gpu_clock_rate_in_khz,
    get_device_max_shared_memory_size,
    get_device_property,
    get_max_gpu_clock_rate_in_khz,
    get_numa_node,
    has_fullmesh_nvlink,
    has_tma,
    is_cuda,
    is_hip,
    is_nvshmem_multimem_supported,
    supports_p2p_native_atomic,
    torch_stream_max_priority,
)
from .errors import InvalidArgumentError, NoDeviceError, NotInitializedError
from .runtime import streams, symmetric, world
from .runtime.foreign_streams import as_stream
from .script_helpers import (
    CUDA_CHECK,
    bindings,
    cuda_occupancy_max_activate_blocks_per_multiprocessor,
    generate_data,
    has_nvshmemi_bc_built,
    is_fp8_dtype,
    launch_cooperative_grid_options,
    requires,
    requires_p2p_native_atomic,
    sleep_async,
    support_launch_cooperative_grid,
    wait_until_max_gpu_clock_or_warning,
    with_torch_deterministic,
)

if TYPE_CHECKING:
    import torch.distributed as dist

__all__ = [
    "CUDA_CHECK",
    "NVSHMEM_SIGNAL_DTYPE",
    "cuda_occupancy_max_activate_blocks_per_multiprocessor",
    "dist_print",
    "finalize_distributed",
    "generate_data",
    "get_bool_env",
    "get_cpu_info_linux",
    "get_current_gpu_clock_rate_in_khz",
    "get_device_max_shared_memory_size",
    "get_device_property",
    "get_int_env",
    "get_max_gpu_clock_rate_in_khz",
    "get_numa_node",
    "get_triton_dist_local_world_size",
    "get_triton_dist_world",
    "has_fullmesh_nvlink",
    "has_nvshmemi_bc_built",
    "has_tma",
    "init_nvshmem_by_torch_process_group",
    "init_rocshmem_by_torch_process_group",
    "init_seed",
    "initialize_distributed",
    "is_cuda",
    "is_fp8_dtype",
    "is_hip",
    "is_nvshmem_multimem_supported",
    "is_shmem_initialized",
    "launch_cooperative_grid_options",
    "nvshmem_barrier_all_on_stream",
    "nvshmem_create_tensor",
    "nvshmem_create_tensors",
    "nvshmem_free_tensor_sync",
    "rand_tensor",
    "requires",
    "requires_p2p_native_atomic",
    "rocshmem_barrier_all_on_stream",
    "sleep_async",
    "support_launch_cooperative_grid",
    "supports_p2p_native_atomic",
    "torch_stream_max_priority",
    "wait_until_max_gpu_clock_or_warning",
    "with_torch_deterministic",
]

NVSHMEM_SIGNAL_DTYPE = torch.int64
"""dtype of the signal words of puts with a signal."""

_BINDINGS = {"cuda": "driver", "cudart": "runtime"}
"""Modules of cuda-bindings by the names that scripts import from here."""

_GROUP = "process group of symmetric memory"
"""Key in a world's workspaces."""

_TRUE = ("1", "true", "on", "yes", "y")
_FALSE = ("0", "false", "off", "no", "n", "")


def __getattr__(name: str) -> Any:
    if name in _BINDINGS:
        return bindings(_BINDINGS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def initialize_distributed(seed: int | None = None, initialize_shmem: bool = True) -> dist.ProcessGroup:
    """Start ``torch.distributed``, seed this rank, and make symmetric memory ready. Every rank calls it.

    seed: of torch's, numpy's and Python's random states; default the rank.
    initialize_shmem: whether ``is_shmem_initialized`` is true afterwards and symmetric tensors can be made.
    Returns the process group of all ranks.
    """
    import torch.distributed as dist

    if seed is not None:
        _check_seed("initialize_distributed", seed)
    world.initialize()
    context = world.require_world("initialize_distributed")
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl")
    group = dist.new_group(ranks=list(range(context.world_size)))
    init_seed(context.rank if seed is None else seed)
    if initialize_shmem:
        init_nvshmem_by_torch_process_group(group)
    dist.barrier(group)
    return group


def init_nvshmem_by_torch_process_group(pg: dist.ProcessGroup) -> None:
    """Make symmetric memory ready for the ranks of ``pg``, which must be all ranks. Every one of them calls it."""
    import torch.distributed as dist

    if not isinstance(pg, dist.ProcessGroup):
        raise InvalidArgumentError(f"init_nvshmem_by_torch_process_group: {pg!r} is not a process group; pass one of all ranks")
    world.initialize()
    context = world.require_world("init_nvshmem_by_torch_process_group")
    if pg.size() != context.world_size:
        raise InvalidArgumentError(
            f"init_nvshmem_by_torch_process_group: the group has {pg.size()} ranks but the world has {context.world_size}; "
            "pass a group of all ranks"
        )
    context.shmem_initialized = True
    context.workspaces[_GROUP] = pg


init_rocshmem_by_torch_process_group = init_nvshmem_by_torch_process_group


def finalize_distributed() -> None:
    """Wait for this rank's device work, then leave symmetric memory and ``torch.distributed``. Every rank calls it."""
    import torch.distributed as dist

    context = world.require_world("finalize_distributed")
    context.synchronize(why="finalize_distributed()")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    context.shmem_initialized = False


def is_shmem_initialized() -> bool:
    """Whether ``initialize_distributed`` (with ``initialize_shmem``) made symmetric memory ready here."""
    context = world.current_world()
    return context is not None and context.shmem_initialized


def get_triton_dist_world() -> dist.ProcessGroup:
    """The process group that symmetric memory was initialized with. Raises NotInitializedError before that."""
    _require_shmem("get_triton_dist_world")
    return world.require_world("get_triton_dist_world").workspaces[_GROUP]


def get_triton_dist_local_world_size() -> int:
    """Number of ranks on this node."""
    return world.local_world_size()


def nvshmem_create_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Create a symmetric tensor; contents unspecified. Every rank calls it (see ``symm_empty``)."""
    _require_shmem("nvshmem_create_tensor")
    return symmetric.symm_empty(shape, dtype)


def nvshmem_create_tensors(shape: Sequence[int], dtype: torch.dtype, rank: int, local_world_size: int) -> list[torch.Tensor]:
    """Create a symmetric tensor and return it as seen on each rank of this node; entry ``rank % local_world_size`` is our own.

    rank: this rank in the world. local_world_size: ranks on each node. Raises InvalidArgumentError if they are not this world's.
    """
    _require_shmem("nvshmem_create_tensors")
    context = world.require_world("nvshmem_create_tensors")
    for name, value, expected, source in (
        ("rank", rank, context.rank, "triton_dist.rank()"),
        ("local_world_size", local_world_size, context.local_world_size, "get_triton_dist_local_world_size()"),
    ):
        if value != expected:
            raise InvalidArgumentError(f"nvshmem_create_tensors: {name}={value!r}, but here it is {expected}; pass {source}")
    tensor = symmetric.symm_empty(shape, dtype)
    first = rank // local_world_size * local_world_size
    return [tensor if peer == rank else symmetric.symm_peer(tensor, peer) for peer in range(first, first + local_world_size)]


def nvshmem_free_tensor_sync(tensor: torch.Tensor) -> None:
    """Wait for this rank's device work, then free a symmetric tensor. Every rank calls it."""
    streams.synchronize()
    symmetric.symm_free(tensor)


def _require_shmem(what: str) -> None:
    world.require_world(what)
    if not is_shmem_initialized():
        raise NotInitializedError(f"{what} needs symmetric memory: call triton_dist.utils.initialize_distributed() first")


def nvshmem_barrier_all_on_stream(stream: Any = None) -> None:
    """A barrier of all ranks on ``stream`` (default: the current stream); the host does not wait.

    Work queued after it on any rank's stream starts when all work queued before it on every rank's stream has finished.
    stream: a ``triton_dist.Stream``, a ``torch.cuda.Stream``, or a driver handle.
    """
    context = world.require_world("nvshmem_barrier_all_on_stream")
    queue = as_stream(stream, "nvshmem_barrier_all_on_stream")
    simulation = getattr(context, "simulation", None)
    if simulation is not None:
        simulation.stream_barrier.enqueue(context, None if queue is None else queue.handle)
        return
    from .ops.collectives.barrier import barrier

    with streams.stream(queue):
        barrier()


rocshmem_barrier_all_on_stream = nvshmem_barrier_all_on_stream


def dist_print(*args: Any, allowed_ranks: Sequence[int] | str = (0,), prefix: bool = False, need_sync: bool = False, **kwargs: Any) -> None:
    """``print`` on some ranks only.

    allowed_ranks: the ranks that print, or "all".
    prefix: begin each print with the rank.
    need_sync: wait for this rank's device work first, and print the ranks one after the other, in order; every rank must call it.
    """
    context = world.require_world("dist_print")
    if isinstance(allowed_ranks, str) and allowed_ranks != "all":
        raise InvalidArgumentError(f'dist_print: allowed_ranks={allowed_ranks!r} must be a sequence of ranks or "all"')
    chosen = range(context.world_size) if isinstance(allowed_ranks, str) else allowed_ranks
    if need_sync:
        streams.synchronize()
    for turn in range(context.world_size) if need_sync else (context.rank,):
        if turn == context.rank and turn in chosen:
            print(*((f"[rank:{context.rank}]",) if prefix else ()), *args, **kwargs)
            (kwargs.get("file") or sys.stdout).flush()
        if need_sync:
            import torch.distributed as dist

            dist.barrier()


def rand_tensor(shape: Sequence[int], dtype: torch.dtype, device: str | torch.device = "cuda") -> torch.Tensor:
    """A tensor of random numbers: in [-1, 1] for floats, in the dtype's range up to ±127 for integers, any for bool.

    device: "cuda" means the active machine's device, so that scripts run unchanged on the simulator.
    Raises InvalidArgumentError for another dtype, NoDeviceError for "cuda" where there is neither a GPU nor a world.
    """
    if not isinstance(dtype, torch.dtype) or dtype.is_complex:
        raise InvalidArgumentError(f"rand_tensor: dtype={dtype!r} must be torch's of floats, integers or bool")
    if str(device).split(":")[0] == "cuda":
        if world.is_initialized():
            device = streams.device()
        elif not torch.cuda.is_available():
            raise NoDeviceError(f"rand_tensor on {str(device)!r}: there is no GPU, and no world of the simulator's; pass device='cpu'")
    if dtype.is_floating_point:
        return (torch.rand(tuple(shape), device=device) * 2 - 1).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(shape), device=device).to(dtype)
    low = max(torch.iinfo(dtype).min, -127)
    return torch.randint(low, 128, tuple(shape), device=device).to(dtype)


def init_seed(seed: int = 0) -> None:
    """Seed torch's, numpy's and Python's random states of this rank. Raises InvalidArgumentError unless it is an integer of 64 bits."""
    _check_seed("init_seed", seed)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(int(seed))


def _check_seed(what: str, seed: object) -> None:
    if not isinstance(seed, (int, np.integer)) or not -(1 << 63) <= seed < 1 << 64:
        raise InvalidArgumentError(f"{what}: seed={seed!r} must be an integer of 64 bits")


def get_bool_env(env: str, default_value: bool) -> bool:
    """The environment variable ``env`` as a bool: 1/true/on/yes or 0/false/off/no, in any case; ``default_value`` if it is not set."""
    text = os.environ.get(env)
    if text is None:
        return default_value
    if text.strip().lower() not in _TRUE + _FALSE:
        raise InvalidArgumentError(f"{env}={text!r} is not a bool; use 1 or 0")
    return text.strip().lower() in _TRUE


def get_int_env(env: str, default_value: int) -> int:
    """The environment variable ``env`` as an int; ``default_value`` if it is not set or empty."""
    text = os.environ.get(env, "").strip()
    try:
        return int(text, 0) if text else default_value
    except ValueError:
        raise InvalidArgumentError(f"{env}={text!r} is not an integer") from None
