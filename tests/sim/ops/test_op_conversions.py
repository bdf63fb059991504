"""Conversions between float types and from and to integers: every code, rounding modes, saturation; and bitcasts."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

FLOATS = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
FP8 = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
LARGEST = {"fp8e4nv": 448.0, "fp8e5": 57344.0}
TRITON_TYPES = {
    "fp8e4nv": tl.float8e4nv,
    "fp8e5": tl.float8e5,
    "fp16": tl.float16,
    "bf16": tl.bfloat16,
    "fp32": tl.float32,
    "fp64": tl.float64,
}


@triton.jit
def convert_kernel(out, x, count, DTYPE: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, inside).to(DTYPE, fp_downcast_rounding=ROUNDING), inside)


@triton.jit
def convert_scalars_kernel(out, x, count, DTYPE: tl.constexpr, ROUNDING: tl.constexpr):
    for index in range(count):
        tl.store(out + index, tl.load(x + index).to(DTYPE, fp_downcast_rounding=ROUNDING))


def convert(x: torch.Tensor, dtype: str, rounding: str | None = None, scalars: bool = False) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=(FLOATS | FP8)[dtype])
    if scalars:
        convert_scalars_kernel[(1,)](out, x, x.numel(), TRITON_TYPES[dtype], rounding)
    else:
        convert_kernel[(triton.cdiv(x.numel(), 128),)](out, x, x.numel(), TRITON_TYPES[dtype], rounding, 128)
    return out


def assert_equal_numbers(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=0, equal_nan=True)
    number = ~expected.double().isnan()
    assert torch.equal(torch.signbit(actual.double())[number], torch.signbit(expected.double())[number])


def all_codes(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)


@pytest.mark.parametrize("scalars", [False, True], ids=["tile", "scalar"])
@pytest.mark.parametrize("wide", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("narrow", FP8)
def test_every_fp8_code_widens_exactly_and_comes_back(narrow, wide, scalars):
    codes = all_codes(FP8[narrow])
    if (narrow, wide) == ("fp8e5", "bf16"):  # where infinity and NaN become finite, see test_matches_h100.py
        codes = codes[codes.double().isfinite()]
    widened = convert(codes, wide, scalars=scalars)
    assert_equal_numbers(widened, codes.double())
    back = convert(widened, narrow, scalars=scalars)
    finite = codes.double().isfinite()
    assert torch.equal(back.view(torch.uint8)[finite], codes.view(torch.uint8)[finite])
    assert back.double()[codes.double().isnan()].isnan().all()
    assert torch.equal(
        back.double()[codes.double().isinf()].abs(), torch.full((int(codes.double().isinf().sum()),), LARGEST[narrow]).double()
    )


def sample(dtype: torch.dtype) -> torch.Tensor:
    """Values of every magnitude, halves between fp8 and fp16 neighbours, and the special ones."""
    generator = torch.Generator().manual_seed(1)
    random = torch.randn(900, generator=generator) * torch.pow(10.0, torch.empty(900).uniform_(-9, 6, generator=generator))
    codes = torch.cat([all_codes(kind).float() for kind in FP8.values()])
    codes = codes[codes.isfinite()]
    halves = (codes.sort().values[1:] + codes.sort().values[:-1]) / 2
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 448, 449, 464, 465, 57344, 61440, 65504, 65519, 65520, 1e38, 3.4e38])
    return torch.cat([random, halves, special, -special]).to(dtype)


def nearest_fp8(x: torch.Tensor, narrow: str) -> torch.Tensor:
    """Saturating conversion to nearest even, done in numpy from fp64."""
    limited = np.clip(x.double().numpy(), -LARGEST[narrow], LARGEST[narrow])
    numpy_type = ml_dtypes.float8_e4m3fn if narrow == "fp8e4nv" else ml_dtypes.float8_e5m2
    return torch.from_numpy(limited.astype(np.float32).astype(numpy_type).astype(np.float64))


@pytest.mark.parametrize("wide", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("narrow", FP8)
def test_fp8_rounds_to_nearest_even_and_saturates(narrow, wide):
    x = sample(FLOATS[wide])
    assert_equal_numbers(convert(x, narrow), nearest_fp8(x, narrow))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("fp32", "fp16"), ("fp32", "bf16"), ("fp64", "fp32"), ("fp64", "fp16"), ("fp64", "bf16"), ("fp16", "fp32"), ("bf16", "fp32")],
)
@pytest.mark.parametrize("scalars", [False, True], ids=["tile", "scalar"])
def test_conversions_between_wide_floats(wide, narrow, scalars):
    x = sample(FLOATS[wide])[::7].contiguous()
    expected = x.to(FLOATS["fp32"]).to(FLOATS[narrow]) if narrow == "bf16" else x.to(FLOATS[narrow])
    assert_equal_numbers(convert(x, narrow, scalars=scalars), expected)


def toward_zero(x: torch.Tensor, narrow: torch.dtype) -> torch.Tensor:
    """The neighbour of ``x`` in ``narrow`` that is not larger in magnitude."""
    wide = x.double()
    rounded = x.float().to(narrow)
    over = rounded.double().abs() > wide.abs()
    integer = {2: torch.int16, 1: torch.int8}[rounded.element_size()]
    return torch.where(over, rounded.view(integer) - 1, rounded.view(integer)).view(narrow)


@pytest.mark.parametrize("scalars", [False, True], ids=["tile", "scalar"])
@pytest.mark.parametrize("narrow", ["fp16", "bf16"])
def test_rounding_toward_zero(narrow, scalars):
    x = sample(torch.float32)
    x = x[x.isfinite()]
    assert_equal_numbers(convert(x, narrow, "rtz", scalars), toward_zero(x, FLOATS[narrow]))


@pytest.mark.parametrize("target", ["fp16", "bf16"])
def test_explicit_nearest_is_the_default(target):
    x = sample(torch.float32)
    assert_equal_numbers(convert(x, target, "rtne"), convert(x, target))


@triton.jit
def float_to_int(x, DTYPE: tl.constexpr):
    return x.to(DTYPE)


@triton.jit
def float_to_int_kernel(out, x, count, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, float_to_int(tl.load(x + offsets, inside), DTYPE), inside)
    tl.store(out + count, float_to_int(tl.load(x + count - 1), DTYPE))


INTEGERS = {
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
}


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
def test_floats_to_integers_round_toward_zero(source, target):
    info = torch.iinfo(INTEGERS[target])
    values = [0.0, 0.5, 0.99, 1.5, 2.5, 100.0, -0.5, -0.99] + ([-1.5, -100.0] if info.min < 0 else [])
    x = torch.tensor(values, dtype=FLOATS[source])
    out = torch.empty(len(values) + 1, dtype=INTEGERS[target])
    float_to_int_kernel[(1,)](out, x, len(values), getattr(tl, target), 16)
    expected = [int(v) for v in x.double().tolist()]
    assert out.tolist() == expected + expected[-1:]


@pytest.mark.parametrize(
    ("target", "least", "largest"), [("int32", -(2**31), 2**31 - 1), ("uint32", 0, 2**32 - 1), ("int64", -(2**63), 2**63 - 1)]
)
def test_floats_out_of_range_saturate(target, least, largest):
    """As PTX's cvt.rzi does; LLVM leaves it open."""
    x = torch.tensor([1e30, -1e30, math.inf, -math.inf])
    out = torch.empty(5, dtype=INTEGERS[target])
    float_to_int_kernel[(1,)](out, x, 4, getattr(tl, target), 4)
    assert out.tolist() == [largest, least, largest, least, least]


