"""Arithmetic whose result on a GPU is not what the plain numpy expression gives.

Tiles are numpy arrays (or numpy scalars for a value that is the same everywhere); uniform integers are Python ints, booleans are
Python bools. Integer tensors are signless as in the IR: a signed array, reinterpreted where an op is unsigned.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..types import BFLOAT16


def wrap(value: int, bits: int) -> int:
    """A Python int reduced to a signed integer of ``bits`` bits."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def unsigned(array):
    """The same bits as an unsigned integer array."""
    return array.view(f"u{array.dtype.itemsize}")


def divide_signed(a, b):
    """Quotient rounded toward zero; division by zero gives all ones."""
    zero = b == 0
    if np.any(zero):
        safe = np.where(zero, b.dtype.type(1), b)
        return np.where(zero, a.dtype.type(-1), divide_signed(a, safe))
    quotient = a // b
    wrong = (quotient * b != a) & ((a < 0) != (b < 0))
    return quotient + wrong if np.any(wrong) else quotient


def remainder_signed(a, b):
    """Remainder with the sign of ``a``; by zero it is ``a``."""
    zero = b == 0
    if np.any(zero):
        safe = np.where(zero, b.dtype.type(1), b)
        return np.where(zero, a, remainder_signed(a, safe))
    return np.fmod(a, b)


