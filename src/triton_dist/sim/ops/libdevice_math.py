"""The elementary functions of libdevice: those numpy lacks, or whose special values differ from numpy's.

The float functions take float64 unless the docstring names more: ``libdevice`` widens float32 operands and rounds the result once. All
take one-dimensional arrays of one length, and are called by ``libdevice.LibdeviceFunction`` under ``np.errstate``.
"""

from __future__ import annotations

import numpy as np

from triton_dist.sim.ops.libdevice_conversion import float_to_integer
from triton_dist.sim.ops.libdevice_rounding import Array, Rounding

_INT_MIN = np.int32(-(2**31))
_INT_MAX = np.int32(2**31 - 1)


def saturate(a: Array) -> Array:
    """Clamp to [0, 1]; NaN and -0 become +0."""
    return np.where(a > 0, np.minimum(a, 1.0), 0.0)


def minimum_number(a: Array, b: Array) -> Array:
    """The smaller operand, the other one where one is NaN, and -0 of two zeros of different sign. float32 or float64."""
    return np.where((a == b) & np.signbit(a), a, np.fmin(b, a))


def maximum_number(a: Array, b: Array) -> Array:
    """The larger operand, the other one where one is NaN, and +0 of two zeros of different sign. float32 or float64."""
    return np.where((a == b) & np.signbit(b), a, np.fmax(b, a))


def positive_difference(a: Array, b: Array) -> Array:
    """a - b where it is positive, otherwise +0; NaN of NaN."""
    return np.where(a <= b, 0.0, a - b)


def round_half_away(a: Array) -> Array:
    """The nearest integer, halves away from zero, with the sign of ``a``; what libdevice calls round."""
    whole = np.trunc(a)
    return np.copysign(whole + np.where(np.abs(a - whole) >= 0.5, np.copysign(1.0, a), 0.0), a)


def round_half_away_to_integer(a: Array) -> Array:
    """``round_half_away`` as int64: clamped to its range, and its smallest value for NaN."""
    return float_to_integer(np.int64, Rounding.TOWARD_ZERO)(round_half_away(a))


def reciprocal_square_root(a: Array) -> Array:
    """1 / sqrt(a); infinity with the sign of a zero."""
    return 1.0 / np.sqrt(a)


def reciprocal_cube_root(a: Array) -> Array:
    """1 / cbrt(a); infinity with the sign of a zero."""
    return 1.0 / np.cbrt(a)