@triton.jit
def int_to_float_kernel(out, x, count, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, inside).to(DTYPE), inside)
    tl.store(out + count, tl.load(x + count - 1).to(DTYPE))


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_floats_round_to_nearest_even(source, target):
    info = torch.iinfo(INTEGERS[source])
    values = sorted(
        {0, 1, 7, 100, info.max, info.max - 1, info.max // 3, info.min, info.min // 3, min(info.max, 2**24 + 1), min(info.max, 257)}
    )
    out = torch.empty(len(values) + 1, dtype=FLOATS[target])
    int_to_float_kernel[(1,)](out, torch.tensor(values, dtype=INTEGERS[source]), len(values), TRITON_TYPES[target], 16)
    if target == "bf16":
        expected = torch.tensor([float(np.float32(v)) for v in values]).to(torch.bfloat16)
    elif target == "fp16":
        with np.errstate(over="ignore"):
            expected = torch.from_numpy(np.array(values, dtype=str(INTEGERS[source])[6:]).astype(np.float16))
    else:
        expected = torch.from_numpy(
            np.array(values, dtype=str(INTEGERS[source])[6:]).astype(np.float32 if target == "fp32" else np.float64)
        )
    assert_equal_numbers(out, torch.cat([expected, expected[-1:]]))


@triton.jit
def bitcast_kernel(out, x, MIDDLE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(out + offsets, (value.to(MIDDLE, bitcast=True) + 1).to(value.dtype, bitcast=True))
    scalar = tl.load(x)
    tl.store(out + BLOCK, (scalar.to(MIDDLE, bitcast=True) + 1).to(scalar.dtype, bitcast=True))


@pytest.mark.parametrize(
    ("dtype", "middle", "integer"),
    [
        (torch.float32, tl.int32, torch.int32),
        (torch.float64, tl.uint64, torch.int64),
        (torch.float16, tl.uint16, torch.int16),
        (torch.bfloat16, tl.int16, torch.int16),
        (torch.float8_e5m2, tl.int8, torch.int8),
        (torch.float8_e4m3fn, tl.uint8, torch.int8),
    ],
    ids=str,
)
def test_bitcasts_reinterpret(dtype, middle, integer):
    x = torch.randn(16, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = torch.empty(17, dtype=dtype)
    bitcast_kernel[(1,)](out, x, middle, 16)
    assert torch.equal(out.view(integer), torch.cat([x, x[:1]]).view(integer) + 1)


@triton.jit
def boolean_kernel(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets).to(tl.int1).to(tl.float32))
    tl.store(out + BLOCK, tl.load(x + 1).to(tl.int1).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8, torch.int64, torch.bool], ids=str)
def test_to_boolean_and_back(dtype):
    x = torch.tensor([0, 1, 2, 0, 1, 0, 100, -1]).to(dtype)
    out = torch.empty(9)
    boolean_kernel[(1,)](out, x, 8)
    assert out.tolist() == [float(v != 0) for v in x.tolist()] + [1.0]


@triton.jit
def from_fp8e4b15_kernel(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets).to(tl.float16))


@triton.jit
def to_fp8e4b15_kernel(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets).to(tl.float8e4b15))


def fp8e4b15_value(code: int) -> float:
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    return sign * (math.ldexp(mantissa / 8, -14) if exponent == 0 else math.ldexp(1 + mantissa / 8, exponent - 15))


def test_fp8e4b15_by_way_of_its_inline_assembly():
    """The front end emits PTX for this type; the simulator knows what that text does."""
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    half = torch.empty(256, dtype=torch.float16)
    from_fp8e4b15_kernel[(1,)](half, triton.reinterpret(codes, tl.float8e4b15), 256)
    assert half.tolist() == [fp8e4b15_value(code) for code in range(256)]
    back = torch.empty(256, dtype=torch.uint8)
    to_fp8e4b15_kernel[(1,)](triton.reinterpret(back, tl.float8e4b15), half, 256)
    largest = codes.long() & 0x7F == 0x7F
    assert torch.equal(back[~largest], codes[~largest])
    assert torch.equal(back[largest].long(), codes[largest].long() - 1)  # the code 0x7F is never made
