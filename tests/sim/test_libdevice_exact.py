"""The libdevice functions that are exact by definition, bit by bit against ``fractions.Fraction`` and Python integers."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from triton_dist.sim.ops.libdevice import LIBDEVICE as FLUSHING

pytestmark = pytest.mark.host_code

# The functions without the flushing of subnormals, which test_matches_h100.py checks.
LIBDEVICE = {symbol: replace(function, reads_subnormals=True, returns_subnormals=True) for symbol, function in FLUSHING.items()}

MODES = ("rn", "rz", "rd", "ru")
# Precision in bits, and exponent of the smallest subnormal.
FORMATS = {np.float32: (24, -149), np.float64: (53, -1074)}
SETTINGS = settings(max_examples=150, deadline=None, derandomize=True)

INTEGERS = {"int": (np.int32, True), "uint": (np.int32, False), "ll": (np.int64, True), "ull": (np.int64, False)}


def floats(dtype):
    """Finite floats: any, and those of few bits whose results often are ties, exact, or subnormal."""
    precision, lowest = FORMATS[dtype]
    few_bits = st.builds(math.ldexp, st.integers(-9, 9).map(float), st.integers(lowest, -lowest - precision - 4))
    near = st.builds(math.ldexp, st.integers(-(2**precision) + 1, 2**precision - 1).map(float), st.integers(-60, -20))
    return st.one_of(st.floats(width=32 if dtype is np.float32 else 64, allow_nan=False, allow_infinity=False), few_bits, near)


def rounded(value: Fraction, dtype, mode: str) -> float:
    """``value``, not zero, rounded to ``dtype`` as IEEE 754 says."""
    precision, lowest = FORMATS[dtype]
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** max(exponent - precision + 1, lowest)
    count, rest = divmod(magnitude, quantum)
    goes_away = {
        "rn": 2 * rest > quantum or (2 * rest == quantum and count % 2 == 1),
        "rz": False,
        "rd": value < 0 and rest > 0,
        "ru": value > 0 and rest > 0,
    }[mode]
    result = (count + goes_away) * quantum
    largest = Fraction(float(np.finfo(dtype).max))
    if result > largest:
        overflows = goes_away or mode == "rn" or (mode == "ru" and value > 0) or (mode == "rd" and value < 0)
        result = math.inf if overflows else largest
    return float(result) if value > 0 else -float(result)


def square_root(value: Fraction) -> Fraction:
    """The square root with 2000 bits behind the point, and a sticky bit below them."""
    scaled = (value.numerator << 4000) // value.denominator
    root = math.isqrt(scaled)
    return Fraction(2 * root + (root * root != scaled or (value.numerator << 4000) % value.denominator != 0), 2 << 2000)


def check(symbol: str, dtype, operands: tuple[float, ...], exact: Fraction | None, mode: str, zero: float = 0.0) -> None:
    """The symbol's result has the bits of ``exact`` rounded once; of ``zero`` when that is 0."""
    result = LIBDEVICE[symbol](*(dtype(operand) for operand in operands))
    expected = rounded(exact, dtype, mode) if exact != 0 else zero
    assert struct.pack("d", float(result)) == struct.pack("d", expected), (symbol, operands, float(result), expected)


def zero_sum(first: float, second: float, mode: str) -> float:
    """The IEEE 754 sign of an exact zero sum whose addends have the signs of ``first`` and ``second``."""
    signs = {math.copysign(1, first), math.copysign(1, second)}
    if len(signs) == 1:
        return math.copysign(0.0, first)
    return -0.0 if mode == "rd" else 0.0


