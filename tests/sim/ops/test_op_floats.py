"""Floating point ops: rounding, NaN, infinities and signed zeros, for every float type, on tiles and on scalars."""

from __future__ import annotations

import itertools
import math
import operator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

INF, NAN = math.inf, math.nan
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3.0, 7.75, 1e-3, 1e4, -6e4, 1e38, 1e-8, -1e-40, INF, -INF, NAN]


def edge_pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = zip(*itertools.product(EDGES, repeat=2), strict=True)
    return torch.tensor(left, dtype=dtype), torch.tensor(right, dtype=dtype)


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal with the sign of zeros; any NaN equals any other."""
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(actual)[~actual.isnan()], torch.signbit(expected)[~expected.isnan()])


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def subtract(a, b):
    return a - b


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def divide(a, b):
    return a / b


ARITHMETIC = [(add, operator.add), (subtract, operator.sub), (multiply, operator.mul)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("function", "reference"), ARITHMETIC, ids=lambda item: getattr(item, "__name__", ""))
def test_arithmetic_rounds_once(elementwise, dtype, function, reference):
    """Every result is the exact one rounded to the nearest; fp64 holds what the narrow types need for that."""
    left, right = edge_pairs(dtype)
    expected = reference(left.double(), right.double())
    if dtype in (torch.float16, torch.bfloat16):
        expected = expected.to(torch.float32)
    assert_same_bits(elementwise(function, dtype, left, right), expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_division_follows_ieee(elementwise, dtype):
    left, right = edge_pairs(dtype)
    assert_same_bits(elementwise(divide, dtype, left, right), (left.double() / right.double()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_division_is_done_in_fp32(elementwise, dtype):
    left, right = edge_pairs(dtype)
    assert_same_bits(elementwise(divide, torch.float32, left, right), left.float() / right.float())


@triton.jit
def integer_ratio(a, b):
    return a / b


def test_true_division_of_integers_is_fp32(elementwise):
    left, right = torch.tensor([7, -7, 1, 2**30 + 1], dtype=torch.int32), torch.tensor([2, 2, 3, 7], dtype=torch.int32)
    assert_same_bits(elementwise(integer_ratio, torch.float32, left, right), left.float() / right.float())


@triton.jit
def remainder(a, b):
    return a % b


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_remainder_is_what_the_gpu_computes(elementwise, dtype):
    """``a - trunc(a / b) * b`` with quotient and result rounded once each, as measured on an H100; ``a`` where ``b`` is infinite."""
    left, right = edge_pairs(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    quotient = torch.trunc(left.to(wide) / right.to(wide))

    def exact(a: float, q: float, b: float) -> float:
        return float(Fraction(a) - Fraction(q) * Fraction(b)) if all(map(math.isfinite, (a, q, b))) else a if math.isinf(b) else a - q * b

    triples = zip(left.tolist(), quotient.tolist(), right.tolist(), strict=True)
    expected = torch.tensor([exact(*triple) for triple in triples], dtype=torch.float64)
    actual = elementwise(remainder, dtype, left, right)
    torch.testing.assert_close(actual, expected.to(wide).to(dtype), rtol=0, atol=0, equal_nan=True)


@triton.jit
def negate(a):
    return -a


@triton.jit
def absolute(a):
    return tl.abs(a)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sign_ops(elementwise, dtype):
    operand = torch.tensor(EDGES, dtype=dtype)
    negated = elementwise(negate, dtype, operand)
    assert_same_bits(elementwise(absolute, dtype, operand), operand.abs())
    torch.testing.assert_close(negated, -operand, rtol=0, atol=0, equal_nan=True)


COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@triton.jit
def compare(a, b):
    return (a < b) * 1 + (a <= b) * 2 + (a > b) * 4 + (a >= b) * 8 + (a == b) * 16 + (a != b) * 32


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_comparisons_with_nan(elementwise, dtype):
    """Only != holds for a NaN."""
    left, right = edge_pairs(dtype)
    expected = sum(test(left, right).int() << bit for bit, test in enumerate(COMPARISONS))
    assert torch.equal(elementwise(compare, torch.int32, left, right), expected.int())


@triton.jit
def maximum_number(a, b):
    return tl.maximum(a, b)


@triton.jit
def minimum_number(a, b):
    return tl.minimum(a, b)


@triton.jit
def maximum_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


def ordered_extremum(left: torch.Tensor, right: torch.Tensor, largest: bool, propagate: bool) -> torch.Tensor:
    """IEEE maximum and minimum, in which -0 is below +0."""
    swap = (left < right) | ((left == right) & torch.signbit(left) & ~torch.signbit(right))
    picked = torch.where(swap == largest, right, left)
    nan = left.isnan() | right.isnan()
    number = torch.where(left.isnan(), right, left)
    return torch.where(nan, torch.full_like(left, NAN) if propagate else number, picked)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("function", "largest", "propagate"),
    [(maximum_number, True, False), (minimum_number, False, False), (maximum_nan, True, True), (minimum_nan, False, True)],
    ids=["max", "min", "max-nan", "min-nan"],
)
def test_extrema_order_zeros_and_drop_or_keep_nan(elementwise, dtype, function, largest, propagate):
    left, right = edge_pairs(dtype)
    assert_same_bits(elementwise(function, dtype, left, right), ordered_extremum(left, right, largest, propagate))


@triton.jit
def clamp_number(x, lo, hi):
    return tl.clamp(x, lo, hi)


@triton.jit
def clamp_nan(x, lo, hi):
    return tl.clamp(x, lo, hi, propagate_nan=tl.PropagateNan.ALL)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_clamp(elementwise, dtype):
    operand = torch.tensor(EDGES, dtype=dtype)
    lo, hi = torch.full_like(operand, -2.0), torch.full_like(operand, 3.5)
    limited = operand.clamp(-2.0, 3.5)
    assert_same_bits(elementwise(clamp_nan, dtype, operand, lo, hi), limited)
    assert_same_bits(elementwise(clamp_number, dtype, operand, lo, hi), torch.where(operand.isnan(), lo, limited))


@triton.jit
def choose(a, b):
    return tl.where(a < b, a, b * 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_where(elementwise, dtype):
    left, right = edge_pairs(dtype)
    assert_same_bits(elementwise(choose, dtype, left, right), torch.where(left < right, left, right * 2))


@triton.jit
def fused(a, b, c):
    return tl.fma(a, b, c)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_fused_multiply_add_rounds_once(elementwise, dtype):
    values = [1.0, 1.0078125, -1.0009765625, 3.0, 255.0, -0.0, INF, NAN]
    a, b, c = (torch.tensor(column, dtype=dtype) for column in zip(*itertools.product(values, repeat=3), strict=True))
    wide = [x.double() for x in (a, b, c)]  # exact: the products and sums of these values need few bits
    expected = wide[0] * wide[1] + wide[2]
    if dtype == torch.bfloat16:
        expected = torch.from_numpy(expected.numpy().astype(ml_dtypes.bfloat16).astype(np.float32))
    assert_same_bits(elementwise(fused, dtype, a, b, c), expected.to(dtype))


@triton.jit
def exponential(a):
    return tl.exp(a)


@triton.jit
def exponential2(a):
    return tl.exp2(a)


@triton.jit
def logarithm(a):
    return tl.log(a)


@triton.jit
def logarithm2(a):
    return tl.log2(a)


@triton.jit
def sine(a):
    return tl.sin(a)


@triton.jit
def cosine(a):
    return tl.cos(a)


@triton.jit
def root(a):
    return tl.sqrt(a)


@triton.jit
def rounded_root(a):
    return tl.sqrt_rn(a)


@triton.jit
def reciprocal_root(a):
    return tl.rsqrt(a)


@triton.jit
def error_function(a):
    return tl.erf(a)


@triton.jit
def round_up(a):
    return tl.ceil(a)


@triton.jit
def round_down(a):
    return tl.floor(a)


@triton.jit
def logistic(a):
    return tl.sigmoid(a)


MATH = [
    (exponential, torch.exp),
    (exponential2, torch.exp2),
    (logarithm, torch.log),
    (logarithm2, torch.log2),
    (sine, torch.sin),
    (cosine, torch.cos),
    (root, torch.sqrt),
    (reciprocal_root, torch.rsqrt),
    (error_function, torch.erf),
    (round_up, torch.ceil),
    (round_down, torch.floor),
    (logistic, torch.sigmoid),
]


def flushed(operand: torch.Tensor, reference) -> torch.Tensor:
    """These read an fp32 subnormal as a zero of its sign, as measured on an H100."""
    if operand.dtype == torch.float64 or reference not in (torch.sin, torch.sqrt, torch.rsqrt, torch.erf, torch.ceil, torch.floor):
        return operand
    return torch.where(operand.abs() < 2.0**-126, torch.copysign(torch.zeros_like(operand), operand), operand)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("function", "reference"), MATH, ids=lambda item: getattr(item, "__name__", ""))
def test_math_functions(elementwise, dtype, function, reference):
    operand = torch.cat([torch.tensor(EDGES, dtype=dtype), torch.linspace(-20, 20, 61, dtype=dtype)])
    expected = reference(flushed(operand, reference).double()).to(dtype)
    tolerance = 3e-7 if dtype == torch.float32 else 1e-15
    torch.testing.assert_close(elementwise(function, dtype, operand), expected, rtol=tolerance, atol=tolerance / 10, equal_nan=True)


@triton.jit
def precise_quotient(a, b):
    return tl.div_rn(a, b)


@triton.jit
def fast_quotient(a, b):
    return tl.fdiv(a, b)


def test_precise_division_and_root(elementwise):
    left, right = edge_pairs(torch.float32)
    assert_same_bits(elementwise(precise_quotient, torch.float32, left, right), (left.double() / right.double()).float())
    assert_same_bits(elementwise(rounded_root, torch.float32, left), left.double().sqrt().float())
    torch.testing.assert_close(elementwise(fast_quotient, torch.float32, left, right), left / right, equal_nan=True)


def test_subnormals_are_kept(elementwise):
    """Triton does not flush fp32 subnormals in additions and products."""
    left, right = torch.tensor([1e-39, 2**-149, 1e-30]), torch.tensor([1e-40, 2**-149, 1e-10])
    assert_same_bits(elementwise(add, torch.float32, left, right), left + right)
    assert_same_bits(elementwise(multiply, torch.float32, left, right), (left.double() * right.double()).float())


@triton.jit
def scalar_argument_kernel(out, a, b, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, offsets * a + b)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_arguments_arrive_as_fp32(dtype):
    out = torch.empty(8, dtype=dtype)
    scalar_argument_kernel[(1,)](out, 0.1, -3.3, 8)
    expected = torch.arange(8).float() * torch.tensor(0.1) + torch.tensor(-3.3)
    torch.testing.assert_close(out, expected.to(dtype), rtol=0, atol=0)


@triton.jit
def constants_kernel(out, DTYPE: tl.constexpr):
    tl.store(out + 0, tl.full((), float("inf"), DTYPE))
    tl.store(out + 1, tl.full((), float("-inf"), DTYPE))
    tl.store(out + 2, tl.full((), float("nan"), DTYPE))
    tl.store(out + 3, tl.full((), 1e-3, DTYPE))
    tl.store(out + 4 + tl.arange(0, 2), tl.full((2,), 0.1, DTYPE))
    tl.store(out + 6 + tl.arange(0, 2), tl.full((2,), float("-inf"), DTYPE))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_constants(dtype):
    out = torch.empty(8, dtype=dtype)
    constants_kernel[(1,)](out, getattr(tl, {torch.bfloat16: "bfloat16"}.get(dtype, str(dtype)[6:])))
    assert_same_bits(out, torch.tensor([INF, -INF, NAN, 1e-3, 0.1, 0.1, -INF, -INF], dtype=dtype))
