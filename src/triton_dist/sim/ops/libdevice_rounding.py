"""Arithmetic with a chosen rounding direction (``__nv_fadd_rz``, ``__nv_fma_ru``, ``__nv_dsqrt_rd``, ...), exact to the last bit.

Every operation is first written as an unevaluated pair: ``value``, the double nearest to the exact result, and ``residual``, a number
with the sign of (exact result - value). The pair is then rounded once to float32 or float64. The pairs come from error-free
transforms: Knuth's TwoSum, Dekker's TwoProduct, and for the fused multiply-add the algorithm of Boldo and Melquiond, "Emulation of FMA
and correctly rounded sums: proved algorithms using rounding to odd" (IEEE Transactions on Computers, 2008).

float32 operands are widened, where no step can overflow or underflow. float64 operands are split into mantissa and exponent; the pair is
computed on the mantissas and scaled back by ``_round_to_float64``, which also handles subnormal results without a second rounding.

All functions take one-dimensional arrays of one length, and are called by ``libdevice.LibdeviceFunction`` under ``np.errstate``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

Array = np.ndarray
Pair = tuple[Array, Array]

# Splits a 53-bit mantissa into two halves of 26 bits whose products are exact (Veltkamp).
_SPLITTER = float(2**27 + 1)
# The exponent given to a zero: lower than that of every product of two doubles.
_ZERO_EXPONENT = -5000
# The smaller addend of a sum is moved up to at most this many binary digits below the larger one: still out of reach of every rounding.
_MAXIMUM_SHIFT = 220
_SMALLEST_EXPONENT = -1074


class Rounding(enum.Enum):
    """The four IEEE 754 directions, named by libdevice's suffix."""

    NEAREST = "rn"
    TOWARD_ZERO = "rz"
    DOWN = "rd"
    UP = "ru"


def exact_sum(a: Array, b: Array) -> Pair:
    """``a + b`` as (nearest double, exact error); float64, no overflow inside."""
    total = a + b
    b_seen = total - a
    return total, (a - (total - b_seen)) + (b - b_seen)


