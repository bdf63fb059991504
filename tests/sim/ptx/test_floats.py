"""Instructions of floats beside exact fractions, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

pytestmark = [pytest.mark.host_code, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

FORMATS = {
    "f16": (11, -14, np.float16),
    "bf16": (8, -126, ml_dtypes.bfloat16),
    "f32": (24, -126, np.float32),
    "f64": (53, -1022, np.float64),
}
"""For each type the bits of its mantissa, its smallest exponent, and numpy's dtype."""

EDGES = [0.0, -0.0, 1.0, -1.0, 1.5, 2.0, 3.0, -0.1, 1e-3, 65504.0, -7.25, 1 / 3, 5.960464477539063e-08, 6e-5, 12345.678]


def width(kind):
    return np.dtype(FORMATS[kind][2]).itemsize * 8


def operands(kind, count, specials=True):
    """Edge values and random bits."""
    dtype = np.dtype(FORMATS[kind][2])
    chance = np.random.default_rng(count)
    bits = chance.integers(0, 1 << min(width(kind), 63), 120).astype(f"u{dtype.itemsize}")
    near = (chance.standard_normal(120) * 8).astype(dtype)
    values = np.concatenate([np.array(EDGES).astype(dtype), bits.view(dtype), near, -bits.view(dtype)])
    if specials:
        values = np.concatenate([values, np.array([np.inf, -np.inf, np.nan]).astype(dtype)])
    else:
        values = values[np.isfinite(values.astype(np.float64))]
    pool = np.resize(values, 400)
    return [chance.permutation(pool).view(f"u{dtype.itemsize}") for _ in range(count)]


def rounded(value: Fraction, kind: str, mode: str):
    """A fraction as the nearest number of a type, or its neighbour on one side. Gives (a number as a fraction) or an infinity."""
    digits, least, dtype = FORMATS[kind]
    if value == 0:
        return Fraction(0)
    size = abs(value)
    exponent = max(math.floor(math.log2(size.numerator) - math.log2(size.denominator)) - 2, least)
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (exponent - digits + 1)
    whole, rest = divmod(size, unit)
    outward = {"rz": False, "rm": value < 0, "rp": value > 0}.get(mode)
    if outward is None:
        outward = rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)
    result = (whole + (1 if rest and outward else 0)) * unit
    largest = Fraction(float(ml_dtypes.finfo(dtype).max))
    if result > largest:
        inward = {"rz": True, "rm": value > 0, "rp": value < 0}.get(mode, False)
        result = largest if inward else math.inf
    return result if value > 0 else -result


def as_number(bits, kind):
    return float(bits[None].view(FORMATS[kind][2])[0])


def look(text, kind, mode, arrays, exact, evaluate, takes=None):
    """Compare the finite results of an instruction with exact ones; NaN and infinities with what numpy's operators say elsewhere."""
    (found,) = evaluate(text, [width(kind)], *arrays)
    takes = takes or [kind] * len(arrays)
    seen = 0
    for place in range(len(found)):
        values = [as_number(array[place : place + 1][0], take) for array, take in zip(arrays, takes, strict=True)]
        if not all(math.isfinite(value) for value in values):
            continue
        value = exact(*(Fraction(one) for one in values))
        if value is None:
            continue
        seen += 1
        got = as_number(found[place], kind)
        want = rounded(value, kind, mode)
        assert got == float(want), f"{text} of {values}: {got!r}, not {float(want)!r}"
    assert seen > 100


MODES = ("rn", "rz", "rm", "rp")


@pytest.mark.parametrize("kind", ("f32", "f64"))
@pytest.mark.parametrize("mode", MODES)
def test_every_rounding(kind, mode, evaluate):
    two, three = operands(kind, 2), operands(kind, 3)
    look(f"add.{mode}.{kind} $0, $1, $2;", kind, mode, two, lambda a, b: a + b, evaluate)
    look(f"sub.{mode}.{kind} $0, $1, $2;", kind, mode, two, lambda a, b: a - b, evaluate)
    look(f"mul.{mode}.{kind} $0, $1, $2;", kind, mode, two, lambda a, b: a * b, evaluate)
    look(f"div.{mode}.{kind} $0, $1, $2;", kind, mode, two, lambda a, b: a / b if b else None, evaluate)
    look(f"rcp.{mode}.{kind} $0, $1;", kind, mode, two[:1], lambda a: 1 / a if a else None, evaluate)
    look(f"fma.{mode}.{kind} $0, $1, $2, $3;", kind, mode, three, lambda a, b, c: a * b + c, evaluate)


@pytest.mark.parametrize("kind", ("f16", "bf16"))
def test_sixteen_bits(kind, evaluate):
    two, three = operands(kind, 2), operands(kind, 3)
    for name, exact in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("mul", lambda a, b: a * b)):
        look(f"{name}.{kind} $0, $1, $2;", kind, "rn", two, exact, evaluate)
    look(f"fma.rn.{kind} $0, $1, $2, $3;", kind, "rn", three, lambda a, b, c: a * b + c, evaluate)
    look(f"fma.rn.relu.{kind} $0, $1, $2, $3;", kind, "rn", three, lambda a, b, c: max(a * b + c, 0), evaluate)