def coarse_reciprocal(a: Array) -> Array:
    """``__nv_rcp64h``: 1 / a from and to the upper 32 bits of a double, subnormals flushed to zero (PTX ``rcp.approx.ftz.f64``)."""
    upper = (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    inverse = 1.0 / _flush_subnormal(upper)
    rounded = inverse.view(np.uint64) + np.uint64(0x80000000)
    coarse = (rounded & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    return _flush_subnormal(np.where(np.isnan(inverse), inverse, coarse))


def _flush_subnormal(a: Array) -> Array:
    return np.where(np.abs(a) < np.finfo(np.float64).tiny, np.copysign(0.0, a), a)


def exponential_base_10(a: Array) -> Array:
    """10 ** a."""
    return np.power(10.0, a)


def integer_power(a: Array, exponent: Array) -> Array:
    """a ** exponent for an int32 exponent; 1 for exponent 0, whatever ``a`` is."""
    return np.power(a, exponent.astype(np.float64))


def _half_turns(a: Array) -> tuple[Array, Array]:
    """``a`` modulo 2 as (quadrant 0 to 3, angle in radians within a quarter of pi): no rounding before the factor pi."""
    reduced = np.fmod(a, 2.0)
    nearest_quarter = np.rint(2.0 * reduced)
    quadrant = np.where(np.isfinite(a), nearest_quarter, 0.0).astype(np.int64) & 3
    return quadrant, np.pi * (reduced - 0.5 * nearest_quarter)


def sine_pi(a: Array) -> Array:
    """sin(pi * a); a zero with the sign of ``a`` for an integer."""
    quadrant, angle = _half_turns(a)
    magnitude = np.where(quadrant & 1, np.cos(angle), np.sin(angle))
    result = np.where(quadrant & 2, -magnitude, magnitude)
    return np.where(np.trunc(a) == a, np.copysign(result, a), result)


def cosine_pi(a: Array) -> Array:
    """cos(pi * a); +0 half way between two integers."""
    quadrant, angle = _half_turns(a)
    magnitude = np.where(quadrant & 1, np.sin(angle), np.cos(angle))
    is_negative = (quadrant == 1) | (quadrant == 2)
    # The sum turns -0 into +0.
    return np.where(is_negative, -magnitude, magnitude) + 0.0


def _scaled_square_sum(operands: tuple[Array, ...]) -> tuple[Array, Array]:
    """The sum of squares as (sum, exponent) with value sum * 4**exponent: it neither overflows nor underflows."""
    exponent = np.frexp(np.max(np.abs(operands), axis=0))[1]
    return sum(np.square(np.ldexp(operand, -exponent)) for operand in operands), exponent


def _is_any_infinite(operands: tuple[Array, ...]) -> Array:
    return np.any(np.isinf(operands), axis=0)


def norm(*operands: Array) -> Array:
    """The Euclidean length of (a, b, ...); infinity when one is infinite, even beside a NaN."""
    square_sum, exponent = _scaled_square_sum(operands)
    return np.where(_is_any_infinite(operands), np.inf, np.ldexp(np.sqrt(square_sum), exponent))


def reciprocal_norm(*operands: Array) -> Array:
    """1 / the Euclidean length of (a, b, ...); +0 when one is infinite, even beside a NaN."""
    square_sum, exponent = _scaled_square_sum(operands)
    return np.where(_is_any_infinite(operands), 0.0, np.ldexp(1.0 / np.sqrt(square_sum), -exponent))


def ieee_remainder(a: Array, b: Array) -> Array:
    """a - n * b, exactly, with n the integer nearest to a / b (even for halves); a zero has the sign of ``a``."""
    divisor = np.abs(b)
    is_doubling_safe = divisor <= np.finfo(np.float64).max / 2
    rest = np.where(is_doubling_safe, np.fmod(np.abs(a), 2.0 * divisor), np.abs(a))
    # rest is below 2 * divisor now, and n is 0, 1 or 2. Halving is inexact for a subnormal divisor, doubling overflows for a huge one.
    is_small = divisor < 1.0
    subtracts = np.where(is_small, rest + rest > divisor, rest > 0.5 * divisor)
    rest = np.where(subtracts, rest - divisor, rest)
    # A remainder of exactly one half here comes from n = 1 1/2, whose even neighbour is 2.
    subtracts &= np.where(is_small, rest + rest >= divisor, rest >= 0.5 * divisor)
    rest = np.where(subtracts, rest - divisor, rest)
    result = np.where(np.signbit(a), -rest, rest)
    result = np.where(result == 0, np.copysign(0.0, a), result)
    result = np.where(np.isinf(b) & np.isfinite(a), a, result)
    return np.where((b == 0) | np.isinf(a) | np.isnan(a) | np.isnan(b), np.nan, result)


def exponent_as_integer(a: Array) -> Array:
    """The unbiased binary exponent as int32; INT_MIN of 0 and NaN, INT_MAX of infinity."""
    exponent = np.where(np.isinf(a), _INT_MAX, np.frexp(a)[1] - 1)
    return np.where((a == 0) | np.isnan(a), _INT_MIN, exponent).astype(np.int32)


def exponent_as_float(a: Array) -> Array:
    """The unbiased binary exponent as float64; -infinity of 0, infinity of infinity."""
    exponent = np.where(a == 0, -np.inf, np.frexp(a)[1] - 1.0)
    return np.where(np.isfinite(a), exponent, a * a)


def scale_by_power_of_two(a: Array, exponent: Array) -> Array:
    """a * 2**exponent with one rounding, exponent int32."""
    return np.ldexp(a, exponent)
