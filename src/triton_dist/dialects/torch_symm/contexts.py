"""The context structs of torch's library, byte for byte as its C++ has them, and where to get one that kernels can read."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

import torch

from ...errors import InvalidArgumentError, NotSymmetricError
from ...runtime.address_map import GUARD_BYTES, STRIDE, rank_of
from ...runtime.symmetric import address_of, is_symmetric
from ...runtime.world import require_world


class SymmContext(ctypes.Structure):
    """The head of every context: who this rank is. type: a ``SymmContext.Type``."""

    class Type(IntEnum):
        """Which struct it is."""

        NCCL = 0
        NVSHMEM = 1

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("type", ctypes.c_int32), ("rank", ctypes.c_int32), ("world_size", ctypes.c_int32))


class NCCLSymmContext(SymmContext):
    """NCCL's windows and communicator, all of them addresses. ``symm_all_reduce`` answers -2 to it, for NCCL has no device bitcode."""

    _fields_ = (
        ("buffer_window", ctypes.c_void_p),
        ("signal_window", ctypes.c_void_p),
        ("dev_comm", ctypes.c_void_p),
        ("local_buffer", ctypes.c_void_p),
        ("buffer_size", ctypes.c_size_t),
        ("device_idx", ctypes.c_int32),
    )


class NVSHMEMSymmContext(SymmContext):
    """A symmetric buffer. local_buffer: its address on this rank. buffer_size: bytes. offset: of the buffer in its allocation's memory."""

    _fields_ = (
        ("local_buffer", ctypes.c_void_p),
        ("buffer_size", ctypes.c_size_t),
        ("device_idx", ctypes.c_int32),
        ("offset", ctypes.c_size_t),
    )


def on_device(context: SymmContext) -> torch.Tensor:
    """A context's bytes on this rank's device: a uint8 tensor, whose address is what kernels take as ``ctx_ptr``. Keep it alive.

    Raises InvalidArgumentError, NotInitializedError.
    """
    if not isinstance(context, SymmContext):
        raise InvalidArgumentError(f"on_device: {context!r} must be a SymmContext, such as NVSHMEMSymmContext(...); make_context makes one")
    return torch.frombuffer(bytearray(context), dtype=torch.uint8).to(require_world("on_device").device)


def make_context(buffer: torch.Tensor) -> torch.Tensor:
    """The context of a symmetric buffer, for kernels of the world: pass the tensor itself as ``ctx_ptr``, or its ``data_ptr()``.

    buffer: a contiguous symmetric tensor of all ranks, this rank's own part.
    Raises InvalidArgumentError, NotSymmetricError, NotInitializedError.
    """
    world = require_world("make_context")
    if not isinstance(buffer, torch.Tensor) or not buffer.is_contiguous():
        raise InvalidArgumentError(f"make_context: buffer={buffer!r} must be a contiguous tensor")
    if not is_symmetric(buffer):
        raise NotSymmetricError(
            f"make_context: a tensor of shape {list(buffer.shape)} is in ordinary memory; allocate it by triton_dist.symm_empty"
        )
    address = address_of(buffer)
    ranks = world.heap.lookup(address).ranks
    if len(ranks) != world.world_size:
        raise InvalidArgumentError(
            f"make_context: the buffer is one of ranks {list(ranks)}, and symm_all_reduce is a call of all {world.world_size}; allocate it "
            "without group="
        )
    if rank_of(address) != world.rank:
        raise InvalidArgumentError(
            f"make_context: the buffer is rank {rank_of(address)}'s part, and this is rank {world.rank}; pass the tensor that "
            "symm_empty gave, not symm_peer of it"
        )
    context = NVSHMEMSymmContext(
        type=SymmContext.Type.NVSHMEM,
        rank=world.rank,
        world_size=world.world_size,
        local_buffer=address,
        buffer_size=buffer.numel() * buffer.element_size(),
        device_idx=world.device.index or 0,
        offset=address % STRIDE - GUARD_BYTES,
    )
    return on_device(context)