@pytest.mark.parametrize("dtype", FORMATS)
class TestRoundingDirections:
    @SETTINGS
    @given(data=st.data())
    def test_sum_and_difference(self, dtype, data):
        a = data.draw(floats(dtype))
        b = data.draw(st.one_of(floats(dtype), st.just(-a), st.just(float(np.nextafter(dtype(-a), dtype(0))))))
        letter = "f" if dtype is np.float32 else "d"
        for mode in MODES:
            check(f"__nv_{letter}add_{mode}", dtype, (a, b), Fraction(a) + Fraction(b), mode, zero_sum(a, b, mode))
            check(f"__nv_{letter}sub_{mode}", dtype, (a, -b), Fraction(a) + Fraction(b), mode, zero_sum(a, b, mode))

    @SETTINGS
    @given(data=st.data())
    def test_product_quotient_and_reciprocal(self, dtype, data):
        a, b = data.draw(floats(dtype)), data.draw(floats(dtype))
        letter = "f" if dtype is np.float32 else "d"
        zero = math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))
        for mode in MODES:
            check(f"__nv_{letter}mul_{mode}", dtype, (a, b), Fraction(a) * Fraction(b), mode, zero)
            if b != 0:
                check(f"__nv_{letter}div_{mode}", dtype, (a, b), Fraction(a) / Fraction(b), mode, zero)
                check(f"__nv_{letter}rcp_{mode}", dtype, (b,), 1 / Fraction(b), mode)

    @SETTINGS
    @given(data=st.data())
    def test_square_root(self, dtype, data):
        a = abs(data.draw(floats(dtype)))
        letter = "f" if dtype is np.float32 else "d"
        for mode in MODES:
            check(f"__nv_{letter}sqrt_{mode}", dtype, (a,), square_root(Fraction(a)), mode)

    @SETTINGS
    @given(data=st.data())
    def test_fused_multiply_add(self, dtype, data):
        a, b = data.draw(floats(dtype)), data.draw(floats(dtype))
        product = float(np.clip(Fraction(a) * Fraction(b), *(float(np.finfo(dtype).max) * sign for sign in (-1, 1))))
        nearly = float(dtype(-product))
        c = data.draw(st.one_of(floats(dtype), st.just(nearly), st.just(float(np.nextafter(dtype(nearly), dtype(0))))))
        suffix = "f" if dtype is np.float32 else ""
        zero_sign = math.copysign(1, a) * math.copysign(1, b)
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        for mode in MODES:
            check(f"__nv_fma{suffix}_{mode}", dtype, (a, b, c), exact, mode, zero_sum(zero_sign, c, mode))
        check(f"__nv_fma{suffix}", dtype, (a, b, c), exact, "rn", zero_sum(zero_sign, c, "rn"))

    def test_special_operands_are_the_same_in_every_direction(self, dtype):
        values = np.array([0.0, -0.0, 1.0, -2.0, np.finfo(dtype).max, np.inf, -np.inf, np.nan], dtype)
        a, b, c = (grid.ravel() for grid in np.meshgrid(values, values, values))
        letter, suffix = ("f", "f") if dtype is np.float32 else ("d", "")
        with np.errstate(all="ignore"):
            nearest = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}
            is_special = ~np.isfinite(a) | ~np.isfinite(b)
            for name, expected in nearest.items():
                for mode in MODES:
                    actual = LIBDEVICE[f"__nv_{letter}{name}_{mode}"](a, b)
                    np.testing.assert_array_equal(actual[is_special], expected[is_special])
                    if name == "div":
                        np.testing.assert_array_equal(actual[b == 0], expected[b == 0])
            # An infinite addend wins over a product that only overflows.
            is_finite_product = np.isfinite(a) & np.isfinite(b)
            expected = np.where(is_finite_product, c, a * b + c)
            is_special |= ~np.isfinite(c)
            for mode in MODES:
                actual = LIBDEVICE[f"__nv_fma{suffix}_{mode}"](a, b, c)
                np.testing.assert_array_equal(actual[is_special], expected[is_special])
                np.testing.assert_array_equal(
                    LIBDEVICE[f"__nv_{letter}sqrt_{mode}"](values)[[0, 1, 3, 5, 6, 7]], np.sqrt(values)[[0, 1, 3, 5, 6, 7]]
                )


@SETTINGS
@given(a=floats(np.float32).map(abs).filter(bool))
def test_reciprocal_square_root_rounds_to_nearest(a):
    check("__nv_frsqrt_rn", np.float32, (a,), square_root(1 / Fraction(a)), "rn")