@pytest.mark.parametrize("kind", ("f16", "bf16"))
@pytest.mark.parametrize("text", ("add.{} $0, $1, $2;", "mul.{} $0, $1, $2;", "max.NaN.{} $0, $1, $2;", "fma.rn.{} $0, $1, $2, $2;"))
def test_a_pair_is_two_numbers(kind, text, evaluate):
    low, high = operands(kind, 2), operands(kind, 4)[2:]
    pairs = [one.astype(np.uint32) | other.astype(np.uint32) << np.uint32(16) for one, other in zip(low, high, strict=True)]
    (found,) = evaluate(text.format(kind + "x2"), [32], *pairs)
    for part, half in ((low, found & np.uint32(0xFFFF)), (high, found >> np.uint32(16))):
        (alone,) = evaluate(text.format(kind), [16], *part)
        assert (half == alone).all()


@pytest.mark.parametrize("kind", FORMATS)
def test_extrema(kind, evaluate):
    a, b = operands(kind, 2)
    dtype = FORMATS[kind][2]
    x, y = a.view(dtype).astype(np.float64), b.view(dtype).astype(np.float64)
    for name, plain, numeric in (("min", np.minimum, np.fmin), ("max", np.maximum, np.fmax)):
        (found,) = evaluate(f"{name}.{kind} $0, $1, $2;", [width(kind)], a, b)
        np.testing.assert_array_equal(found.view(dtype).astype(np.float64), numeric(x, y))
        if kind != "f64":
            (found,) = evaluate(f"{name}.NaN.{kind} $0, $1, $2;", [width(kind)], a, b)
            np.testing.assert_array_equal(found.view(dtype).astype(np.float64), plain(x, y))
    for name, function in (("abs", np.abs), ("neg", np.negative)):
        (found,) = evaluate(f"{name}.{kind} $0, $1;", [width(kind)], a)
        np.testing.assert_array_equal(found.view(dtype).astype(np.float64), function(x))


def test_a_nan_is_the_gpus(evaluate):
    bits = np.array([0x7FC00000, 0xFFC12345], np.uint32)
    assert evaluate("add.f32 $0, $1, $1;", [32], bits)[0].tolist() == [0x7FFFFFFF] * 2
    assert evaluate("add.f16 $0, $1, $1;", [16], np.array([0xFE01], np.uint16))[0].tolist() == [0x7FFF]


def test_flushing_and_saturation(evaluate):
    tiny, one = np.array([1e-40, -1e-40], np.float32).view(np.uint32), np.array([1.0], np.float32).view(np.uint32)
    assert evaluate("mul.ftz.f32 $0, $1, $2;", [32], tiny, one)[0].tolist() == [0, 0x80000000]
    assert evaluate("mul.f32 $0, $1, $2;", [32], tiny, one)[0].tolist() == tiny.tolist()
    wide = np.array([-3.0, 0.25, 7.0, np.nan], np.float32).view(np.uint32)
    assert evaluate("mul.sat.f32 $0, $1, $2;", [32], wide, one)[0].view(np.float32).tolist() == [0.0, 0.25, 1.0, 0.0]


