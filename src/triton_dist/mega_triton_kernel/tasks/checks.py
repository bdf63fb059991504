"""What all families check of the tensors they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton.language as tl

from ...errors import InvalidArgumentError

TRITON_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
"""Of activations and weights."""
_ALIGNMENT = 16


@dataclass(frozen=True)
class Machine:
    """What tiles are chosen for. programs: of the grid. shared: bytes of shared memory that a program may use for operands."""

    programs: int
    shared: int


def check(what: str, name: str, tensor: object, shape: Sequence[int | None], dtype: torch.dtype | None = None) -> torch.Tensor:
    """``tensor``, as a kernel takes it. shape: None is any size. dtype: None is one of ``TRITON_DTYPES``. Raises InvalidArgumentError."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"{what}: {name} has to be a tensor, got {tensor!r}")
    fits = len(shape) == tensor.dim() and all(want in (None, size) for want, size in zip(shape, tensor.shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidArgumentError(f"{what}: {name} is {tuple(tensor.shape)}; it has to be ({wanted})")
    if not tensor.numel():
        raise InvalidArgumentError(f"{what}: {name} is {tuple(tensor.shape)} and has no elements: leave the operation out")
    if dtype is not None and tensor.dtype != dtype or dtype is None and tensor.dtype not in TRITON_DTYPES:
        wanted = str(dtype or f"one of {', '.join(map(str, TRITON_DTYPES))}")
        raise InvalidArgumentError(f"{what}: {name} is {tensor.dtype}; it has to be {wanted}")
    if not tensor.is_contiguous() or tensor.is_neg():
        raise InvalidArgumentError(f"{what}: {name} has strides {tensor.stride()}; pass a contiguous tensor, {name}.contiguous()")
    if tensor.data_ptr() % _ALIGNMENT:
        raise InvalidArgumentError(f"{what}: {name} begins at an address that is no multiple of {_ALIGNMENT} bytes; pass a copy of it")
    return tensor


def steps_of(machine: Machine, always: int, step: int, most: int = 3) -> int:
    """Steps of a pipeline, up to ``most``, that shared memory has room for. always, step: bytes that are kept, and bytes of a step."""
    return max(1, min(most, (machine.shared - always) // step))


def nbytes(*tensors: torch.Tensor) -> int:
    """Bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def width_of_blocks(elements: int, programs: int, least: int, most: int) -> int:
    """A power of 2 from ``least`` to ``most``: the smallest with at most ``programs`` blocks."""
    width = least
    while width < most and -(-elements // width) > programs:
        width *= 2
    return width