@SETTINGS
@given(a=floats(np.float64), at=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_double_to_float(a, at):
    for value in (a, at, float(np.nextafter(at, 9)), float(np.nextafter(at, -9))):
        for mode in MODES:
            check_conversion = float(LIBDEVICE[f"__nv_double2float_{mode}"](np.float64(value)))
            expected = rounded(Fraction(value), np.float32, mode) if value else value
            assert struct.pack("d", check_conversion) == struct.pack("d", expected)


INTEGRAL = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(("source", "dtype"), [("float", np.float32), ("double", np.float64)])
@SETTINGS
@given(data=st.data())
def test_float_to_integer_rounds_and_clamps(name, source, dtype, data):
    integer, is_signed = INTEGERS[name]
    bits = np.iinfo(integer).bits
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    edges = st.sampled_from([low - 1, low, high, high + 1, 2**31, 2**63]).flatmap(lambda edge: st.floats(edge - 3.0, edge + 3.0))
    value = float(dtype(data.draw(st.one_of(floats(dtype), edges, st.floats(-9, 9)))))
    for mode in MODES:
        expected = min(max(INTEGRAL[mode](Fraction(value)), low), high)
        actual = int(LIBDEVICE[f"__nv_{source}2{name}_{mode}"](dtype(value)))
        assert actual % 2**bits == expected % 2**bits


def test_float_to_integer_of_nan_and_infinity():
    for mode in MODES:
        for name, (integer, is_signed) in INTEGERS.items():
            bits = np.iinfo(integer).bits
            largest = 2 ** (bits - 1) - 1 if is_signed else -1
            smallest = -(2 ** (bits - 1)) if is_signed else 0
            for source, dtype in (("float", np.float32), ("double", np.float64)):
                actual = LIBDEVICE[f"__nv_{source}2{name}_{mode}"](np.array([np.inf, -np.inf, np.nan], dtype))
                not_a_number = 0 if (source, bits) == ("float", 32) else -(2 ** (bits - 1))
                np.testing.assert_array_equal(actual, [largest, smallest, not_a_number])


@pytest.mark.parametrize("name", INTEGERS)
@SETTINGS
@given(data=st.data())
@example(data=None)
def test_integer_to_float(name, data):
    integer, is_signed = INTEGERS[name]
    bits = np.iinfo(integer).bits
    raw = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = [-1, 0, 1, 2**24 + 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))] if data is None else [data.draw(raw), data.draw(raw) >> 20]
    for value in values:
        meant = value if is_signed or value >= 0 else value + 2**bits
        for target, dtype in (("float", np.float32), ("double", np.float64)):
            for mode in MODES if bits == 64 or dtype is np.float32 else ("rn",):
                expected = rounded(Fraction(meant), dtype, mode) if meant else 0.0
                assert float(LIBDEVICE[f"__nv_{name}2{target}_{mode}"](integer(value))) == expected


WORD = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31, 2**31 - 1, 2**32 - 1]))
LONG = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**31, 2**32, 2**63, 2**63 - 1, 2**64 - 1]))


def signed(value: int, bits: int) -> int:
    return (value & (2**bits - 1)) - (2**bits if value >> (bits - 1) & 1 else 0)


def call(symbol: str, *values: int) -> int:
    """The result, modulo its width, for operands given as unsigned numbers."""
    entry = LIBDEVICE[symbol]
    typed = []
    for kind, value in zip(entry.operands, values, strict=True):
        bits = int(kind[1:])
        typed.append((np.int32 if bits == 32 else np.int64)(signed(value, bits)))
    return int(entry(*typed)) % 2 ** int(entry.result[1:])


@SETTINGS
@given(a=WORD, b=WORD, c=WORD)
def test_32_bit_integers(a, b, c):
    x, y = signed(a, 32), signed(b, 32)
    low, high = signed(a & 0xFFFFFF, 24), signed(b & 0xFFFFFF, 24)
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    expected = {
        ("clz", a): 32 - a.bit_length(),
        ("ffs", a): (a & -a).bit_length(),
        ("popc", a): bin(a).count("1"),
        ("brev", a): int(f"{a:032b}"[::-1], 2),
        ("byte_perm", a, b, c): int.from_bytes(bytes(source[c >> 4 * i & 7] for i in range(4)), "little"),
        ("mulhi", a, b): x * y >> 32,
        ("umulhi", a, b): a * b >> 32,
        ("mul24", a, b): low * high,
        ("umul24", a, b): (a & 0xFFFFFF) * (b & 0xFFFFFF),
        ("sad", a, b, c): abs(x - y) + c,
        ("usad", a, b, c): abs(a - b) + c,
        ("hadd", a, b): (x + y) >> 1,
        ("uhadd", a, b): (a + b) >> 1,
        ("rhadd", a, b): (x + y + 1) >> 1,
        ("urhadd", a, b): (a + b + 1) >> 1,
        ("abs", a): abs(x),
        ("min", a, b): min(x, y),
        ("max", a, b): max(x, y),
        ("umin", a, b): min(a, b),
        ("umax", a, b): max(a, b),
    }
    for (name, *operands), value in expected.items():
        assert call(f"__nv_{name}", *operands) == value % 2**32, (name, operands)