def divide_unsigned(a, b):
    """Unsigned quotient; division by zero gives all ones."""
    x, y = unsigned(a), unsigned(b)
    zero = y == 0
    if np.any(zero):
        return np.where(zero, x.dtype.type(-1 % (1 << 8 * x.dtype.itemsize)), x // np.where(zero, y.dtype.type(1), y)).view(a.dtype)
    return (x // y).view(a.dtype)


def remainder_unsigned(a, b):
    """Unsigned remainder; by zero it is ``a``."""
    x, y = unsigned(a), unsigned(b)
    zero = y == 0
    if np.any(zero):
        return np.where(zero, x, x % np.where(zero, y.dtype.type(1), y)).view(a.dtype)
    return (x % y).view(a.dtype)


def divide_signed_int(a: int, b: int) -> int:
    """``divide_signed`` of Python ints; the caller wraps."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder_signed_int(a: int, b: int) -> int:
    """``remainder_signed`` of Python ints."""
    return a - b * divide_signed_int(a, b) if b else a


def divide_unsigned_int(a: int, b: int, bits: int) -> int:
    """``divide_unsigned`` of Python ints."""
    mask = (1 << bits) - 1
    return wrap((a & mask) // (b & mask), bits) if b else -1


def remainder_unsigned_int(a: int, b: int, bits: int) -> int:
    """``remainder_unsigned`` of Python ints."""
    mask = (1 << bits) - 1
    return wrap((a & mask) % (b & mask), bits) if b else a


def shift_left(a, b):
    """``a << b``; a shift by the width or more gives 0."""
    bits = a.dtype.itemsize * 8
    amount = unsigned(b)
    over = amount >= bits
    if np.any(over):
        return np.where(over, a.dtype.type(0), a << np.where(over, b.dtype.type(0), b))
    return a << b


def shift_right_signed(a, b):
    """Arithmetic shift; by the width or more it gives the sign."""
    return a >> np.minimum(unsigned(b), b.dtype.itemsize * 8 - 1).view(b.dtype)


def shift_right_unsigned(a, b):
    """Logical shift; by the width or more it gives 0."""
    bits = a.dtype.itemsize * 8
    amount = unsigned(b)
    over = amount >= bits
    shifted = unsigned(a) >> np.where(over, amount.dtype.type(0), amount)
    return np.where(over, shifted.dtype.type(0), shifted).view(a.dtype)


def shift_int(kind: str, a: int, b: int, bits: int) -> int:
    """Shifts of Python ints. kind: "shli", "shrsi" or "shrui"."""
    amount = b & ((1 << bits) - 1)
    if kind == "shrsi":
        return a >> min(amount, bits - 1)
    if amount >= bits:
        return 0
    return wrap(a << amount, bits) if kind == "shli" else wrap((a & ((1 << bits) - 1)) >> amount, bits)


def multiply_high_unsigned(a, b):
    """Upper half of the unsigned product, for 8 to 64 bits."""
    size = a.dtype.itemsize
    x, y = unsigned(a), unsigned(b)
    if size < 8:
        wide = f"u{2 * size}"
        return ((x.astype(wide) * y.astype(wide)) >> (8 * size)).astype(f"u{size}").view(a.dtype)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & mask, x >> shift, y & mask, y >> shift
    cross = x0 * y0 >> shift
    middle = x1 * y0 + cross
    low = (middle & mask) + x0 * y1
    return (x1 * y1 + (middle >> shift) + (low >> shift)).view(a.dtype)


def multiply_high_unsigned_int(a: int, b: int, bits: int) -> int:
    """``multiply_high_unsigned`` of Python ints."""
    mask = (1 << bits) - 1
    return wrap((a & mask) * (b & mask) >> bits, bits)


def _fix_zeros(result, a, b, largest: bool):
    """numpy may return either zero for the maximum of +0 and -0; the GPU orders them."""
    zero = result == 0
    if np.any(zero):
        both = (a == 0) & (b == 0)
        if np.any(both):
            exact = a + b if largest else -((-a) + (-b))
            return np.where(both, exact, result)
    return result


def quiet(x):
    """The same numbers with quiet NaNs: numpy's ``fmax`` and ``fmin`` take a signaling one for the result, the GPU as missing."""
    return x * x.dtype.type(1)


def _extremum_number(ufunc, a, b):
    result = ufunc(a, b)
    return ufunc(quiet(a), quiet(b)) if np.isnan(result).any() else result


def maximum_number(a, b):
    """The larger; a NaN counts only if both are."""
    return _fix_zeros(_extremum_number(np.fmax, a, b), a, b, True)


def minimum_number(a, b):
    """The smaller; a NaN counts only if both are."""
    return _fix_zeros(_extremum_number(np.fmin, a, b), a, b, False)


def maximum(a, b):
    """The larger; NaN if either is."""
    return _fix_zeros(np.maximum(a, b), a, b, True)


def minimum(a, b):
    """The smaller; NaN if either is."""
    return _fix_zeros(np.minimum(a, b), a, b, False)


def clamp(x, lo, hi, propagate: bool):
    """``x`` limited to ``lo`` .. ``hi``; a NaN ``x`` stays NaN if ``propagate``, else becomes ``lo``."""
    if propagate:
        return minimum(maximum(x, lo), hi)
    return minimum_number(maximum_number(x, lo), hi)


def float_to_int(x, dtype: np.dtype, is_unsigned: bool):
    """Toward zero, saturating; NaN gives 0, or the sign bit alone where the source or the result has 64 bits (as PTX's cvt does).

    There is no conversion to 8 bits: it is the low byte of the one to 16, so 128.0 becomes -128 and 300.0 becomes 44.
    """
    if dtype.itemsize == 1:
        return float_to_int(x, np.dtype(np.int16), is_unsigned).astype(dtype)
    bits = dtype.itemsize * 8
    source_bits = x.dtype.itemsize * 8
    value = x if source_bits >= 32 else x.astype(np.float32)
    nan = np.isnan(value)
    if is_unsigned:
        lo, hi = 0.0, 2.0**bits
        target = np.dtype(f"u{dtype.itemsize}")
        top = (1 << bits) - 1
    else:
        lo, hi = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
        target = dtype
        top = (1 << (bits - 1)) - 1
    value = np.where(nan, 0, value)
    over = value >= hi
    under = value <= lo
    result = np.where(over | under, value.dtype.type(0), value).astype(target)
    if np.any(over):
        result = np.where(over, target.type(top), result)
    if np.any(under):
        result = np.where(under, target.type(int(lo)), result)
    if np.any(nan) and (bits == 64 or source_bits == 64):
        result = np.where(nan, target.type(1 << (bits - 1)) if is_unsigned else target.type(-(1 << (bits - 1))), result)
    return result.view(dtype) if is_unsigned else result


def int_to_float(x, dtype: np.dtype, is_unsigned: bool):
    """Round to nearest even; bf16 goes by way of fp32, as Triton's lowering does."""
    if x.dtype == np.bool_:
        x = x.astype(np.int8) if is_unsigned else -x.astype(np.int8)
    value = unsigned(x) if is_unsigned else x
    return value.astype(np.float32).astype(dtype) if dtype == BFLOAT16 else value.astype(dtype)


_MAX_FINITE = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57344.0}


def convert_float(x, dtype: np.dtype, toward_zero: bool = False):
    """Float to float, to nearest even or toward zero. The 8-bit types saturate to their largest finite value, as on NVIDIA."""
    if x.dtype.name == "float8_e5m2" and dtype == BFLOAT16:
        return _e5m2_to_bfloat16(x)
    if dtype.itemsize >= x.dtype.itemsize and not (dtype.itemsize == 1 and x.dtype != dtype):
        return x.astype(np.float32).astype(dtype) if x.dtype.itemsize == 1 or dtype == BFLOAT16 or x.dtype == BFLOAT16 else x.astype(dtype)
    limit = _MAX_FINITE.get(dtype.name)
    if limit is not None:
        wide = x.astype(np.float32)
        result = np.clip(wide, np.float32(-limit), np.float32(limit)).astype(dtype)
    else:
        wide = x
        result = x.astype(dtype)
    return _step_toward_zero(wide, result) if toward_zero else result


def _e5m2_to_bfloat16(x):
    """Triton shifts the exponent and mantissa into place and scales: infinity becomes 65536, a NaN 81920 or more."""
    code = np.asarray(x.view(np.uint8)).astype(np.uint16)
    magnitude = ((code & 0x7F) << 5).view(BFLOAT16) * BFLOAT16.type(2.0**112)
    return (magnitude.view(np.uint16) | ((code & 0x80) << 8)).view(BFLOAT16)[()]


def _step_toward_zero(wide, rounded):
    """One unit less in magnitude wherever rounding went away from zero."""
    back = np.abs(rounded.astype(wide.dtype))
    away = back > np.abs(wide)
    bits = unsigned(rounded)
    return np.where(away, bits - bits.dtype.type(1), bits).view(rounded.dtype)


def fused_multiply_add(a, b, c):
    """``a * b + c`` rounded once: fp32 and narrower exactly by way of fp64, fp64 by error-free transformation."""
    from .libdevice import LIBDEVICE
    from .libdevice_rounding import exact_sum, round_to_odd

    if a.dtype.itemsize == 8:
        return LIBDEVICE["__nv_fma"](a, b, c)
    if a.dtype == np.float32:  # the instruction, unlike the library's function, keeps subnormals
        return replace(LIBDEVICE["__nv_fmaf"], reads_subnormals=True, returns_subnormals=True)(a, b, c)
    first, second, third = [operand.astype(np.float64) for operand in (a, b, c)]
    total, error = exact_sum(first * second, third)  # the product is exact
    return _round_once(np.asarray(round_to_odd(total, np.where(np.isfinite(error), error, 0))), a.dtype)[()]


def _round_once(wide: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """fp64 to a 16-bit type; bf16 by way of an fp32 whose last bit says that something was cut off, so that nothing is rounded twice."""
    if dtype != BFLOAT16:
        return wide.astype(dtype)
    nearest = wide.astype(np.float32)
    bits = unsigned(nearest) - (np.abs(nearest) > np.abs(wide)).astype(np.uint32)
    return (bits | (bits.view(np.float32) != wide)).astype(np.uint32).view(np.float32).astype(dtype)


_SMALLEST_NORMAL = np.float32(2.0**-126)


def flush(x):
    """fp32 with subnormal numbers replaced by a zero of their sign, as the units for special functions and atomics read them."""
    return x * (np.abs(x) >= _SMALLEST_NORMAL)


def remainder_float(a, b):
    """``arith.remf`` as the GPU's compiler expands it: ``a - trunc(a / b) * b``, rounded twice; ``a`` where ``b`` is infinite.

    For a quotient above the mantissa's width the result is not a remainder, and may be larger than ``b``.
    """
    return np.where(np.isinf(b), a, fused_multiply_add(-np.trunc(a / b), b, a))[()]


def compare_float(predicate: int, a, b):
    """``arith.cmpf`` for the predicates that are not one numpy operator."""
    unordered = np.isnan(a) | np.isnan(b)
    if predicate == 7:
        return ~unordered
    if predicate == 14:
        return unordered
    if predicate == 6:
        return (a != b) & ~unordered
    ordered = {8: a == b, 9: a > b, 10: a >= b, 11: a < b, 12: a <= b}[predicate]
    return ordered | unordered


def error_function(x):
    """``math.erf``."""
    from .libdevice import LIBDEVICE

    return LIBDEVICE["__nv_erff" if x.dtype.itemsize <= 4 else "__nv_erf"](x)
