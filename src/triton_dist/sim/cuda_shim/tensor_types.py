"""``torch.cuda.FloatTensor`` and its kin: types of tensors by the names that older scripts use."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import InvalidArgumentError, UnsupportedOperationError
from ..launch import HOST_MARK

DTYPES = {
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


class TensorType(type):
    """The type of ``torch.cuda.FloatTensor``: called, it makes a tensor; ``isinstance`` asks for the dtype and for the GPU."""

    dtype: torch.dtype
    is_cuda = True

    def __call__(cls, *sizes: Any, device: Any = "cuda") -> torch.Tensor:
        """An uninitialised tensor of these sizes, or one of the values of a sequence or another tensor."""
        if torch.device(device).type != "cuda":
            raise InvalidArgumentError(f"torch.cuda.{cls.__name__}(device={device!r}): this type is on the GPU; use torch.{cls.__name__}")
        if len(sizes) != 1 or isinstance(sizes[0], (int, torch.Size)):
            return torch.empty(sizes[0] if sizes and isinstance(sizes[0], torch.Size) else sizes or (0,), dtype=cls.dtype)
        values = sizes[0]
        return values.detach().clone().to(cls.dtype) if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=cls.dtype)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == cls.dtype and not getattr(value, HOST_MARK, False)


TYPES: dict[str, TensorType] = {name: TensorType(name, (), {"dtype": dtype, "__module__": "torch.cuda"}) for name, dtype in DTYPES.items()}


def name_of(tensor: torch.Tensor) -> str:
    """``tensor.type()``."""
    name = next((name for name, dtype in DTYPES.items() if dtype == tensor.dtype), None)
    if name is None:
        raise UnsupportedOperationError(f"a tensor of {tensor.dtype} has no type by name; ask for tensor.dtype")
    return f"torch.{name}" if getattr(tensor, HOST_MARK, False) else f"torch.cuda.{name}"


def place_of(wanted: Any) -> tuple[str, torch.dtype] | None:
    """Device and dtype of a type as ``tensor.type(wanted)`` takes it; None for what torch understands without CUDA."""
    if isinstance(wanted, TensorType):
        return "cuda", wanted.dtype
    if not isinstance(wanted, str):
        return None
    place, _, name = wanted.rpartition(".")
    if name not in DTYPES or place not in ("torch", "torch.cuda"):
        raise InvalidArgumentError(f"tensor.type({wanted!r}): expected a name such as 'torch.cuda.FloatTensor'")
    return ("cuda" if place == "torch.cuda" else "cpu"), DTYPES[name]


def set_default_tensor_type(wanted: Any) -> None:
    """In place of ``torch.set_default_tensor_type`` for types on the GPU."""
    raise UnsupportedOperationError(
        f"torch.set_default_tensor_type({wanted!r}) has no meaning on the simulator; use torch.set_default_dtype and "
        "torch.set_default_device('cuda')"
    )
