"""What all families check of the tensors they are given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton

from ...errors import InvalidArgumentError
from ...ops.activation import DTYPES
from ...runtime.preload import ALIGNMENT
from ..machine import Machine


def check(what: str, name: str, tensor: object, shape: Sequence[int | None], dtype: torch.dtype | None = None) -> None:
    """Raises InvalidArgumentError unless a kernel takes ``tensor`` as it is. shape: None is any size. dtype: None is one of ``DTYPES``."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"{what}: {name} has to be a tensor, got {tensor!r}")
    fits = len(shape) == tensor.dim() and all(want in (None, size) for want, size in zip(shape, tensor.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidArgumentError(f"{what}: {name} is {tuple(tensor.shape)}; it has to be ({wanted})")
    if not tensor.numel():
        raise InvalidArgumentError(f"{what}: {name} is {tuple(tensor.shape)} and has no elements: leave the operation out")
    if dtype is not None and tensor.dtype != dtype or dtype is None and tensor.dtype not in DTYPES:
        wanted = str(dtype or f"one of {', '.join(map(str, DTYPES))}")
        raise InvalidArgumentError(f"{what}: {name} is {tensor.dtype}; it has to be {wanted}")
    if not tensor.is_contiguous() or tensor.is_neg():
        raise InvalidArgumentError(f"{what}: {name} has strides {tensor.stride()}; pass a contiguous tensor, {name}.contiguous()")
    if tensor.data_ptr() % ALIGNMENT:
        raise InvalidArgumentError(f"{what}: {name} begins at an address that is no multiple of {ALIGNMENT} bytes; pass a copy of it")


def steps_of(machine: Machine, always: int, step: int, most: int = 3) -> int:
    """Steps of a pipeline, up to ``most``, that shared memory has room for. always, step: bytes that are kept, and bytes of a step."""
    return max(1, min(most, (machine.shared - always) // step))


def nbytes(*tensors: torch.Tensor) -> int:
    """Bytes of all tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def width_of_blocks(elements: int, programs: int, least: int, most: int) -> int:
    """A power of 2 from ``least`` to ``most``: the smallest with at most ``programs`` blocks."""
    width = least
    while width < most and triton.cdiv(elements, width) > programs:
        width *= 2
    return width
