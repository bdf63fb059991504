"""Conversions between integers and floats (``__nv_float2int_rz``, ``__nv_ull2float_ru``, ...) and the bit casts of libdevice.

A float becomes an integer as PTX ``cvt`` does it: rounded in the given direction, then clamped to the range of the result. NaN becomes 0
when a float32 is converted to 32 bits, and the value whose only set bit is the highest one otherwise (PTX ISA, "cvt", notes on
float-to-integer conversion).

All functions take one-dimensional arrays of one length, and are called by ``libdevice.LibdeviceFunction`` under ``np.errstate``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from triton_dist.sim.ops.libdevice_rounding import Array, Rounding, exact_sum, round_to_float32, round_to_float64

_TO_INTEGRAL: dict[Rounding, Callable[[Array], Array]] = {
    Rounding.NEAREST: np.rint,
    Rounding.TOWARD_ZERO: np.trunc,
    Rounding.DOWN: np.floor,
    Rounding.UP: np.ceil,
}


def float_to_integer(result: type[np.integer], mode: Rounding) -> Callable[[Array], Array]:
    """The conversion of float32 or float64 to ``result`` (signed or unsigned, 32 or 64 bits)."""
    limits = np.iinfo(result)

    def convert(a: Array) -> Array:
        integral = _TO_INTEGRAL[mode](a.astype(np.float64))
        is_inside = (integral >= float(limits.min)) & (integral < float(limits.max) + (limits.bits == 32))
        converted = np.where(is_inside, integral, 0.0).astype(result)
        clamped = np.where(integral > 0, result(limits.max), result(limits.min))
        not_a_number = result(0) if a.dtype == np.float32 and limits.bits == 32 else _highest_bit(result)
        return np.where(np.isnan(a), not_a_number, np.where(is_inside, converted, clamped))

    return convert


def _highest_bit(integer: type[np.integer]) -> np.integer:
    limits = np.iinfo(integer)
    return integer(limits.min if limits.min < 0 else limits.max // 2 + 1)


def integer_to_float(result: type[np.floating], mode: Rounding) -> Callable[[Array], Array]:
    """The conversion of a signed or unsigned integer of 32 or 64 bits to ``result`` (float32 or float64), rounded once."""
    round_pair = round_to_float32 if result is np.float32 else round_to_float64

    def convert(a: Array) -> Array:
        if a.dtype.itemsize == 4:
            return round_pair(a.astype(np.float64), np.zeros(a.shape), mode)
        half = a.dtype.type(32)
        high = (a >> half).astype(np.float64) * 2.0**32
        low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
        return round_pair(*exact_sum(high, low), mode)

    return convert


def double_to_float(mode: Rounding) -> Callable[[Array], Array]:
    """The conversion of float64 to float32 in a chosen direction."""

    def convert(a: Array) -> Array:
        return round_to_float32(a, np.zeros(a.shape), mode)

    return convert


def bit_cast(result: type[np.generic]) -> Callable[[Array], Array]:
    """The same bits as another type of the same width."""

    def cast(a: Array) -> Array:
        return a.view(result)

    return cast


def double_from_halves(high: Array, low: Array) -> Array:
    """The float64 whose upper and lower 32 bits are given (uint32)."""
    return ((high.astype(np.uint64) << np.uint64(32)) | low).view(np.float64)


def double_high_half(a: Array) -> Array:
    """The upper 32 bits of a float64, as uint32."""
    return (a.view(np.uint64) >> np.uint64(32)).astype(np.uint32)


def double_low_half(a: Array) -> Array:
    """The lower 32 bits of a float64, as uint32."""
    return a.view(np.uint64).astype(np.uint32)


def half_to_float(bits: Array) -> Array:
    """The float32 value of a float16 given by its bits (int16)."""
    return bits.view(np.float16).astype(np.float32)


def float_to_half(a: Array) -> Array:
    """The bits (int16) of the float16 nearest to a float32."""
    return a.astype(np.float16).view(np.int16)
