"""Integer ops of every width against Python's unlimited integers, with wrap-around, on tiles and on scalars."""

from __future__ import annotations

import itertools
import operator

import pytest
import torch
import triton
import triton.language as tl

SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
BITS = {dtype: torch.iinfo(dtype).bits for dtype in SIGNED + UNSIGNED}


def wrap(value: int, dtype: torch.dtype) -> int:
    """``value`` as the dtype holds it."""
    bits = BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype in SIGNED and value >> (bits - 1) else value


def edge_values(dtype: torch.dtype) -> list[int]:
    info = torch.iinfo(dtype)
    middle = 1 << (info.bits // 2)
    return sorted(
        {
            0,
            1,
            2,
            3,
            7,
            middle - 1,
            middle,
            middle + 1,
            info.max // 3,
            info.max - 1,
            info.max,
            info.min,
            info.min + 1,
            wrap(-1, dtype),
            wrap(-7, dtype),
        }
    )


def tensor(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


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
def bit_and(a, b):
    return a & b


@triton.jit
def bit_or(a, b):
    return a | b


@triton.jit
def bit_xor(a, b):
    return a ^ b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b)


@triton.jit
def quotient(a, b):
    return a // b


@triton.jit
def remainder(a, b):
    return a % b


@triton.jit
def shift_left(a, b):
    return a << b


@triton.jit
def shift_right(a, b):
    return a >> b


@triton.jit
def negate(a):
    return -a


@triton.jit
def invert(a):
    return ~a


@triton.jit
def absolute(a):
    return tl.abs(a)


@triton.jit
def high_product(a, b):
    return tl.umulhi(a, b)


@triton.jit
def less(a, b):
    return a < b


@triton.jit
def less_or_equal(a, b):
    return a <= b


@triton.jit
def greater(a, b):
    return a > b


@triton.jit
def greater_or_equal(a, b):
    return a >= b


@triton.jit
def equal(a, b):
    return a == b


@triton.jit
def not_equal(a, b):
    return a != b


WRAPPING = [
    (add, operator.add),
    (subtract, operator.sub),
    (multiply, operator.mul),
    (bit_and, operator.and_),
    (bit_or, operator.or_),
    (bit_xor, operator.xor),
    (larger, max),
    (smaller, min),
]


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
@pytest.mark.parametrize(("function", "reference"), WRAPPING, ids=lambda item: getattr(item, "__name__", ""))
def test_arithmetic_wraps_around(elementwise, dtype, function, reference):
    left, right = zip(*itertools.product(edge_values(dtype), repeat=2), strict=True)
    expected = [wrap(reference(a, b), dtype) for a, b in zip(left, right, strict=True)]
    assert elementwise(function, dtype, tensor(left, dtype), tensor(right, dtype)).tolist() == expected


COMPARISONS = [
    (less, operator.lt),
    (less_or_equal, operator.le),
    (greater, operator.gt),
    (greater_or_equal, operator.ge),
    (equal, operator.eq),
    (not_equal, operator.ne),
]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64], ids=str)
@pytest.mark.parametrize(("function", "reference"), COMPARISONS, ids=lambda item: getattr(item, "__name__", ""))
def test_comparisons_follow_the_sign(elementwise, dtype, function, reference):
    left, right = zip(*itertools.product(edge_values(dtype), repeat=2), strict=True)
    expected = [reference(a, b) for a, b in zip(left, right, strict=True)]
    assert elementwise(function, torch.bool, tensor(left, dtype), tensor(right, dtype)).tolist() == expected


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
def test_division_rounds_toward_zero(elementwise, dtype):
    pairs = [
        (a, b) for a, b in itertools.product(edge_values(dtype), repeat=2) if b != 0 and not (a == torch.iinfo(dtype).min < 0 and b == -1)
    ]
    left, right = zip(*pairs, strict=True)
    quotients = [truncated_quotient(a, b) for a, b in pairs]
    remainders = [a - b * q for (a, b), q in zip(pairs, quotients, strict=True)]
    operands = tensor(left, dtype), tensor(right, dtype)
    assert elementwise(quotient, dtype, *operands).tolist() == quotients
    assert elementwise(remainder, dtype, *operands).tolist() == remainders


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
def test_division_by_zero_gives_all_ones_and_the_dividend(elementwise, dtype):
    """PTX leaves both open; the simulator picks one answer, and never stops with Python's ZeroDivisionError."""
    left = tensor([0, 1, 5, torch.iinfo(dtype).max, torch.iinfo(dtype).min], dtype)
    right = torch.zeros(5, dtype=dtype)
    assert elementwise(quotient, dtype, left, right).tolist() == [wrap(-1, dtype)] * 5
    assert elementwise(remainder, dtype, left, right).tolist() == left.tolist()


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_least_integer_divided_by_minus_one_wraps_around(elementwise, dtype):
    left, right = tensor([torch.iinfo(dtype).min], dtype), tensor([-1], dtype)
    assert elementwise(quotient, dtype, left, right).tolist() == left.tolist()
    assert elementwise(remainder, dtype, left, right).tolist() == [0]


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
def test_shifts_by_the_width_or_more_drop_every_bit(elementwise, dtype):
    """The front end would call it undefined; PTX's shl and shr limit the amount, and so does the simulator."""
    bits = BITS[dtype]
    amounts = sorted({0, 1, bits // 2, bits - 1, bits, bits + 1, min(bits + 33, 127)})
    left, right = zip(*itertools.product(edge_values(dtype), amounts), strict=True)
    operands = tensor(left, dtype), tensor(right, dtype)
    assert elementwise(shift_left, dtype, *operands).tolist() == [wrap(a << b, dtype) for a, b in zip(left, right, strict=True)]
    assert elementwise(shift_right, dtype, *operands).tolist() == [a >> b for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_unary_ops_wrap_around(elementwise, dtype):
    values = edge_values(dtype)
    operand = tensor(values, dtype)
    assert elementwise(negate, dtype, operand).tolist() == [wrap(-a, dtype) for a in values]
    assert elementwise(invert, dtype, operand).tolist() == [~a for a in values]
    assert elementwise(absolute, dtype, operand).tolist() == [wrap(abs(a), dtype) for a in values]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32, torch.uint64], ids=str)
def test_upper_half_of_the_unsigned_product(elementwise, dtype):
    left, right = zip(*itertools.product(edge_values(dtype), repeat=2), strict=True)
    mask = (1 << BITS[dtype]) - 1
    expected = [wrap((a & mask) * (b & mask) >> BITS[dtype], dtype) for a, b in zip(left, right, strict=True)]
    assert elementwise(high_product, dtype, tensor(left, dtype), tensor(right, dtype)).tolist() == expected


@triton.jit
def both(a, b):
    return a and b


@triton.jit
def convert_to_int32(a):
    return a.to(tl.int32)


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (bit_and, operator.and_),
        (bit_or, operator.or_),
        (bit_xor, operator.xor),
        (add, operator.xor),
        (multiply, operator.and_),
        (equal, operator.eq),
        (not_equal, operator.ne),
        (larger, operator.or_),
        (smaller, operator.and_),
        (less, operator.lt),
        (greater_or_equal, operator.ge),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_booleans(elementwise, function, reference):
    """One-bit integers: a sum is exclusive, a product a conjunction, and true is the larger of the two."""
    left, right = torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True])
    expected = [bool(reference(a, b)) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert elementwise(function, torch.bool, left, right).tolist() == expected


def test_inverted_and_widened_booleans(elementwise):
    operand = torch.tensor([False, True])
    assert elementwise(invert, torch.bool, operand).tolist() == [True, False]
    assert elementwise(convert_to_int32, torch.int32, operand).tolist() == [0, 1]


@triton.jit
def to_int8(a):
    return a.to(tl.int8)


@triton.jit
def to_uint16(a):
    return a.to(tl.uint16)


@triton.jit
def to_int64(a):
    return a.to(tl.int64)


@triton.jit
def to_uint64(a):
    return a.to(tl.uint64)


@triton.jit
def to_boolean(a):
    return a.to(tl.int1)


@pytest.mark.parametrize("source", SIGNED + UNSIGNED, ids=str)
@pytest.mark.parametrize(
    ("function", "target"), [(to_int8, torch.int8), (to_uint16, torch.uint16), (to_int64, torch.int64), (to_uint64, torch.uint64)], ids=str
)
def test_integer_conversions_keep_the_low_bits(elementwise, source, function, target):
    values = edge_values(source)
    assert elementwise(function, target, tensor(values, source)).tolist() == [wrap(a, target) for a in values]


@pytest.mark.parametrize("source", SIGNED + UNSIGNED, ids=str)
def test_conversion_to_boolean_asks_for_any_bit(elementwise, source):
    values = edge_values(source)
    assert elementwise(to_boolean, torch.bool, tensor(values, source)).tolist() == [a != 0 for a in values]


@triton.jit
def ceiling_quotient(a, b):
    return tl.cdiv(a, b)


def test_ceiling_division(elementwise):
    left, right = zip(*itertools.product([0, 1, 2, 63, 64, 65, 1000], [1, 2, 3, 64]), strict=True)
    expected = [-(-a // b) for a, b in zip(left, right, strict=True)]
    assert elementwise(ceiling_quotient, torch.int32, tensor(left, torch.int32), tensor(right, torch.int32)).tolist() == expected


@triton.jit
def mixed_kernel(out, small, large, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < count
    a, b = tl.load(small + offsets, inside), tl.load(large + offsets, inside)
    tl.store(out + offsets, a + b, inside)
    tl.store(out + count + offsets, a * 3, inside)


@pytest.mark.parametrize(
    ("small", "large", "result"), [(torch.int8, torch.int32, torch.int32), (torch.uint8, torch.uint32, torch.uint32)], ids=str
)
def test_mixed_widths_promote_to_the_wider(small, large, result):
    values = edge_values(small)
    other = [torch.iinfo(large).max - 5] * len(values)
    out = torch.empty(2 * len(values), dtype=result)
    mixed_kernel[(1,)](out, tensor(values, small), tensor(other, large), len(values), 16)
    assert out[: len(values)].tolist() == [wrap(a + b, result) for a, b in zip(values, other, strict=True)]
    assert out[len(values) :].tolist() == [wrap(a * 3, small) for a in values]  # a Python number takes the tile's type


@triton.jit
def argument_kernel(out, a, b, c, d):
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c.to(tl.int64, bitcast=True))
    tl.store(out + 3, d)
    tl.store(out + 4, a * b)


@pytest.mark.parametrize("a", [1, 16, 17, -3, 2**31 - 1, 2**31, 2**40, -(2**63)])
def test_integer_arguments_of_every_specialisation(a):
    """Triton makes 1 a constant, marks multiples of 16, and widens what 32 bits do not hold."""
    out = torch.empty(5, dtype=torch.int64)
    argument_kernel[(1,)](out, a, -2, 2**63 + 5, True)
    wide = abs(a) >= 2**31 and a != -(2**31)
    product = wrap(a * -2, torch.int64 if wide else torch.int32)
    assert out.tolist() == [a, -2, wrap(2**63 + 5, torch.int64), 1, product]
