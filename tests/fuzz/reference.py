"""What a kernel should compute, one op at a time and without the simulator's code.

Integers are exact Python integers, reduced to their width after each op. Floats are float64 numbers that the type holds exactly: each op is
done in float64 and rounded once to its type (for fp64 the op itself is the rounding). A value that the simulator may round otherwise (a
sum in another order, ``exp``) carries a bound of its error, which later ops widen.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np

FLOATS: dict[str, np.dtype] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
}
INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
SMALLEST_NORMAL = 2.0**-126


@dataclass
class Tile:
    """A value.

    data: an array of float64, object (of int) or bool. error: bounds the absolute error, infinite where nothing is known; None if exact.
    """

    dtype: str
    data: np.ndarray
    error: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def like(self, function: Callable[[np.ndarray], np.ndarray]) -> Tile:
        """The tile moved, not computed with: ``function`` rearranges elements."""
        return Tile(self.dtype, function(self.data), None if self.error is None else function(self.error))


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def bits_of(dtype: str) -> int:
    return int(dtype.removeprefix("u").removeprefix("int"))


def is_unsigned(dtype: str) -> bool:
    return dtype.startswith("u")


def wrap(data: np.ndarray, dtype: str) -> np.ndarray:
    """Integers reduced to a type, two's complement."""
    bits = bits_of(dtype)
    low = 0 if is_unsigned(dtype) else -(1 << (bits - 1))
    flat = [((int(value) - low) & ((1 << bits) - 1)) + low for value in np.asarray(data, object).reshape(-1)]
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(np.shape(data))


def rounded(data: np.ndarray, dtype: str) -> np.ndarray:
    """float64 to the nearest number of a type, which saturates if it has 8 bits."""
    with np.errstate(all="ignore"):
        if dtype.startswith("fp8"):
            limit = float(ml_dtypes.finfo(FLOATS[dtype]).max)
            data = np.clip(data, -limit, limit)
        if dtype in ("bf16", "fp8e5", "fp8e4nv"):
            data = data.astype(np.float32)
        return data.astype(FLOATS[dtype]).astype(np.float64)


def unit(data: np.ndarray, dtype: str) -> np.ndarray:
    """At least the distance of neighbouring numbers of a type."""
    info = ml_dtypes.finfo(FLOATS[dtype])
    with np.errstate(all="ignore"):
        return np.abs(data) * float(info.eps) + float(info.smallest_subnormal)


def settle(data: np.ndarray, error: np.ndarray, dtype: str) -> Tile:
    """A tile with an error bound; where the error may reach infinity or NaN nothing is known."""
    limit = float(ml_dtypes.finfo(FLOATS[dtype]).max)
    with np.errstate(all="ignore"):
        sure = np.isfinite(data) & np.isfinite(error) & (np.abs(data) + 2 * error < limit)
    return Tile(dtype, data, np.where(sure, error, np.inf))


def float_binary(symbol: str, a: Tile, b: Tile) -> Tile:
    """``+``, ``-``, ``*`` or ``/``."""
    x, y = a.data, b.data
    with np.errstate(all="ignore"):
        exact = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[symbol](x, y)
        result = rounded(exact, a.dtype)
        if a.error is None and b.error is None:
            return Tile(a.dtype, result)
        left = np.zeros_like(x) if a.error is None else a.error
        right = np.zeros_like(y) if b.error is None else b.error
        if symbol in "+-":
            error = left + right
        elif symbol == "*":
            error = np.abs(x) * right + np.abs(y) * left + left * right
        else:
            error = np.where(right < np.abs(y) / 2, (left + np.abs(exact) * right) / np.abs(y) * 2, np.inf)
        return settle(result, error + 2 * unit(result, a.dtype), a.dtype)


def integer_binary(symbol: str, a: Tile, b: Tile) -> Tile:
    """Arithmetic, bits and shifts; divisors are not 0 and shift amounts below the width."""
    functions: dict[str, Callable[[int, int], int]] = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "&": lambda x, y: x & y,
        "|": lambda x, y: x | y,
        "^": lambda x, y: x ^ y,
        "//": lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1),
        "%": lambda x, y: abs(x) % abs(y) * (-1 if x < 0 else 1),
        "<<": lambda x, y: x << y,
        ">>": lambda x, y: x >> y,
        "min": min,
        "max": max,
    }
    return Tile(a.dtype, wrap(elementwise(functions[symbol], a.data, b.data), a.dtype))


