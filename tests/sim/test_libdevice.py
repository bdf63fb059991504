"""``LIBDEVICE`` against the math module, integrals and identities; ``test_libdevice_exact`` has the functions that are exact."""

from __future__ import annotations

import ast
import importlib.util
import math
import statistics
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from triton_dist.errors import InvalidArgumentError
from triton_dist.sim.ops.libdevice import LIBDEVICE as FLUSHING

# The functions without the flushing of subnormals, which test_matches_h100.py checks.
LIBDEVICE = {symbol: replace(function, reads_subnormals=True, returns_subnormals=True) for symbol, function in FLUSHING.items()}

INF, NAN = math.inf, math.nan
NUMPY_TYPE = {"i16": np.int16, "i32": np.int32, "u32": np.int32, "i64": np.int64, "u64": np.int64, "f32": np.float32, "f64": np.float64}
TRITON_TYPE = {"int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "fp32": "f32", "fp64": "f64"}
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

EDGES = {
    "i16": [0, 1, -1, 0x7C00, 0x3C00, 2**15 - 1, -(2**15)],
    "i32": [0, 1, -1, 5, -7, INT_MAX, INT_MIN],
    "i64": [0, 1, -1, 2**33 + 5, -7, LONG_MAX, LONG_MIN],
    "f32": [0.0, -0.0, 1.5, -2.5, 0.3, -1e-3, 1e10, 1e-45, -1e-40, 3.4e38, -3.4e38, INF, -INF, NAN],
    "f64": [0.0, -0.0, 1.5, -2.5, 0.3, -1e-3, 1e10, 5e-324, -1e-310, 1.7e308, -1.7e308, INF, -INF, NAN],
}


def emitted_signatures() -> dict[str, tuple[tuple[str, ...], str]]:
    """Operand and result types of every symbol in the source of the installed ``triton.language.extra.cuda.libdevice``."""
    triton = importlib.util.find_spec("triton")
    source = Path(triton.submodule_search_locations[0], "language/extra/cuda/libdevice.py").read_text()
    signatures = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            types = [name.value for name in ast.walk(key) if isinstance(name, ast.Constant)]
            symbol, result = value.elts
            (result_type,) = [
                name.value if isinstance(name, ast.Constant) else name.attr
                for name in ast.walk(result)
                if isinstance(name, ast.Constant) or (isinstance(name, ast.Attribute) and name.attr in TRITON_TYPE)
            ]
            signatures[symbol.value] = tuple(TRITON_TYPE[name] for name in types), TRITON_TYPE[result_type]
    return signatures


def edge_operands(operands: tuple[str, ...]) -> list[np.ndarray]:
    """Every combination of edge values for up to two operands; for more, the third and later ones are rolled."""
    columns = [np.array(EDGES[name.replace("u", "i")], NUMPY_TYPE[name]) for name in operands]
    grids = np.meshgrid(*columns[:2], indexing="ij")
    return [grid.ravel() for grid in grids] + [np.resize(np.roll(c, 3), grids[0].size) for c in columns[2:]]


def same(actual: object, expected: object) -> bool:
    """Equal, with NaN equal to NaN and -0 different from +0."""
    if isinstance(expected, float) and math.isnan(expected):
        return bool(np.isnan(actual))
    return actual == expected and (not isinstance(expected, float) or np.signbit(actual) == np.signbit(expected))


def error_in_ulps(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest error, in units of the last place of ``expected``; where both are the same special value it is none."""
    expected = expected.astype(actual.dtype)
    is_same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(all="ignore"):
        return float(np.max(np.where(is_same, 0.0, np.abs(actual.astype(float) - expected.astype(float)) / np.spacing(np.abs(expected)))))


def test_every_symbol_of_the_installed_triton_has_its_signature():
    signatures = emitted_signatures()
    assert len(signatures) > 300
    missing = sorted(set(signatures) - set(LIBDEVICE))
    assert not missing, f"triton can emit {missing}"
    for symbol, (operands, result) in signatures.items():
        entry = LIBDEVICE[symbol]
        assert [NUMPY_TYPE[name] for name in entry.operands] == [NUMPY_TYPE[name] for name in operands], symbol
        assert NUMPY_TYPE[entry.result] == NUMPY_TYPE[result], symbol


@pytest.mark.parametrize("symbol", sorted(LIBDEVICE))
def test_runs_on_edge_values_without_a_warning(symbol):
    entry = LIBDEVICE[symbol]
    operands = edge_operands(entry.operands)
    if symbol.startswith(("__nv_jn", "__nv_yn")):
        operands[0] = np.where(operands[0] == INT_MAX, np.int32(40), operands[0])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = entry(*operands)
        first = entry(*(operand[0] for operand in operands))
    assert result.shape == operands[0].shape
    assert result.dtype == first.dtype == NUMPY_TYPE[entry.result]
    assert np.shape(first) == ()
    assert same(first, result[0].item())


def test_operands_broadcast_and_may_have_any_layout():
    columns = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1]
    result = LIBDEVICE["__nv_powf"](columns, np.full((2, 1), 2, np.float32))
    np.testing.assert_array_equal(result, columns**2)
    assert LIBDEVICE["__nv_erff"](columns[::-1]).shape == (2, 3)
    assert LIBDEVICE["__nv_tgamma"](np.zeros((0, 4))).shape == (0, 4)
    assert LIBDEVICE["__nv_jn"](np.zeros((0,), np.int32), np.float64(1)).shape == (0,)


def test_wrong_operands_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"got 1 operands, but takes 2: pass \(f32, f32\) -> f32"):
        LIBDEVICE["__nv_powf"](np.float32(1))
    with pytest.raises(InvalidArgumentError, match="type float64, expected f32"):
        LIBDEVICE["__nv_sinf"](np.float64(1))


@pytest.mark.parametrize("name", ["jn", "yn"])
def test_a_bessel_order_that_would_hang_is_refused(name):
    with pytest.raises(InvalidArgumentError, match="order 2147483647 is not simulated: keep orders up to 1000000"):
        LIBDEVICE[f"__nv_{name}"](np.int32(INT_MAX), np.float64(1e10))


# Functions of one operand that the math module has too, and where they are compared.
MATH_TWINS = {
    "sqrt": (math.sqrt, 1e-30, 1e30),
    "cbrt": (math.cbrt, -8.0, 8.0),
    "exp": (math.exp, -80.0, 80.0),
    "exp2": (lambda x: 2.0**x, -120.0, 120.0),
    "exp10": (lambda x: 10.0**x, -37.0, 37.0),
    "expm1": (math.expm1, -2.0, 2.0),
    "log": (math.log, 1e-30, 10.0),
    "log2": (math.log2, 1e-30, 10.0),
    "log10": (math.log10, 1e-30, 10.0),
    "log1p": (math.log1p, -0.9, 3.0),
    "sin": (math.sin, -1e4, 1e4),
    "cos": (math.cos, -1e4, 1e4),
    "tan": (math.tan, -1e4, 1e4),
    "asin": (math.asin, -1.0, 1.0),
    "acos": (math.acos, -1.0, 1.0),
    "atan": (math.atan, -9.0, 9.0),
    "sinh": (math.sinh, -9.0, 9.0),
    "cosh": (math.cosh, -9.0, 9.0),
    "tanh": (math.tanh, -3.0, 3.0),
    "asinh": (math.asinh, -9.0, 9.0),
    "acosh": (math.acosh, 1.0, 9.0),
    "atanh": (math.atanh, -0.99, 0.99),
    "erf": (math.erf, -3.0, 3.0),
    "erfc": (math.erfc, -3.0, 9.0),
    "lgamma": (math.lgamma, 3.0, 30.0),
    "tgamma": (math.gamma, -30.0, 33.0),
    "rsqrt": (lambda x: 1 / math.sqrt(x), 1e-30, 10.0),
    "rcbrt": (lambda x: 1 / math.cbrt(x), 1e-3, 10.0),
    "sinpi": (lambda x: math.sin(math.pi * x), -0.25, 0.25),
    "cospi": (lambda x: math.cos(math.pi * x), -0.25, 0.25),
    "floor": (math.floor, -9.0, 9.0),
    "ceil": (math.ceil, -9.0, 9.0),
    "trunc": (math.trunc, -9.0, 9.0),
    "rint": (round, -9.0, 9.0),
    "nearbyint": (round, -9.0, 9.0),
    "normcdf": (statistics.NormalDist().cdf, -1.0, 2.0),
    "normcdfinv": (statistics.NormalDist().inv_cdf, 0.01, 0.3),
}


@pytest.mark.parametrize("name", sorted(MATH_TWINS))
def test_agrees_with_the_math_module(name):
    twin, low, high = MATH_TWINS[name]
    points = np.random.default_rng(0).uniform(low, high, 500)
    assert error_in_ulps(LIBDEVICE[f"__nv_{name}"](points), np.array([twin(x) for x in points.tolist()], float)) <= 12
    narrow = points.astype(np.float32)
    expected = np.array([twin(x) for x in narrow.tolist()], float)
    assert error_in_ulps(LIBDEVICE[f"__nv_{name}f"](narrow), expected) <= 1
    if f"__nv_fast_{name}f" in LIBDEVICE:
        assert error_in_ulps(LIBDEVICE[f"__nv_fast_{name}f"](narrow), expected) <= 1


BINARY_TWINS = {
    "atan2": math.atan2,
    "copysign": math.copysign,
    "fmod": math.fmod,
    "remainder": math.remainder,
    "hypot": math.hypot,
    "rhypot": lambda x, y: 1 / math.hypot(x, y),
    "fdim": lambda x, y: max(x - y, 0.0),
    "fmin": min,
    "fmax": max,
    "pow": lambda x, y: math.pow(x, y) if x > 0 or (x < 0 and y == int(y)) else NAN,
}


@pytest.mark.parametrize("name", sorted(BINARY_TWINS))
def test_agrees_with_the_math_module_for_two_operands(name):
    generator = np.random.default_rng(1)
    a, b = generator.normal(0, 9, 500), generator.normal(0, 4, 500)
    b[::3] = np.round(b[::3]) + 0.5
    a[1::3], b[1::3] = np.trunc(a[1::3]) * 2 + 1, np.round(b[1::3]) * 2 + 1
    expected = np.array([BINARY_TWINS[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    assert error_in_ulps(LIBDEVICE[f"__nv_{name}"](a, b), expected) <= 4
    a, b = a.astype(np.float32), b.astype(np.float32)
    expected = np.array([BINARY_TWINS[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    assert error_in_ulps(LIBDEVICE[f"__nv_{name}f"](a, b), expected) <= 1


@pytest.mark.parametrize("count", [3, 4])
def test_norms_neither_overflow_nor_underflow(count):
    rows = np.random.default_rng(2).normal(0, 1, (count, 200))
    for scale in (1.0, 1e300, 1e-300):
        scaled = rows * scale
        expected = np.array([math.hypot(*column) for column in scaled.T.tolist()])
        assert error_in_ulps(LIBDEVICE[f"__nv_norm{count}d"](*scaled), expected) <= 3
        assert error_in_ulps(LIBDEVICE[f"__nv_rnorm{count}d"](*scaled), 1 / expected) <= 3
    narrow = rows.astype(np.float32)
    expected = np.array([math.hypot(*column) for column in narrow.T.tolist()])
    assert error_in_ulps(LIBDEVICE[f"__nv_norm{count}df"](*narrow), expected) <= 1
    assert error_in_ulps(LIBDEVICE[f"__nv_rnorm{count}df"](*narrow), 1 / expected) <= 1


@pytest.mark.parametrize("suffix", ["f", ""])
def test_integer_power(suffix):
    dtype = np.float32 if suffix else np.float64
    base = np.array([2, 2, -3, -3, 0.5, 0, -0.0, NAN, INF, 1.5], dtype)
    exponent = np.array([10, -3, 3, 4, INT_MAX, -1, -1, 0, -2, -2], np.int32)
    expected = [1024, 0.125, -27, 81, 0, INF, -INF, 1, 0, 1 / 2.25]
    np.testing.assert_array_equal(LIBDEVICE[f"__nv_powi{suffix}"](base, exponent), np.array(expected, dtype))


# Values that must be met exactly, by the float64 name; each also holds for the float32 one.
EXACT_VALUES = {
    "sinpi": [(0.0, 0.0), (-0.0, -0.0), (3.0, 0.0), (-4.0, -0.0), (0.5, 1.0), (1.5, -1.0), (-2.5, -1.0), (2.0**60, 0.0), (INF, NAN)],
    "cospi": [(0.0, 1.0), (0.5, 0.0), (-1.5, 0.0), (1.0, -1.0), (-3.0, -1.0), (2.0**60, 1.0), (-INF, NAN)],
    "round": [(0.5, 1.0), (-0.5, -1.0), (2.5, 3.0), (-0.3, -0.0), (0.49999997, 0.0), (INF, INF), (8388609.0, 8388609.0), (NAN, NAN)],
    "rint": [(0.5, 0.0), (1.5, 2.0), (-0.5, -0.0), (-2.5, -2.0)],
    "llround": [(0.5, 1), (-2.5, -3), (1e30, LONG_MAX), (-INF, LONG_MIN), (NAN, LONG_MIN)],
    "llrint": [(0.5, 0), (-2.5, -2), (3.5, 4), (INF, LONG_MAX), (-1e30, LONG_MIN), (NAN, LONG_MIN)],
    "ilogb": [(1.0, 0), (0.75, -1), (2.0**-130, -130), (-8.0, 3), (0.0, INT_MIN), (INF, INT_MAX), (-INF, INT_MAX), (NAN, INT_MIN)],
    "logb": [(1.0, 0.0), (-0.75, -1.0), (2.0**-130, -130.0), (-0.0, -INF), (-INF, INF), (NAN, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)],
    "rcbrt": [(0.0, INF), (-0.0, -INF), (-INF, -0.0), (8.0, 0.5)],
    "tgamma": [(0.0, INF), (-0.0, -INF), (5.0, 24.0), (-3.0, NAN), (-INF, NAN), (INF, INF), (200.0, INF), (-300.5, -0.0), (-301.5, 0.0)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-3.0, INF), (-INF, INF), (INF, INF), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0)],
    "erfcx": [(0.0, 1.0), (INF, 0.0), (-INF, INF), (-30.0, INF), (NAN, NAN)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN)],
    "erfcinv": [(1.0, 0.0), (0.0, INF), (-0.0, INF), (2.0, -INF), (2.5, NAN), (-0.5, NAN), (NAN, NAN)],
    "normcdf": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (-40.0, 0.0), (50.0, 1.0)],
    "normcdfinv": [(0.5, 0.0), (0.0, -INF), (1.0, INF), (1.5, NAN), (-0.5, NAN)],
    "cyl_bessel_i0": [(0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)],
    "cyl_bessel_i1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "j0": [(0.0, 1.0), (INF, 0.0), (-INF, 0.0), (NAN, NAN)],
    "j1": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (-INF, -0.0), (NAN, NAN)],
    "y0": [(0.0, -INF), (-1.0, NAN), (INF, 0.0), (-INF, NAN), (NAN, NAN)],
    "y1": [(0.0, -INF), (-1.0, NAN), (INF, 0.0), (-INF, NAN), (NAN, NAN)],
    "jn": [(0, 0.0, 1.0), (3, 0.0, 0.0), (3, INF, 0.0), (-1, 1.0, NAN), (2, NAN, NAN), (INT_MAX, 1.0, 0.0)],
    "yn": [(0, 0.0, -INF), (3, 0.0, -INF), (3, INF, 0.0), (-1, 1.0, NAN), (2, -1.0, NAN), (INT_MAX, 1.0, -INF)],
    "pow": [(-1.0, INF, 1.0), (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (-2.0, 0.5, NAN), (-INF, 3.0, -INF)],
    "hypot": [(INF, NAN, INF), (NAN, -INF, INF), (0.0, -0.0, 0.0), (3.0, -4.0, 5.0), (NAN, 1.0, NAN)],
    "rhypot": [(INF, NAN, 0.0), (0.0, -0.0, INF), (3.0, -4.0, 0.2), (NAN, 1.0, NAN)],
    "norm3d": [(INF, NAN, 1.0, INF), (0.0, 0.0, -0.0, 0.0), (2.0, 3.0, 6.0, 7.0), (NAN, 1.0, 1.0, NAN)],
    "fdim": [(1.0, 2.0, 0.0), (2.0, 1.0, 1.0), (INF, INF, 0.0), (NAN, 1.0, NAN), (1.0, -INF, INF)],
    "fmod": [(5.5, -2.0, 1.5), (-4.0, 2.0, -0.0), (1.0, INF, 1.0), (INF, 1.0, NAN), (1.0, 0.0, NAN)],
    "remainder": [
        (5.0, 2.0, 1.0),
        (7.0, 2.0, -1.0),
        (-4.0, 2.0, -0.0),
        (1.0, INF, 1.0),
        (-INF, 1.0, NAN),
        (1.0, 0.0, NAN),
        (3.0, -2.0, -1.0),
    ],
    "fmin": [(0.0, -0.0, -0.0), (-0.0, 0.0, -0.0), (NAN, 1.0, 1.0), (1.0, NAN, 1.0), (NAN, NAN, NAN), (-INF, 1.0, -INF)],
    "fmax": [(0.0, -0.0, 0.0), (-0.0, 0.0, 0.0), (NAN, 1.0, 1.0), (1.0, NAN, 1.0), (NAN, NAN, NAN), (-INF, 1.0, 1.0)],
    "ldexp": [(1.0, 10, 1024.0), (-0.0, 5, -0.0), (1.0, 5000, INF), (-1.0, -5000, -0.0), (INF, -5000, INF), (3.0, -140, 3 * 2.0**-140)],
    "scalbn": [(1.5, -3, 0.1875), (NAN, 3, NAN), (1.0, INT_MIN, 0.0), (1.0, INT_MAX, INF)],
    "nextafter": [(1.0, 1.0, 1.0), (NAN, 1.0, NAN), (-0.0, 0.0, 0.0)],
}


@pytest.mark.parametrize("name", sorted(EXACT_VALUES))
@pytest.mark.parametrize("suffix", ["f", ""])
def test_special_values(name, suffix):
    entry = LIBDEVICE[f"__nv_{name}{suffix}"]
    for *operands, expected in EXACT_VALUES[name]:
        typed = [NUMPY_TYPE[kind](value) for kind, value in zip(entry.operands, operands, strict=True)]
        expected = float(np.float32(expected)) if suffix and isinstance(expected, float) else expected
        assert same(entry(*typed), expected), (operands, entry(*typed), expected)


def test_predicates_and_saturation():
    values = np.array([0.0, -0.0, 1e-45, -5.0, 0.25, 7.0, INF, -INF, NAN], np.float32)
    for suffix, array in (("f", values), ("d", values.astype(np.float64))):
        np.testing.assert_array_equal(LIBDEVICE[f"__nv_isnan{suffix}"](array), [0] * 8 + [1])
        np.testing.assert_array_equal(LIBDEVICE[f"__nv_isinf{suffix}"](array), [0] * 6 + [1, 1, 0])
        np.testing.assert_array_equal(LIBDEVICE[f"__nv_signbit{suffix}"](array)[:8], [0, 1, 0, 1, 0, 0, 0, 1])
        np.testing.assert_array_equal(LIBDEVICE["__nv_finitef" if suffix == "f" else "__nv_isfinited"](array), [1] * 6 + [0] * 3)
    saturated = LIBDEVICE["__nv_saturatef"](values)
    np.testing.assert_array_equal(saturated, np.array([0, 0, 1e-45, 0, 0.25, 1, 1, 0, 0], np.float32))
    assert not np.signbit(saturated).any()


def test_nextafter_steps_over_zero_and_out_of_the_range():
    step = LIBDEVICE["__nv_nextafterf"]
    assert step(np.float32(0), np.float32(-1)) == -np.finfo(np.float32).smallest_subnormal
    assert step(np.finfo(np.float32).max, np.float32(INF)) == INF
    assert step(np.float32(1), np.float32(2)) == np.float32(1 + 2**-23)


def trapezoid_mean(function, arguments: np.ndarray) -> np.ndarray:
    """The mean of a periodic function of an angle: the trapezoidal rule converges exponentially. Shape of ``arguments``."""
    angles = np.arange(4096) * (2 * np.pi / 4096)
    return np.array([function(angles, argument).mean() for argument in arguments])


@pytest.mark.parametrize("order", [0, 1, 2, 3, 7, 20, 60])
def test_bessel_j_is_its_integral(order):
    x = np.concatenate([np.linspace(0.01, 30, 150), [1e-5, 2.0, 25.0, 59.9, 60.0, 61.0, 500.0]])
    expected = trapezoid_mean(lambda angle, value: np.cos(order * angle - value * np.sin(angle)), x)
    orders = np.full(x.shape, order, np.int32)
    np.testing.assert_allclose(LIBDEVICE["__nv_jn"](orders, x), expected, rtol=0, atol=2e-15)
    np.testing.assert_allclose(LIBDEVICE["__nv_jnf"](orders, x.astype(np.float32)), expected, rtol=0, atol=2e-5)
    sign = -1 if order % 2 else 1
    np.testing.assert_array_equal(LIBDEVICE["__nv_jn"](orders, -x), sign * LIBDEVICE["__nv_jn"](orders, x))
    if order < 2:
        np.testing.assert_array_equal(LIBDEVICE[f"__nv_j{order}"](x), LIBDEVICE["__nv_jn"](orders, x))


@pytest.mark.parametrize("order", [0, 1, 2, 5, 20])
def test_bessel_y_satisfies_the_wronskian(order):
    x = np.concatenate([np.linspace(0.1, 30, 150), [1e-5, 2.0, 25.0, 100.0, 1e5]])
    here, above = np.full(x.shape, order, np.int32), np.full(x.shape, order + 1, np.int32)
    jn, yn = LIBDEVICE["__nv_jn"], LIBDEVICE["__nv_yn"]
    left, right = jn(above, x) * yn(here, x), jn(here, x) * yn(above, x)
    # DLMF 10.5.2
    np.testing.assert_allclose((left - right) * (np.pi * x / 2), 1, rtol=0, atol=3e-13)
    if order < 2:
        np.testing.assert_array_equal(LIBDEVICE[f"__nv_y{order}"](x), yn(here, x))


def test_modified_bessel_functions_are_their_integrals():
    x = np.linspace(-30, 30, 121)
    for order, name in ((0, "cyl_bessel_i0"), (1, "cyl_bessel_i1")):
        expected = trapezoid_mean(lambda angle, value, order=order: np.exp(value * np.cos(angle)) * np.cos(order * angle), x)
        np.testing.assert_allclose(LIBDEVICE[f"__nv_{name}"](x), expected, rtol=2e-14, atol=1e-14)


def test_inverses_undo_their_functions():
    probabilities = np.concatenate([10.0 ** -np.arange(1, 308, 7.0), np.linspace(0.1, 0.5, 41), [5e-324, 1e-310]])
    erfcinv = LIBDEVICE["__nv_erfcinv"](probabilities)
    # Compared as the argument: erfc'(x) = -2 / sqrt(pi) exp(-x^2) = -2 / sqrt(pi) erfc(x) / erfcx(x).
    logarithm = np.log(LIBDEVICE["__nv_erfcx"](erfcinv)) - erfcinv**2
    np.testing.assert_allclose(logarithm, np.log(probabilities), rtol=2e-15, atol=1e-15)
    upper = 2 - probabilities[-40:-2]
    np.testing.assert_array_equal(LIBDEVICE["__nv_erfcinv"](upper), -LIBDEVICE["__nv_erfcinv"](2 - upper))
    values = np.linspace(-37, 5, 200)
    np.testing.assert_allclose(LIBDEVICE["__nv_normcdfinv"](LIBDEVICE["__nv_normcdf"](values)), values, rtol=1e-9)
    values = np.linspace(-0.99, 0.99, 99)
    np.testing.assert_allclose(LIBDEVICE["__nv_erf"](LIBDEVICE["__nv_erfinv"](values)), values, rtol=1e-15)


MPMATH_TWINS = {
    "erfcx": (lambda m, x: m.exp(x * x) * m.erfc(x), -20, 100),
    "erfcinv": (lambda m, y: m.erfinv(1 - y), 0.001, 1.999),
    "normcdf": (lambda m, x: m.ncdf(x), -37, 8),
    "erfinv": (lambda m, x: m.erfinv(x), -0.999, 0.999),
    "lgamma": (lambda m, x: m.log(abs(m.gamma(x))), 0.01, 3),
    "tgamma": (lambda m, x: m.gamma(x), -170, 171.5),
    "cyl_bessel_i0": (lambda m, x: m.besseli(0, x), -50, 50),
    "cyl_bessel_i1": (lambda m, x: m.besseli(1, x), -50, 50),
    "sinpi": (lambda m, x: m.sinpi(x), -50, 50),
    "exp10": (lambda m, x: m.mpf(10) ** x, -300, 300),
}


@pytest.mark.parametrize("name", sorted(MPMATH_TWINS))
def test_float64_accuracy(name):
    mpmath = pytest.importorskip("mpmath")
    twin, low, high = MPMATH_TWINS[name]
    points = np.random.default_rng(4).uniform(low, high, 150)
    with mpmath.workdps(60):
        expected = np.array([float(twin(mpmath, mpmath.mpf(x))) for x in points.tolist()])
    assert error_in_ulps(LIBDEVICE[f"__nv_{name}"](points), expected) <= 10


@pytest.mark.parametrize("order", [0, 1, 4, 30, 200, 1000])
def test_bessel_accuracy(order):
    mpmath = pytest.importorskip("mpmath")
    points = np.random.default_rng(5).uniform(0.5, 60, 100) if order < 100 else np.linspace(0.3, 1.3, 100) * order
    amplitude = np.sqrt(2 / (np.pi * points))
    for kind in "jy":
        with mpmath.workdps(40):
            expected = np.array([float(getattr(mpmath, f"bessel{kind}")(order, x)) for x in points.tolist()])
        actual = LIBDEVICE[f"__nv_{kind}n"](np.full(points.shape, order, np.int32), points)
        is_finite = np.isfinite(expected)
        np.testing.assert_array_equal(actual[~is_finite], expected[~is_finite])
        error = np.abs(actual[is_finite] - expected[is_finite])
        assert np.max(error / np.maximum(amplitude, np.abs(expected))[is_finite]) < 4e-14, kind
        # Below its order the function has no zeros, and the error is relative.
        is_monotonic = (points < order) & (np.abs(expected) > 1e-307) & is_finite
        np.testing.assert_allclose(actual[is_monotonic], expected[is_monotonic], rtol=4e-14)
