"""Where a program runs: its ranks, their device, and what of it a program may use."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..device_info import get_device_max_shared_memory_size, pretended_gpu
from ..errors import InvalidArgumentError, NoDeviceError, NotInitializedError
from ..runtime.world import current_world
from .graph import Operation

_RESERVED = 8192
"""Bytes of shared memory that no operands may take: reductions, and the profiler."""


@dataclass(frozen=True)
class Machine:
    """What tiles are chosen for. programs: of the grid. shared: bytes of shared memory that a program may use for operands."""

    programs: int
    shared: int


def whole_number(name: str, value: object) -> int:
    """Raises InvalidArgumentError for what is no int."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"ModelBuilder: {name}={value!r} has to be an int") from None


def check_warps(num_warps: int) -> int:
    """Raises InvalidArgumentError."""
    warps = whole_number("num_warps", num_warps)
    if warps not in (1, 2, 4, 8, 16, 32):
        raise InvalidArgumentError(f"ModelBuilder: num_warps={num_warps}; pass a power of 2 from 1 to 32, the most that a block has")
    return warps


def check_ranks(rank: int, world_size: int, local_world_size: int) -> None:
    """Raises InvalidArgumentError, NotInitializedError."""
    for name, value in (("rank", rank), ("world_size", world_size), ("local_world_size", local_world_size)):
        whole_number(name, value)
    if world_size < 1 or local_world_size < 1 or world_size % local_world_size or not 0 <= rank < world_size:
        raise InvalidArgumentError(
            f"ModelBuilder: rank={rank}, world_size={world_size}, local_world_size={local_world_size}; ranks count from 0, and "
            "every node has as many"
        )
    world = current_world()
    if world_size > 1 and world is None:
        raise NotInitializedError(
            f"ModelBuilder: world_size={world_size} needs a world of ranks: call triton_dist.initialize() (or "
            "triton_dist.utils.initialize_distributed()) first, or run in triton_dist.simulate"
        )
    if world_size == 1 or world is None:
        return
    if (rank, world_size, local_world_size) != (world.rank, world.world_size, world.local_world_size):
        raise InvalidArgumentError(
            f"ModelBuilder: rank={rank}, world_size={world_size}, local_world_size={local_world_size}; this is rank {world.rank} of "
            f"{world.world_size}, {world.local_world_size} on each node: pass these"
        )


def device_of_rank() -> torch.device:
    """Where this rank's kernels run."""
    world = current_world()
    if world is not None:
        return world.device
    if not torch.cuda.is_available():
        raise NoDeviceError("ModelBuilder: there is no GPU and no world of ranks; run in triton_dist.simulate or by triton-dist run")
    return torch.device("cuda", torch.cuda.current_device())


def multiprocessors() -> int:
    """Of the GPU, or of the one that the simulator pretends."""
    gpu = pretended_gpu()
    return gpu.sm_count if gpu is not None else torch.cuda.get_device_properties(device_of_rank()).multi_processor_count


def register(operations: Sequence[Operation]) -> None:
    """The simulator learns of tensors by arguments; these are in the tasks."""
    machine: Any = getattr(current_world(), "machine", None)
    if machine is not None:
        for operation in operations:
            for index, tensor in enumerate(operation.tensors):
                machine.memory.register(tensor, name=f"{operation.name}[{index}]")


def shared_memory() -> int:
    """Bytes that operands may take of a program's shared memory."""
    return get_device_max_shared_memory_size() - _RESERVED