@SETTINGS
@given(a=LONG, b=LONG)
def test_64_bit_integers(a, b):
    x, y = signed(a, 64), signed(b, 64)
    expected = {
        ("clzll", a): 64 - a.bit_length(),
        ("ffsll", a): (a & -a).bit_length(),
        ("popcll", a): bin(a).count("1"),
        ("brevll", a): int(f"{a:064b}"[::-1], 2),
        ("mul64hi", a, b): x * y >> 64,
        ("umul64hi", a, b): a * b >> 64,
        ("llabs", a): abs(x),
        ("llmin", a, b): min(x, y),
        ("llmax", a, b): max(x, y),
        ("ullmin", a, b): min(a, b),
        ("ullmax", a, b): max(a, b),
    }
    for (name, *operands), value in expected.items():
        assert call(f"__nv_{name}", *operands) == value % 2 ** int(LIBDEVICE[f"__nv_{name}"].result[1:]), (name, operands)


@SETTINGS
@given(bits=LONG)
def test_bit_casts(bits):
    word = signed(bits, 32)
    (single,) = struct.unpack("f", struct.pack("i", word))
    (double,) = struct.unpack("d", struct.pack("Q", bits))
    halves = np.int32(signed(bits >> 32, 32)), np.int32(word)
    np.testing.assert_array_equal(LIBDEVICE["__nv_hiloint2double"](*halves), double)
    np.testing.assert_array_equal(LIBDEVICE["__nv_longlong_as_double"](np.int64(signed(bits, 64))), double)
    for name in ("int", "uint"):
        np.testing.assert_array_equal(LIBDEVICE[f"__nv_{name}_as_float"](np.int32(word)), np.float32(single))
    pattern = np.array([bits], np.uint64).view(np.float64)
    assert LIBDEVICE["__nv_double_as_longlong"](pattern)[0] == signed(bits, 64)
    assert (LIBDEVICE["__nv_double2hiint"](pattern)[0], LIBDEVICE["__nv_double2loint"](pattern)[0]) == halves
    pattern = np.array([word], np.int32).view(np.float32)
    assert LIBDEVICE["__nv_float_as_int"](pattern)[0] == LIBDEVICE["__nv_float_as_uint"](pattern)[0] == word


@SETTINGS
@given(data=st.data())
def test_remainders_are_exact(data):
    for suffix, dtype in (("f", np.float32), ("", np.float64)):
        a, b = data.draw(floats(dtype)), data.draw(floats(dtype).filter(bool))
        quotient = Fraction(a) / Fraction(b)
        for name, whole in (("fmod", math.trunc(quotient)), ("remainder", round(quotient))):
            exact = Fraction(a) - whole * Fraction(b)
            check(f"__nv_{name}{suffix}", dtype, (a, b), exact, "rn", math.copysign(0.0, a))


def test_coarse_reciprocal_keeps_the_upper_half():
    values = np.random.default_rng(0).normal(0, 1e3, 200)
    coarse = LIBDEVICE["__nv_rcp64h"](values)
    np.testing.assert_allclose(coarse, 1 / values, rtol=2**-19)
    assert not (coarse.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    special = LIBDEVICE["__nv_rcp64h"](np.array([0.0, -0.0, 1e-310, np.inf, -np.inf, np.nan, 1.7e308]))
    np.testing.assert_array_equal(special, [np.inf, -np.inf, np.inf, 0.0, -0.0, np.nan, 0.0])


def test_half_precision_bits():
    halves = np.arange(-(2**15), 2**15, dtype=np.int16)
    values = LIBDEVICE["__nv_half2float"](halves)
    np.testing.assert_array_equal(values, halves.view(np.float16).astype(np.float32))
    is_number = ~np.isnan(values)
    np.testing.assert_array_equal(LIBDEVICE["__nv_float2half_rn"](values)[is_number], halves[is_number])
    assert LIBDEVICE["__nv_float2half_rn"](np.float32(1 + 2**-11)) == 0x3C00
