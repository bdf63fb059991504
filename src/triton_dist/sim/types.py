"""Types of the IR and the numpy dtypes that stand for them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ..errors import UnsupportedOperationError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
POINTER = np.dtype(np.int64)

DTYPES: dict[str, np.dtype] = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}


@dataclass(frozen=True)
class Type:
    """A type of the IR.

    shape: of a tensor or of a descriptor's block; None for a scalar.
    element: name of the element type ("f32", "i1", "ptr", "desc").
    pointee: what a pointer points to; the element type of a descriptor.
    """

    shape: tuple[int, ...] | None
    element: str
    pointee: str = ""

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of a tensor or block; none for a scalar."""
        return self.shape or ()

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer or a tensor of pointers."""
        return self.element == "ptr"

    @property
    def is_float(self) -> bool:
        """Whether its elements are floats, 8-bit ones included."""
        return self.element[0] in "fb"

    @property
    def bits(self) -> int:
        """Width of one element; 1 for a boolean."""
        return 1 if self.element == "i1" else self.dtype.itemsize * 8

    @property
    def dtype(self) -> np.dtype:
        """numpy dtype of one element. Raises UnsupportedOperationError."""
        return element_dtype(self.element)

    @property
    def pointee_size(self) -> int:
        """Bytes of what a pointer points to."""
        return 8 if self.pointee.startswith("!tt.ptr") else element_dtype(self.pointee).itemsize


def element_dtype(element: str) -> np.dtype:
    """numpy dtype of an element type. Raises UnsupportedOperationError."""
    if element == "ptr" or element.startswith("!tt.ptr"):
        return POINTER
    if element[:2] in ("si", "ui"):
        element = element[1:]
    try:
        return DTYPES[element]
    except KeyError:
        raise UnsupportedOperationError(f"the simulator has no element type {element!r}") from None


_TENSOR = re.compile(r"((?:\d+x)*)(.*)", re.DOTALL)
_POINTER = re.compile(r"!tt\.ptr<(.*?)(?:, \d+)?>")
_DESCRIPTOR = re.compile(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)+)(\w+)[^>]*>+")


@functools.lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """Decode a type as the generic form prints it. Raises UnsupportedOperationError for a descriptor that it can't read."""
    shape: tuple[int, ...] | None = None
    if text.startswith("tensor<"):
        match = _TENSOR.fullmatch(text[7:-1])
        shape = tuple(int(size) for size in match[1].split("x") if size)  # type: ignore[index]
        text = match[2].partition(", #")[0]  # type: ignore[index]  # without the layout
    if text.startswith("!tt.ptr<"):
        return Type(shape, "ptr", _POINTER.fullmatch(text)[1])  # type: ignore[index]
    if text.startswith("!tt.tensordesc<"):
        match = _DESCRIPTOR.fullmatch(text)
        if match is None:
            raise UnsupportedOperationError(f"the simulator can't read the descriptor type {text}")
        return Type(tuple(int(size) for size in match[1].split("x") if size), "desc", match[2])
    return Type(shape, text)
