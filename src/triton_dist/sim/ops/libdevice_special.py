"""The error function family, the normal distribution, the gamma functions and the modified Bessel functions of libdevice.

torch has most of them for float64; the rest is built on these. Every function takes and returns one-dimensional float64 arrays, and is
called by ``libdevice.LibdeviceFunction`` under ``np.errstate``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from triton_dist.sim.ops.libdevice_math import sine_pi
from triton_dist.sim.ops.libdevice_rounding import Array, exact_product

# 1 / sqrt(2) as an unevaluated sum of two doubles.
_SQRT_HALF = 0.7071067811865476
_SQRT_HALF_LOW = -4.833646656726457e-17
_SQRT_PI = 1.7724538509055159
_SQRT_TWO_PI = 2.5066282746310002
# Below this argument of erfcinv, half of it is subnormal and torch's ndtri loses digits.
_TAIL = 1e-290
# Stirling's series is exact to 1e-17 from here on; Gamma(_HUGE) overflows, and its reciprocal underflows.
_STIRLING_FROM = 20.0
_HUGE = 200.0


def _torch_function(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    def call(a: Array) -> Array:
        # A copy: torch does not share read-only arrays, and an operand may be one.
        return function(torch.tensor(a)).numpy()

    return call


error_function = _torch_function(torch.special.erf)
complementary_error_function = _torch_function(torch.special.erfc)
inverse_error_function = _torch_function(torch.special.erfinv)
log_gamma = _torch_function(torch.special.gammaln)
inverse_normal_distribution = _torch_function(torch.special.ndtri)
_scaled_complementary_error_function = _torch_function(torch.special.erfcx)
_bessel_i0 = _torch_function(torch.special.i0)
_bessel_i1 = _torch_function(torch.special.i1)


def scaled_complementary_error_function(a: Array) -> Array:
    """exp(a**2) * erfc(a); the square is kept in two parts for negative ``a``, where its rounding error would be amplified."""
    square, square_error = exact_product(a, a)
    exponential = np.exp(square) * (1.0 + square_error)
    reflected = np.where(square > 710.0, np.inf, 2.0 * exponential - _scaled_complementary_error_function(np.abs(a)))
    return np.where(a < 0, reflected, _scaled_complementary_error_function(a))


def inverse_complementary_error_function(a: Array) -> Array:
    """The x with erfc(x) = a: infinity of 0, -infinity of 2, NaN outside [0, 2]."""
    is_upper = a > 1.0
    folded = np.where(is_upper, 2.0 - a, a)
    tail = -inverse_normal_distribution(np.maximum(folded, _TAIL) / 2) * _SQRT_HALF
    if np.any(folded < _TAIL):
        tail = np.where((folded < _TAIL) & (folded > 0), _newton_in_the_tail(folded, tail), tail)
    center = inverse_error_function(1.0 - folded)
    result = np.where(folded < 0.5, tail, center)
    result = np.where(folded == 0, np.inf, result)
    return np.where(folded < 0, np.nan, np.where(is_upper, -result, result))


def _newton_in_the_tail(target: Array, start: Array) -> Array:
    """Solve log(erfc(x)) = log(target), which stays well scaled where erfc itself is subnormal."""
    x = start
    for _ in range(5):
        scaled = _scaled_complementary_error_function(x)
        x = x + (np.log(scaled) - x * x - np.log(target)) * scaled * (_SQRT_PI / 2)
    return x


def normal_distribution(a: Array) -> Array:
    """The cumulative normal distribution, erfc(-a / sqrt(2)) / 2, corrected for the rounding of the argument."""
    argument, error = exact_product(-a, np.full_like(a, _SQRT_HALF))
    error = error - a * _SQRT_HALF_LOW
    # erfc'(x) / erfc(x) = -2 / (sqrt(pi) * erfcx(x))
    correction = 1.0 - error * 2.0 / (_SQRT_PI * scaled_complementary_error_function(argument))
    value = 0.5 * complementary_error_function(argument)
    return np.where(np.isfinite(correction) & (np.abs(a) < 40.0), value * correction, value)


def gamma(a: Array) -> Array:
    """The gamma function; NaN of a negative integer and of -infinity, infinity with the sign of a zero."""
    result = np.full_like(a, np.nan)
    is_positive = (a > 0) | (a == 0)
    result[is_positive] = np.prod(_gamma_factors(np.abs(a[is_positive])), axis=0)
    is_small_negative = (a < 0) & (a > -1.0)
    small = a[is_small_negative]
    result[is_small_negative] = np.prod(_gamma_factors(1.0 + small), axis=0) / small
    is_negative = (a <= -1.0) & np.isfinite(a) & (np.trunc(a) != a)
    negative = a[is_negative]
    # DLMF 5.5.3. Dividing by one factor after the other keeps subnormal results.
    first, second = _gamma_factors(-negative)
    result[is_negative] = -np.pi / (negative * sine_pi(negative)) / first / second
    return np.where(a == 0, np.copysign(np.inf, a), result)


def _gamma_factors(a: Array) -> tuple[Array, Array]:
    """Two factors of the gamma function of ``a`` >= 0; both are finite where only their product overflows."""
    is_large = a >= _STIRLING_FROM
    first, second = np.ones_like(a), np.ones_like(a)
    first[~is_large] = _gamma_by_recurrence(a[~is_large])
    large = np.minimum(a[is_large], _HUGE)
    inverse = 1.0 / large
    square = inverse * inverse
    # DLMF 5.11.1: the Bernoulli numbers B_2k / (2k (2k - 1)).
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
    second[is_large] = np.power(large, 0.5 * large - 0.25)
    first[is_large] = second[is_large] * np.exp(-large) * _SQRT_TWO_PI * np.exp(series)
    return first, second


def _gamma_by_recurrence(a: Array) -> Array:
    """Gamma of 0 <= a < 20 from its value in (1, 2]; the steps downwards subtract exactly."""
    reduced = np.where(a < 1.0, a + 1.0, a)
    product = np.where(a < 1.0, 1.0 / a, 1.0)
    for _ in range(int(_STIRLING_FROM) - 2):
        is_above = reduced > 2.0
        reduced = np.where(is_above, reduced - 1.0, reduced)
        product = np.where(is_above, product * reduced, product)
    return product * np.exp(log_gamma(reduced))


def bessel_i0(a: Array) -> Array:
    """The modified Bessel function of order 0; infinity of +-infinity."""
    return np.where(np.isinf(a), np.inf, _bessel_i0(a))


def bessel_i1(a: Array) -> Array:
    """The modified Bessel function of order 1, which is odd; +-infinity of +-infinity."""
    return np.where(np.isinf(a) | (a == 0), a, _bessel_i1(a))