def exact_product(a: Array, b: Array) -> Pair:
    """``a * b`` as (nearest double, exact error); float64, exponents far from the ends of the range."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _split(a: Array) -> Pair:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


def _quotient_pair(a: Array, b: Array) -> Pair:
    quotient = a / b
    product, error = exact_product(quotient, b)
    return quotient, ((a - product) - error) * np.copysign(1.0, b)


def _square_root_pair(a: Array) -> Pair:
    root = np.sqrt(a)
    square, error = exact_product(root, root)
    return root, (a - square) - error


def _product_plus_pair(product: Array, product_error: Array, c: Array) -> Pair:
    """(product + product_error) + c, where the first two are an ``exact_product`` (Boldo and Melquiond)."""
    upper, upper_error = exact_sum(c, product_error)
    value, value_error = exact_sum(product, upper)
    tail, tail_error = exact_sum(value_error, upper_error)
    odd_tail = round_to_odd(tail, tail_error)
    nearest, error = exact_sum(value, odd_tail)
    return nearest, np.where(error != 0, error, (tail - odd_tail) + tail_error)


def round_to_odd(value: Array, residual: Array) -> Array:
    """The neighbour of the exact result whose last bit is 1, or the exact result: a later, shorter rounding of it is right."""
    is_even = (value.view(np.int64) & 1) == 0
    return np.where((residual != 0) & is_even, np.nextafter(value, np.copysign(np.inf, residual)), value)


def _finite_or_zero(residual: Array) -> Array:
    """A residual that came out infinite or NaN belongs to a special result, which is exact."""
    return np.where(np.isfinite(residual), residual, 0.0)


def _step(nearest: Array, error: Array, mode: Rounding) -> Array:
    """Move ``nearest`` to its neighbour where ``mode`` asks for it; ``error`` has the sign of (exact result - nearest)."""
    infinity = nearest.dtype.type(np.inf)
    if mode is Rounding.UP:
        return np.where(error > 0, np.nextafter(nearest, infinity), nearest)
    if mode is Rounding.DOWN:
        return np.where(error < 0, np.nextafter(nearest, -infinity), nearest)
    if mode is Rounding.TOWARD_ZERO:
        is_too_large = (error != 0) & (nearest != 0) & ((error < 0) == (nearest > 0))
        return np.where(is_too_large, np.nextafter(nearest, nearest.dtype.type(0)), nearest)
    return nearest


def round_to_float32(value: Array, residual: Array, mode: Rounding) -> Array:
    """Round the exact number ``value`` + ``residual`` (float64) once to float32."""
    odd = round_to_odd(value, _finite_or_zero(residual))
    nearest = odd.astype(np.float32)
    wide = nearest.astype(np.float64)
    # Not odd - wide: infinity minus infinity would be NaN, and an infinite value is exact.
    return _step(nearest, (odd > wide).astype(np.int8) - (odd < wide).astype(np.int8), mode)


def round_to_float64(value: Array, residual: Array, mode: Rounding) -> Array:
    """Round the exact number ``value`` + ``residual`` once to float64; ``value`` is the nearest double already."""
    return _step(value, _finite_or_zero(residual), mode)


def _round_to_float64(value: Array, residual: Array, exponent: Array, mode: Rounding) -> Array:
    """Round (``value`` + ``residual``) * 2**``exponent`` once; overflow and subnormal results included."""
    nearest = np.ldexp(value, exponent)
    lost = value - np.ldexp(nearest, -exponent)
    if mode is Rounding.NEAREST:
        # ldexp rounded value alone: a tie there is no tie when the residual points away from the even neighbour it chose.
        is_tie = np.abs(lost) == np.ldexp(1.0, _SMALLEST_EXPONENT - 1 - exponent)
        return np.where(
            is_tie & (residual != 0) & (np.sign(residual) == np.sign(lost)), np.nextafter(nearest, np.copysign(np.inf, lost)), nearest
        )
    return _step(nearest, np.where(lost != 0, lost, residual), mode)


def _mantissa_exponent(a: Array) -> Pair:
    mantissa, exponent = np.frexp(a)
    return mantissa, np.where(a == 0, _ZERO_EXPONENT, exponent)


def _zero_sign(value: Array, first_is_negative: Array, second_is_negative: Array, mode: Rounding) -> Array:
    """Give an exact zero sum its IEEE 754 sign: the common sign of the addends, else minus when rounding down and plus otherwise."""
    combine = np.logical_or if mode is Rounding.DOWN else np.logical_and
    is_negative = combine(first_is_negative, second_is_negative)
    return np.where(value == 0, np.where(is_negative, -0.0, 0.0), value)


def _sum_float64(product: Pair, product_exponent: Array, c: Array, negative_product: Array, mode: Rounding) -> Array:
    """Round (mantissa pair ``product``) * 2**exponent + ``c`` to float64; all finite."""
    mantissa, exponent = _mantissa_exponent(c)
    common = np.maximum(product_exponent, exponent)
    product_shift = np.maximum(product_exponent - common, -_MAXIMUM_SHIFT)
    shift = np.maximum(exponent - common, -_MAXIMUM_SHIFT)
    value, residual = _product_plus_pair(
        np.ldexp(product[0], product_shift), np.ldexp(product[1], product_shift), np.ldexp(mantissa, shift)
    )
    value = _zero_sign(value, negative_product, np.signbit(c), mode)
    return _round_to_float64(value, residual, common, mode)


def add(a: Array, b: Array, mode: Rounding) -> Array:
    """a + b, float32 or float64."""
    if mode is Rounding.NEAREST:
        return a + b
    if a.dtype == np.float64:
        mantissa, exponent = _mantissa_exponent(a)
        rounded = _sum_float64((mantissa, np.zeros_like(a)), exponent, b, np.signbit(a), mode)
        return np.where(np.isfinite(a) & np.isfinite(b), rounded, a + b)
    value, residual = exact_sum(a.astype(np.float64), b.astype(np.float64))
    return round_to_float32(_zero_sign(value, np.signbit(a), np.signbit(b), mode), residual, mode)


def subtract(a: Array, b: Array, mode: Rounding) -> Array:
    """a - b, float32 or float64."""
    return a - b if mode is Rounding.NEAREST else add(a, -b, mode)


def multiply(a: Array, b: Array, mode: Rounding) -> Array:
    """a * b, float32 or float64."""
    if mode is Rounding.NEAREST:
        return a * b
    if a.dtype == np.float64:
        (a_mantissa, a_exponent), (b_mantissa, b_exponent) = _mantissa_exponent(a), _mantissa_exponent(b)
        rounded = _round_to_float64(*exact_product(a_mantissa, b_mantissa), a_exponent + b_exponent, mode)
        return np.where(_all_ordinary(a, b), rounded, a * b)
    # The product of two 24-bit mantissas fits a double.
    return round_to_float32(a.astype(np.float64) * b.astype(np.float64), np.zeros(a.shape), mode)


def divide(a: Array, b: Array, mode: Rounding) -> Array:
    """a / b, float32 or float64."""
    if mode is Rounding.NEAREST:
        return a / b
    if a.dtype == np.float64:
        (a_mantissa, a_exponent), (b_mantissa, b_exponent) = _mantissa_exponent(a), _mantissa_exponent(b)
        rounded = _round_to_float64(*_quotient_pair(a_mantissa, b_mantissa), a_exponent - b_exponent, mode)
        return np.where(_all_ordinary(a, b), rounded, a / b)
    return round_to_float32(*_quotient_pair(a.astype(np.float64), b.astype(np.float64)), mode)


def reciprocal(a: Array, mode: Rounding) -> Array:
    """1 / a, float32 or float64."""
    return divide(np.ones_like(a), a, mode)


def square_root(a: Array, mode: Rounding) -> Array:
    """The square root, float32 or float64; NaN below zero, and -0 of -0."""
    if mode is Rounding.NEAREST:
        return np.sqrt(a)
    if a.dtype == np.float64:
        mantissa, exponent = _mantissa_exponent(a)
        is_odd = exponent & 1
        value, residual = _square_root_pair(np.ldexp(mantissa, is_odd))
        return np.where(_all_ordinary(a) & (a > 0), _round_to_float64(value, residual, (exponent - is_odd) // 2, mode), np.sqrt(a))
    return round_to_float32(*_square_root_pair(a.astype(np.float64)), mode)


def fused_multiply_add(a: Array, b: Array, c: Array, mode: Rounding) -> Array:
    """a * b + c with one rounding, float32 or float64."""
    negative_product = np.signbit(a) ^ np.signbit(b)
    if a.dtype == np.float32:
        addend = c.astype(np.float64)
        value, residual = exact_sum(a.astype(np.float64) * b.astype(np.float64), addend)
        return round_to_float32(_zero_sign(value, negative_product, np.signbit(c), mode), residual, mode)
    (a_mantissa, a_exponent), (b_mantissa, b_exponent) = _mantissa_exponent(a), _mantissa_exponent(b)
    rounded = _sum_float64(exact_product(a_mantissa, b_mantissa), a_exponent + b_exponent, c, negative_product, mode)
    factors_are_finite = np.isfinite(a) & np.isfinite(b)
    # A product of finite factors may overflow here although the exact one is below the infinite addend.
    special = np.where(factors_are_finite, c, a * b + c)
    return np.where(factors_are_finite & np.isfinite(c), rounded, special)


def reciprocal_square_root(a: Array) -> Array:
    """1 / sqrt(a) of float32, rounded to nearest: ``__nv_frsqrt_rn``."""
    wide = a.astype(np.float64)
    guess = (1.0 / np.sqrt(wide)).astype(np.float32)
    for direction in (np.float32(np.inf), np.float32(0)):
        neighbour = np.nextafter(guess, direction)
        # 25 bits, so its square is exact, and the exact product below decides on which side of it the result lies.
        midpoint = (guess.astype(np.float64) + neighbour.astype(np.float64)) / 2
        product, error = exact_product(midpoint * midpoint, wide)
        distance = (1.0 - product) - error
        is_beyond = distance > 0 if direction > 0 else distance < 0
        guess = np.where(is_beyond & np.isfinite(neighbour), neighbour, guess)
    return guess


def _all_ordinary(*operands: Array) -> Array:
    """Where every operand is finite and not zero: elsewhere the plain operation is exact in every direction."""
    is_ordinary = np.ones(operands[0].shape, bool)
    for operand in operands:
        is_ordinary &= np.isfinite(operand) & (operand != 0)
    return is_ordinary


def in_direction(operation: Callable[..., Array], mode: Rounding) -> Callable[..., Array]:
    """``operation`` with its rounding direction fixed, as the table of symbols needs it."""

    def rounded(*operands: Array) -> Array:
        return operation(*operands, mode)

    return rounded
