"""The Bessel functions J and Y of integer order (``__nv_j0``, ``__nv_yn``, ...), in float64.

torch's float64 versions are wrong from the eighth digit on, so they are computed here, by the formulas of the NIST Digital Library of
Mathematical Functions (DLMF), chapter 10: the power series for x <= 2, Miller's backward recurrence with Neumann's series for Y up to 25,
and Hankel's expansion above. The error is a few units in the last place of the function's amplitude, sqrt(2 / (pi x)): close to a zero
of the function it is absolute, as libdevice's own error bound is. Orders above 1 follow by recurrence.

Functions take one-dimensional arrays of one length: orders are int32, arguments float64. They are called by
``libdevice.LibdeviceFunction`` under ``np.errstate``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from triton_dist.errors import InvalidArgumentError
from triton_dist.sim.ops.libdevice_rounding import Array

_EULER_GAMMA = 0.5772156649015329
_SERIES_UP_TO = 2.0
_SERIES_TERMS = 20
_RECURRENCE_UP_TO = 25.0
# J of this order is below 1e-30 for x <= 25.
_RECURRENCE_START = 80
_HANKEL_TERMS = 26
# A decay by the exponential of this is zero in float64, and growth by it overflows.
_LOG_UNDERFLOW = 760.0
_UNDERFLOW_ORDER = 400
# A recurrence takes one numpy step an order: more than this is a hang.
_LARGEST_ORDER = 1_000_000


def bessel_j0(x: Array) -> Array:
    """J of order 0: even, +0 at infinity."""
    return np.where(np.isinf(x), 0.0, _first_orders(np.abs(x))[0])


def bessel_j1(x: Array) -> Array:
    """J of order 1: odd, a zero with the sign of ``x`` at infinity."""
    return np.where(np.isinf(x) | (x == 0), np.copysign(0.0, x), np.copysign(1.0, x) * _first_orders(np.abs(x))[1])


def bessel_y0(x: Array) -> Array:
    """Y of order 0: -infinity at 0, NaN below, +0 at infinity."""
    return _limits_of_y(x, _first_orders(np.abs(x))[2])


def bessel_y1(x: Array) -> Array:
    """Y of order 1: -infinity at 0, NaN below, +0 at infinity."""
    return _limits_of_y(x, _first_orders(np.abs(x))[3])


def _limits_of_y(x: Array, y: Array) -> Array:
    return np.where(x < 0, np.nan, np.where(x == 0, -np.inf, np.where(x == np.inf, 0.0, y)))


def _first_orders(x: Array) -> Array:
    """(J0, J1, Y0, Y1) of x > 0, shape [4, elements]; NaN of NaN, meaningless at infinity."""
    result = np.full((4, x.size), np.nan)
    regimes: tuple[tuple[Array, Callable[[Array], tuple[Array, ...]]], ...] = (
        (x <= _SERIES_UP_TO, _by_power_series),
        ((x > _SERIES_UP_TO) & (x <= _RECURRENCE_UP_TO), _by_backward_recurrence),
        (x > _RECURRENCE_UP_TO, _by_hankel_expansion),
    )
    for selected, method in regimes:
        if np.any(selected):
            result[:, selected] = method(x[selected])
    return result


def _by_power_series(x: Array) -> tuple[Array, ...]:
    """DLMF 10.2.2 and 10.8.1 for the orders 0 and 1."""
    quarter_square = x * x / 4
    term = np.ones_like(x)
    harmonic = 0.0
    j0, j1, y0, y1 = (np.zeros_like(x) for _ in range(4))
    for k in range(_SERIES_TERMS):
        next_harmonic = harmonic + 1 / (k + 1)
        j0 += term
        j1 += term / (k + 1)
        y0 += term * harmonic
        y1 += term / (k + 1) * (harmonic + next_harmonic)
        harmonic = next_harmonic
        term = term * -quarter_square / (k + 1) ** 2
    j1 *= x / 2
    logarithm = np.log(x / 2) + _EULER_GAMMA
    return j0, j1, 2 / np.pi * (logarithm * j0 - y0), (2 * logarithm * j1 - x / 2 * y1 - 2 / x) / np.pi


def _by_backward_recurrence(x: Array) -> tuple[Array, ...]:
    """Miller's algorithm, normalized by 1 = J0 + 2 sum J_2k; Y0 from Neumann's series, and Y1 as minus its derivative.

    Y0 = 2/pi ((ln(x/2) + gamma) J0 - 2 sum (-1)^k J_2k / k)
    Y1 = 2/pi ((ln(x/2) + gamma) J1 - J0/x + sum (-1)^k (J_{2k-1} - J_{2k+1}) / k)
    """
    above, here = np.zeros_like(x), np.full_like(x, 1e-150)
    unit, neumann, derivative = (np.zeros_like(x) for _ in range(3))
    for order in range(_RECURRENCE_START, 0, -1):
        below = 2 * order / x * here - above
        if order % 2 == 0:
            weight = (-1) ** (order // 2) / (order // 2)
            unit += 2 * here
            neumann += weight * here
            derivative += weight * (below - above)
        above, here = here, below
    unit += here
    j0, j1 = here / unit, above / unit
    logarithm = np.log(x / 2) + _EULER_GAMMA
    y0 = 2 / np.pi * (logarithm * j0 - 2 * neumann / unit)
    y1 = 2 / np.pi * (logarithm * j1 - j0 / x + derivative / unit)
    return j0, j1, y0, y1


def _by_hankel_expansion(x: Array) -> tuple[Array, ...]:
    """DLMF 10.17.3 and 10.17.4. The phase x - pi/4 is never formed: its sine and cosine follow from those of ``x``."""
    scale = np.sqrt(1 / (np.pi * x))
    # sqrt(2) times the cosine and sine of x - pi/4; the phase of order 1 lags a quarter turn.
    cosine, sine = np.cos(x) + np.sin(x), np.sin(x) - np.cos(x)
    p0, q0 = _hankel_series(0, x)
    p1, q1 = _hankel_series(1, x)
    j0, y0 = p0 * cosine - q0 * sine, p0 * sine + q0 * cosine
    j1, y1 = p1 * sine + q1 * cosine, q1 * sine - p1 * cosine
    return scale * j0, scale * j1, scale * y0, scale * y1


def _hankel_series(order: int, x: Array) -> tuple[Array, Array]:
    """The alternating sums over the even and the odd terms a_k / x^k of DLMF 10.17.1."""
    term = np.ones_like(x)
    sums = [np.zeros_like(x), np.zeros_like(x)]
    for k in range(_HANKEL_TERMS):
        sums[k % 2] += term if k % 4 < 2 else -term
        term = term * (4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1)) / x
    return sums[0], sums[1]


def bessel_yn(order: Array, x: Array) -> Array:
    """Y of an order >= 0 by forward recurrence, which is stable for Y; NaN for a negative order or argument.

    Raises InvalidArgumentError for an order above a million whose value does not overflow.
    """
    _, _, below, here = _first_orders(np.abs(x))
    result = np.where(order == 0, below, here)
    recurs = (order > 1) & np.isfinite(here) & (x > 0)
    # Smaller arguments overflow before the largest order, and end the loop.
    is_out_of_reach = recurs & (order > _LARGEST_ORDER) & (_log_decay(np.full(x.shape, float(_LARGEST_ORDER)), x) < _LOG_UNDERFLOW)
    _refuse_orders(order[is_out_of_reach])
    for k in range(1, _largest(order[recurs])):
        # An element that has overflowed stays at -infinity: the recurrence would make NaN of it.
        following = np.where(np.isneginf(here), here, 2 * k / x * here - below)
        below, here = here, following
        result = np.where(order > k, here, result)
        if not np.any(recurs & (order > k) & np.isfinite(here)):
            break
    return np.where(order < 0, np.nan, _limits_of_y(x, result))


def bessel_jn(order: Array, x: Array) -> Array:
    """J of an order >= 0; NaN for a negative order. Odd orders are odd functions.

    Raises InvalidArgumentError for an order above a million whose value does not underflow.
    """
    argument = np.abs(x)
    j0, j1, _, _ = _first_orders(argument)
    result = np.where(order == 0, j0, j1)
    is_series = (order > 1) & (argument * argument <= 4.0 * (order + 1.0))
    is_forward = (order > 1) & ~is_series & (argument >= order)
    is_backward = (order > 1) & ~is_series & (argument < order)
    for selected, method in ((is_series, _jn_by_series), (is_forward, _jn_forward), (is_backward, _jn_backward)):
        if np.any(selected):
            result[selected] = method(order[selected], argument[selected], j0[selected], j1[selected])
    result = np.where(np.isinf(x) | ((x == 0) & (order > 0)), 0.0, result)
    return np.where(order < 0, np.nan, np.where(np.signbit(x) & (order % 2 == 1), -result, result))


def _largest(order: Array) -> int:
    return int(np.max(order, initial=0))


def _refuse_orders(orders: Array) -> None:
    if _largest(orders) > _LARGEST_ORDER:
        raise InvalidArgumentError(
            f"a Bessel function of order {_largest(orders)} is not simulated: keep orders up to {_LARGEST_ORDER}, "
            "since each order is one step of a recurrence"
        )


def _log_decay(order: Array, x: Array) -> Array:
    """About log(1 / |J|) and log |Y| for 0 < x < order, 0 above: DLMF 10.14.7, with cosh(alpha) = order / x."""
    alpha = np.arccosh(np.maximum(order / x, 1.0))
    return order * (alpha - np.tanh(alpha))


def _jn_by_series(order: Array, x: Array, _j0: Array, _j1: Array) -> Array:
    """DLMF 10.2.2 where its terms fall from the first one on: x**2 <= 4 (order + 1)."""
    leading = np.ones_like(x)
    for k in range(1, min(_largest(order), _UNDERFLOW_ORDER) + 1):
        leading = np.where(k <= order, leading * (x / 2) / k, leading)
    total, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, _SERIES_TERMS + 1):
        total += term
        term = term * -(x * x / 4) / (k * (order + float(k)))
    return np.where(order > _UNDERFLOW_ORDER, 0.0, leading * total)


def _jn_forward(order: Array, x: Array, j0: Array, j1: Array) -> Array:
    below, here, result = j0, j1, j1
    # The caller gives the value at infinity.
    finite_orders = order[np.isfinite(x)]
    _refuse_orders(finite_orders)
    for k in range(1, _largest(finite_orders)):
        below, here = here, 2 * k / x * here - below
        result = np.where(order > k, here, result)
    return result


def _jn_backward(order: Array, x: Array, j0: Array, j1: Array) -> Array:
    """Miller's algorithm for 0 < x < order, each element from its own starting order, normalized by the larger of J0 and J1."""
    is_zero = _log_decay(order, x) > _LOG_UNDERFLOW
    order = np.where(is_zero, 0, order)
    _refuse_orders(order)
    # J falls by exp(alpha) an order or faster, and next to x = order, where alpha is 0, by about exp(order ** (-1/2) margin ** (3/2)).
    # A fall by exp(30) is enough for 17 digits; a much longer one would overflow on the way down.
    margin = np.minimum(30.0 / np.arccosh(np.maximum(order / x, 1.0)) + 2.0, 12.0 * np.cbrt(order) + 10.0)
    start = order + np.where(is_zero, 1.0, margin).astype(np.int64)
    above, here, wanted = (np.zeros_like(x) for _ in range(3))
    for k in range(_largest(start), 0, -1):
        here = np.where(start == k, 1e-300, here)
        wanted = np.where(order == k, here, wanted)
        above, here = here, 2 * k / x * here - above
    by_order_0 = np.abs(here) > np.abs(above)
    scale = np.where(by_order_0, j0 / here, j1 / above)
    return np.where(is_zero, 0.0, wanted * scale)