@pytest.mark.parametrize("mode", ("rni", "rzi", "rmi", "rpi"))
@pytest.mark.parametrize("taken", ("f16", "f32", "f64"))
@pytest.mark.parametrize("given", ("u16", "s16", "u32", "s32", "u64", "s64"))
def test_floats_to_integers(given, taken, mode, evaluate):
    (a,) = operands(taken, 1)
    bits = int(given[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if given[0] == "s" else (0, (1 << bits) - 1)
    whole = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    (found,) = evaluate(f"cvt.{mode}.{given}.{taken} $0, $1;", [bits], a)
    for place, value in enumerate(a.view(FORMATS[taken][2]).astype(np.float64).tolist()):
        if math.isnan(value):
            want = 1 << bits - 1 if 64 in (bits, width(taken)) else 0
        else:
            want = (high if value > 0 else low) if math.isinf(value) else max(low, min(high, whole(Fraction(value))))
        assert int(found[place]) == want & (1 << bits) - 1, value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("taken", ("u16", "s16", "u32", "s32", "u64", "s64"))
@pytest.mark.parametrize("given", FORMATS)
def test_integers_to_floats(given, taken, mode, evaluate):
    bits = int(taken[1:])
    chance = np.random.default_rng(bits)
    top = 1 << bits
    drawn = [int.from_bytes(chance.bytes(bits // 8), "little") >> int(chance.integers(0, bits)) for _ in range(200)]
    values = [0, 1, 3, top - 1, top // 2, top // 2 - 1, top // 2 + 1, *drawn]
    (found,) = evaluate(f"cvt.{mode}.{given}.{taken} $0, $1;", [width(given)], np.array(values, f"u{bits // 8}"))
    for place, value in enumerate(values):
        number = value - top if taken[0] == "s" and value >> bits - 1 else value
        assert as_number(found[place], given) == float(rounded(Fraction(number), given, mode)), number


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("given, taken", [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")])
def test_to_narrower_floats(given, taken, mode, evaluate):
    (a,) = operands(taken, 1)
    near = np.array(np.random.default_rng(3).standard_normal(300) * 100).astype(FORMATS[taken][2])
    a = np.concatenate([a, near.view(a.dtype)])
    look(f"cvt.{mode}.{given}.{taken} $0, $1;", given, mode, [a], lambda x: x, evaluate, [taken])


@pytest.mark.parametrize("given, taken", [("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16")])
def test_to_wider_floats(given, taken, evaluate):
    (a,) = operands(taken, 1)
    look(f"cvt.{given}.{taken} $0, $1;", given, "rn", [a], lambda x: x, evaluate, [taken])


@pytest.mark.parametrize("mode, function", [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)])
def test_to_whole_floats(mode, function, evaluate):
    (a,) = operands("f32", 1)
    (found,) = evaluate(f"cvt.{mode}.f32.f32 $0, $1;", [32], a)
    np.testing.assert_array_equal(found.view(np.float32), function(a.view(np.float32)))


def test_packing(evaluate):
    high, low = operands("f32", 2)
    for given in ("f16x2", "bf16x2"):
        (found,) = evaluate(f"cvt.rn.{given}.f32 $0, $1, $2;", [32], high, low)
        halves = [evaluate(f"cvt.rn.{given[:-2]}.f32 $0, $1;", [16], one)[0] for one in (low, high)]
        assert (found == (halves[0].astype(np.uint32) | halves[1].astype(np.uint32) << np.uint32(16))).all()
    for given, dtype in (("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)):
        limit = float(ml_dtypes.finfo(dtype).max)
        (found,) = evaluate(f"cvt.rn.satfinite.{given}.f32 $0, $1, $2;", [16], high, low)
        values = found.view(np.uint8).reshape(-1, 2)[:, 0].copy().view(dtype).astype(np.float32)
        numbers = low.view(np.float32)
        np.testing.assert_array_equal(values, np.clip(numbers, -limit, limit).astype(dtype).astype(np.float32))
        (again,) = evaluate(f"cvt.rn.f16x2.{given} $0, $1;", [32], found)
        np.testing.assert_array_equal((again & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32), values)


COMPARE = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


@pytest.mark.parametrize("kind", FORMATS)
def test_comparisons(kind, evaluate):
    a, b = operands(kind, 2)
    x, y = (one.view(FORMATS[kind][2]).astype(np.float64) for one in (a, b))
    missing = np.isnan(x) | np.isnan(y)
    rows = {name: function(x, y) for name, function in COMPARE.items()} | {"ne": (x != y) & ~missing, "num": ~missing, "nan": missing}
    rows |= {f"{name}u": row | missing for name, row in rows.items() if name not in ("num", "nan")}
    for name, want in rows.items():
        (found,) = evaluate(f"{{ .reg .pred %p; setp.{name}.{kind} %p, $1, $2; selp.u32 $0, 1, 0, %p; }}", [32], a, b)
        np.testing.assert_array_equal(found, want.astype(np.uint32), err_msg=name)


@pytest.mark.parametrize("name", ("rcp", "sqrt", "rsqrt", "lg2", "tanh", "ex2", "sin", "cos"))
def test_approximate_functions(name, evaluate):
    x = np.abs(np.random.default_rng(1).standard_normal(200)).astype(np.float32) + np.float32(0.1)
    function = {
        "rcp": lambda v: 1 / v, "sqrt": np.sqrt, "rsqrt": lambda v: 1 / np.sqrt(v), "lg2": np.log2, "tanh": np.tanh, "ex2": np.exp2,
        "sin": np.sin, "cos": np.cos,
    }[name]  # fmt: skip
    (found,) = evaluate(f"{name}.approx.ftz.f32 $0, $1;" if name != "tanh" else "tanh.approx.f32 $0, $1;", [32], x.view(np.uint32))
    np.testing.assert_allclose(found.view(np.float32), function(x.astype(np.float64)), rtol=2e-7)


@pytest.mark.parametrize("kind", ("f32", "f64"))
def test_zero_is_a_normal_number(kind, evaluate):
    """As an H200 has it."""
    dtype = np.dtype(FORMATS[kind][2])
    tiny = np.finfo(dtype).tiny
    given = np.array([0.0, -0.0, tiny, tiny / 2, np.inf, np.nan], dtype).view(f"u{dtype.itemsize}")
    (found,) = evaluate(f"{{ .reg .pred %p; testp.normal.{kind} %p, $1; selp.u32 $0, 1, 0, %p; }}", [32], given)
    assert found.tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(("kind", "bits"), [("bf16x2", 0x0000), ("f16x2", 0x8000)])
def test_relu_of_minus_zero(kind, bits, evaluate):
    """As an H200 has it: pairs of bf16 lose the sign."""
    minus_zero = np.array([0x80000000], np.uint32)
    (found,) = evaluate(f"cvt.rn.relu.{kind}.f32 $0, $1, $2;", [32], minus_zero, minus_zero)
    assert found.tolist() == [bits << 16 | bits]
