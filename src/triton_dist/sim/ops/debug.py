"""``device_print``, ``device_assert`` and ``assume``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DeviceAssertionError
from .arith import unsigned

if TYPE_CHECKING:
    from ..program import Program


def check(context: Program, condition, message: str) -> None:
    """Raise DeviceAssertionError, with the message of the kernel, unless ``condition`` holds everywhere."""
    if not np.all(condition):
        where = ""
        if isinstance(condition, np.ndarray) and condition.size > 1:
            where = f" (first at index {tuple(int(i) for i in np.argwhere(~condition)[0])} of a tile)"
        raise DeviceAssertionError(f"{message or 'device_assert failed'}{where}")


def _hexadecimal(digits: int) -> Callable[[Any], str]:
    return lambda item: f"0x{int(item):0{digits}x}"


def show(context: Program, prefix: str, as_hex: bool, values: tuple, shapes: tuple, signed: list[int]) -> None:
    """Print values after the rank and the program; a tile prints as an array."""
    head = f"rank {context.rank} pid {context.pid}{prefix}"
    if not values:
        print(head)
    for number, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        array = np.asarray(value if shape is None else np.broadcast_to(value, shape))
        if array.dtype.kind == "i" and number < len(signed) and not signed[number]:
            array = unsigned(array)
        if as_hex:
            bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
            text = np.array2string(bits, formatter={"int_kind": _hexadecimal(2 * array.dtype.itemsize)})
        else:
            text = np.array2string(array.astype(np.float32) if array.dtype.kind == "V" else array)
        print(f"{head}{text}")