def elementwise(function: Callable, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of Python values."""
    spread = np.broadcast_arrays(*arrays)
    result = np.empty(spread[0].size, object)
    result[:] = [function(*values) for values in zip(*(array.reshape(-1).tolist() for array in spread), strict=True)]
    return result.reshape(spread[0].shape)


def larger_number(x: float, y: float) -> float:
    """The larger of two numbers, +0 above -0; a NaN only if both are."""
    if math.isnan(x) or math.isnan(y):
        return y if math.isnan(x) else x
    if x == y == 0:
        return x if math.copysign(1, x) > 0 else y
    return max(x, y)


def float_extremum(largest: bool, a: Tile, b: Tile) -> Tile:
    """``tl.maximum`` or ``tl.minimum`` without NaN propagation."""
    sign = 1 if largest else -1
    data = elementwise(lambda x, y: sign * larger_number(sign * x, sign * y), a.data, b.data).astype(np.float64)
    if a.error is None and b.error is None:
        return Tile(a.dtype, data)
    errors = [np.zeros(tile.shape) if tile.error is None else tile.error for tile in (a, b)]
    error = np.maximum(*np.broadcast_arrays(*errors))
    nan = np.isnan(a.data) | np.isnan(b.data)
    return settle(data, np.where(nan, np.inf, error), a.dtype)


def compare(symbol: str, a: Tile, b: Tile) -> Tile:
    """A comparison of exact tiles."""
    functions = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
    return Tile("int1", functions[symbol](a.data, b.data).astype(bool))


def flushed(data: np.ndarray, dtype: str) -> np.ndarray:
    """fp32 subnormals as zeros of their sign."""
    return np.where(np.abs(data) < SMALLEST_NORMAL, np.copysign(0.0, data), data) if dtype == "fp32" else data


_SLOPES: dict[str, tuple[Callable, bool]] = {
    # function, and whether it reads fp32 subnormals as zeros
    "exp": (np.exp, False),
    "exp2": (np.exp2, False),
    "log": (np.log, False),
    "log2": (np.log2, False),
    "sin": (np.sin, True),
    "cos": (np.cos, False),
    "sqrt": (np.sqrt, True),
    "rsqrt": (lambda x: 1 / np.sqrt(x), True),
}
MATH = tuple(_SLOPES)


def math_function(name: str, a: Tile) -> Tile:
    """A function of an exact tile, to four units in the last place."""
    function, flushes = _SLOPES[name]
    with np.errstate(all="ignore"):
        wide = function(flushed(a.data, a.dtype) if flushes else a.data)
        result = rounded(wide, a.dtype)
        error = 4 * unit(result, a.dtype)
        if a.dtype == "fp32" and name == "exp2":
            error = error + np.where(np.abs(wide) < 2 * SMALLEST_NORMAL, SMALLEST_NORMAL, 0)
        special = ~np.isfinite(result)
        return Tile(a.dtype, result, np.where(special & (np.abs(wide) > 0) & np.isfinite(wide), np.inf, np.where(special, 0, error)))


def fused_multiply_add(a: Tile, b: Tile, c: Tile) -> Tile:
    """``a * b + c`` of exact tiles, rounded once."""

    def one(x: float, y: float, z: float) -> float:
        if not all(map(math.isfinite, (x, y, z))) or (x * y + z == 0 and (x == 0 or y == 0)):
            return x * y + z
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        return nearest(exact, a.dtype) if exact else x * y + z

    with np.errstate(all="ignore"):
        return Tile(a.dtype, elementwise(one, a.data, b.data, c.data).astype(np.float64))


def nearest(value: Fraction, dtype: str) -> float:
    """A number, not zero, rounded to fp32 or fp64. Python rounds to fp64; for fp32 to an integer count of its units."""
    if dtype == "fp64":
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    exponent = max(math.frexp(float(value))[1] - 24, -149)
    magnitude = rounded(np.array(math.ldexp(round(abs(value) / Fraction(2) ** exponent), exponent)), dtype)
    return math.copysign(float(magnitude), value)


def convert(a: Tile, dtype: str) -> Tile:
    """``a.to(dtype)``; a float must be exact where it becomes an integer."""
    if a.dtype == dtype:
        return a
    if is_float(a.dtype) and is_float(dtype):
        result = rounded(a.data, dtype)
        return Tile(dtype, result) if a.error is None else settle(result, a.error + unit(result, dtype), dtype)
    if dtype == "int1":
        return Tile(dtype, np.asarray(a.data != 0).astype(bool))
    if not is_float(a.dtype):
        integers = a.data.astype(object) if a.dtype != "int1" else elementwise(int, a.data)
        return Tile(dtype, wrap(integers, dtype)) if not is_float(dtype) else Tile(dtype, integers_to_float(integers, dtype))
    return Tile(dtype, elementwise(lambda x: float_to_integer(x, a.dtype, dtype), a.data))


def integers_to_float(data: np.ndarray, dtype: str) -> np.ndarray:
    """To nearest; bf16 by way of fp32. A Python integer becomes the nearest float64; fp32 and fp16 need one rounding from the integer."""

    def nearest(value: int) -> float:
        digits = {"fp64": 53, "fp32": 24, "bf16": 24, "fp16": 53}[dtype]
        excess = max(abs(value).bit_length() - digits, 0)
        quotient, rest = divmod(abs(value), 1 << excess)
        half = (1 << excess) >> 1
        if excess and (rest > half or (rest == half and quotient & 1)):
            quotient += 1
        return math.copysign(float(quotient << excess), value)

    return rounded(elementwise(nearest, data).astype(np.float64), dtype)


def float_to_integer(x: float, source: str, dtype: str) -> int:
    """Toward zero, saturating at 16 bits or more; 8 bits are the low byte of 16. NaN: see the simulator's ``float_to_int``."""
    bits = max(bits_of(dtype), 16)
    low, high = (0, (1 << bits) - 1) if is_unsigned(dtype) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if math.isnan(x):
        value = (1 << (bits - 1) if is_unsigned(dtype) else low) if bits == 64 or source == "fp64" else 0
    elif math.isinf(x):
        value = high if x > 0 else low
    else:
        value = min(max(int(x), low), high)
    return int(wrap(np.array([value], object), dtype)[0])
