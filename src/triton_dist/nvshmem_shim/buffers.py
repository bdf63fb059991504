"""Symmetric memory as ``nvshmem.core`` passes it around, tensors and Buffers, and what is checked of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InvalidArgumentError, NotSymmetricError
from ..runtime import symmetric, world


@dataclass(frozen=True)
class Buffer:
    """A range of symmetric memory. handle: its address on this rank. size: bytes."""

    handle: int
    size: int
    tensor: torch.Tensor

    @property
    def device_id(self) -> int:
        """Index of the GPU."""
        return world.local_rank()


def buffer_of(tensor: torch.Tensor) -> Buffer:
    """The bytes of a symmetric tensor."""
    return Buffer(symmetric.address_of(tensor), tensor.numel() * tensor.element_size(), tensor)


def require_buffer(buffer: Any, what: str) -> Buffer:
    """``buffer``, if it is one. Raises InvalidArgumentError."""
    if not isinstance(buffer, Buffer):
        raise InvalidArgumentError(
            f"{what}: {buffer!r} is not a Buffer, as nvshmem.core.buffer makes it; tensors have functions of their own"
        )
    return buffer


def require_tensor(tensor: Any, what: str) -> torch.Tensor:
    """``tensor``, if it is one. Raises InvalidArgumentError."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"{what}: {tensor!r} is not a torch tensor, as nvshmem.core.tensor makes it")
    return tensor


def contents(item: Any, what: str) -> torch.Tensor:
    """The tensor itself, or the one of a Buffer's bytes. Raises InvalidArgumentError for anything else."""
    return item.tensor if isinstance(item, Buffer) else require_tensor(item, f"{what}, which takes a tensor or a Buffer")


def pair(dst: Any, src: Any, what: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Both as tensors. Raises InvalidArgumentError unless they are contiguous and of equal size."""
    target, source = contents(dst, what), contents(src, what)
    sizes = [item.numel() * item.element_size() for item in (target, source)]
    if sizes[0] != sizes[1] or not (target.is_contiguous() and source.is_contiguous()):
        raise InvalidArgumentError(f"{what}: dst and src must be contiguous and of equal size, not {sizes[0]} and {sizes[1]} bytes")
    return target, source


def signal_word(signal_var: Any, what: str) -> torch.Tensor:
    """The signal word: a Buffer's first eight bytes, or a tensor of one integer of 32 or 64 bits. Raises InvalidArgumentError."""
    word = contents(signal_var, what).reshape(-1) if isinstance(signal_var, Buffer) else contents(signal_var, what)
    if isinstance(signal_var, Buffer):
        if signal_var.size < 8:
            raise InvalidArgumentError(f"{what}: a signal word has eight bytes, and this Buffer has {signal_var.size}")
        return (word if word.element_size() == 8 else word.view(torch.uint8)[:8].view(torch.int64))[:1].view(torch.int64)
    if word.numel() != 1 or word.dtype.is_floating_point or word.dtype.is_complex or word.element_size() not in (4, 8):
        raise InvalidArgumentError(
            f"{what}: a signal word is one element of a 32- or 64-bit integer dtype, such as flags[3], not {word.dtype} {list(word.shape)}"
        )
    return word


def require_symmetric(tensor: torch.Tensor, name: str, what: str) -> None:
    """Raises NotSymmetricError for a tensor with elements that are in ordinary memory."""
    if tensor.numel() and not symmetric.is_symmetric(tensor):
        raise NotSymmetricError(f"{what}: {name} is not in symmetric memory; allocate it by nvshmem.core.tensor")
