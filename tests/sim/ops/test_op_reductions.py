"""Reductions and scans, with Triton's own and with custom combine functions, over every axis; ties and NaN; histograms."""
# ruff: noqa: SIM108  (kernels branch on purpose: another form compiles to another op)

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint32, torch.uint64]


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(-9 if dtype.is_signed else 0, 10, shape, generator=generator).to(dtype)


@triton.jit
def reduce_kernel(out, x, KIND: tl.constexpr, AXIS: tl.constexpr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    tile = tl.load(x + (a * B + b) * C + c)
    if KIND == "sum":
        result = tl.sum(tile, axis=AXIS)
    elif KIND == "max":
        result = tl.max(tile, axis=AXIS)
    elif KIND == "min":
        result = tl.min(tile, axis=AXIS)
    elif KIND == "xor":
        result = tl.xor_sum(tile, axis=AXIS)
    elif KIND == "argmax":
        result = tl.argmax(tile, axis=AXIS)
    elif KIND == "argmin":
        result = tl.argmin(tile, axis=AXIS)
    if AXIS is None:
        tl.store(out, result)
    else:
        if AXIS == 0:
            place = tl.arange(0, B)[:, None] * C + tl.arange(0, C)[None, :]
        elif AXIS == 1:
            place = tl.arange(0, A)[:, None] * C + tl.arange(0, C)[None, :]
        else:
            place = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
        tl.store(out + place, result)


SHAPE = (4, 8, 16)


def reduced_shape(axis: int | None) -> list[int]:
    return [1] if axis is None else [size for position, size in enumerate(SHAPE) if position != axis]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reductions_along_each_axis(kind, dtype, axis):
    x = random(SHAPE, dtype)
    if kind == "sum":
        out_dtype = dtype if dtype.is_floating_point or dtype.itemsize >= 4 else torch.int32 if dtype.is_signed else torch.uint32
        expected = x.double().sum(axis)
    else:
        out_dtype, expected = dtype, getattr(x.double(), f"a{kind}")(axis)
    out = torch.zeros(reduced_shape(axis), dtype=out_dtype)
    reduce_kernel[(1,)](out, x, kind, axis, *SHAPE)
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 4e-2, torch.float32: 1e-6}.get(dtype, 1e-14) if kind == "sum" else 0
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.int64], ids=str)
def test_reductions_of_the_whole_tile(dtype):
    x = random(SHAPE, dtype)
    wide = torch.zeros(1, dtype=torch.float64)
    reduce_kernel[(1,)](wide, x, "sum", None, *SHAPE)
    torch.testing.assert_close(wide[0], x.double().sum(), rtol=1e-6, atol=0.1 if dtype == torch.bfloat16 else 1e-4)
    out = torch.zeros(1, dtype=dtype)
    reduce_kernel[(1,)](out, x, "max", None, *SHAPE)
    assert out[0] == x.max()


def test_sums_of_narrow_integers_wrap_in_32_bits():
    x = torch.full(SHAPE, 127, dtype=torch.int8)
    out = torch.zeros(SHAPE[:2], dtype=torch.int32)
    reduce_kernel[(1,)](out, x, "sum", 2, *SHAPE)
    assert (out == 127 * 16).all()
    large = torch.full(SHAPE, 2**31 - 1, dtype=torch.int32)
    reduce_kernel[(1,)](out, large, "sum", 2, *SHAPE)
    assert (out == -16).all()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.uint16], ids=str)
def test_exclusive_or(dtype):
    x = random(SHAPE, dtype)
    out = torch.zeros(reduced_shape(1), dtype=torch.int64)
    reduce_kernel[(1,)](out, x, "xor", 1, *SHAPE)
    expected = x.long()[:, 0]
    for index in range(1, SHAPE[1]):
        expected = expected ^ x.long()[:, index]
    assert torch.equal(out, expected)


def test_narrow_sums_are_rounded_at_each_step():
    """Triton adds fp16 and bf16 in their own type; only a bf16 max or min is done in fp32."""
    x = torch.full(SHAPE, 2048.0)
    x[:, :, 1:] = 1.0
    for dtype, error in ((torch.float32, 0), (torch.float16, 8), (torch.bfloat16, 16)):
        out = torch.zeros(SHAPE[:2])
        reduce_kernel[(1,)](out, x.to(dtype), "sum", 2, *SHAPE)
        assert ((out - 2063.0).abs() <= error).all()
        assert (out == 2063.0).all() == (dtype == torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_arg_reductions_take_the_first_of_equals(kind, dtype):
    x = torch.randint(0, 3, SHAPE, generator=torch.Generator().manual_seed(5)).to(dtype)
    out = torch.zeros(SHAPE[:2], dtype=torch.int32)
    reduce_kernel[(1,)](out, x, kind, 2, *SHAPE)
    values = x.double() if kind == "argmax" else -x.double()
    first = (values == values.amax(2, keepdim=True)).int().argmax(2)
    assert torch.equal(out, first.int())


@triton.jit
def row_kernel(out, places, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * BLOCK + offsets)
    value, place = tl.max(row, axis=0, return_indices=True)
    tl.store(out + tl.program_id(0) * 2, value)
    tl.store(places + tl.program_id(0) * 2, place)
    value, place = tl.min(row, axis=0, return_indices=True, return_indices_tie_break_left=False)
    tl.store(out + tl.program_id(0) * 2 + 1, value)
    tl.store(places + tl.program_id(0) * 2 + 1, place)


def test_extrema_with_indices_and_nan():
    """A NaN never wins a max or a min while there is a number."""
    nan, inf = float("nan"), float("inf")
    rows = [[1.0, 5.0, 2.0, 0.5], [nan, -1.0, nan, -2.0], [-inf, -inf, -inf, 3.0], [inf, nan, inf, 1.0]]
    out, places = torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.int32)
    row_kernel[(4,)](out, places, torch.tensor(rows), 4)
    assert out[[0, 2]].tolist() == [[5.0, 0.5], [3.0, -inf]]
    assert places[0].tolist() == [1, 3]
    plain = torch.zeros(4)
    reduce_kernel[(1,)](plain, torch.tensor(rows).reshape(1, 4, 4), "max", 2, 1, 4, 4)
    assert plain.tolist() == [5.0, -1.0, 3.0, inf]
    reduce_kernel[(1,)](plain, torch.full((1, 4, 4), nan), "min", 2, 1, 4, 4)
    assert plain.isnan().all()


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_order_signed_zeros(kind):
    rows = torch.tensor([[[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [0.0, 0.0]]])
    out = torch.zeros(4)
    reduce_kernel[(1,)](out, rows, kind, 2, 1, 4, 2)
    negative = [False, False, True, False] if kind == "max" else [True, True, True, False]
    assert torch.signbit(out).tolist() == negative


@triton.jit
def combine_affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def combine_argmax(value, place, other, other_place):
    better = (other > value) | ((other == value) & (other_place < place))
    return tl.where(better, other, value), tl.where(better, other_place, place)


@triton.jit
def combine_branch(a, b):
    if a > b:
        result = a - 0
    else:
        result = b
    return result


@triton.jit
def custom_reduce_kernel(out, places, x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    tile = tl.load(x + rows[:, None] * BLOCK_N + columns[None, :])
    index = tl.broadcast_to(columns[None, :], (BLOCK_M, BLOCK_N))
    value, place = tl.reduce((tile, index), 1, combine_argmax)
    slope, offset = tl.reduce((tile, tile * 0.5), 1, combine_affine)
    tl.store(out + rows, value)
    tl.store(places + rows, place)
    tl.store(out + BLOCK_M + rows, slope)
    tl.store(out + 2 * BLOCK_M + rows, offset)
    tl.store(out + 3 * BLOCK_M + rows[:, None], tl.reduce(tile, 1, combine_branch, keep_dims=True))


def affine_chain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Slope and offset of the maps ``y -> x y + x / 2`` one after the other, at each step, in fp64."""
    x = x.double()
    slope, offset = torch.ones_like(x[:, 0]), torch.zeros_like(x[:, 0])
    slopes, offsets = [], []
    for index in range(x.shape[1]):
        slope, offset = slope * x[:, index], offset * x[:, index] + x[:, index] * 0.5
        slopes.append(slope)
        offsets.append(offset)
    return torch.stack(slopes, 1), torch.stack(offsets, 1)


def test_custom_combine_functions_of_tuples():
    x = random((8, 16), torch.float32)
    out, places = torch.zeros(4, 8), torch.zeros(8, dtype=torch.int32)
    custom_reduce_kernel[(1,)](out, places, x, 8, 16)
    slopes, offsets = affine_chain(x)
    expected = torch.stack([x.amax(1), slopes[:, -1].float(), offsets[:, -1].float(), x.amax(1)])
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(places, x.argmax(1).int())


@triton.jit
def combine_returns(a, b):
    if a >= b:
        return a
    return b


@triton.jit
def combine_loop(a, b):
    """Greatest common divisor."""
    while b != 0:
        a, b = b, a % b
    return a


@triton.jit
def branching_kernel(out, x, y, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tile, other = tl.load(x + offsets), tl.load(y + offsets)
    tl.store(out, tl.reduce(tile, 0, combine_loop))
    tl.store(out + 1, tl.reduce(other, 0, combine_returns).to(tl.int32))
    tl.store(out + 2 + offsets, tl.associative_scan(tile, 0, combine_loop))
    tl.store(out + 2 + N + offsets, tl.associative_scan(other, 0, combine_returns).to(tl.int32))


def test_combine_functions_with_returns_and_loops():
    """Their path differs from element to element, so they are run element by element."""
    x = torch.tensor([5040, 360, 1050, 630, 84, 2310, 42, 252], dtype=torch.int32)
    y = torch.tensor([3.0, -1.0, 5.0, 2.0, 8.0, 8.0, 1.0, 9.0])
    out = torch.zeros(18, dtype=torch.int32)
    branching_kernel[(1,)](out, x, y, 8)
    divisors = [math.gcd(*x[: end + 1].tolist()) for end in range(8)]
    assert out.tolist() == [divisors[-1], 9, *divisors, *y.cummax(0).values.int().tolist()]


@triton.jit
def scan_kernel(out, x, KIND: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + place)
    if KIND == "cumsum":
        result = tl.cumsum(tile, AXIS, reverse=REVERSE)
    elif KIND == "cumprod":
        result = tl.cumprod(tile, AXIS, reverse=REVERSE)
    else:
        result = tl.associative_scan(tile, AXIS, combine_branch, reverse=REVERSE)
    tl.store(out + place, result)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["cumsum", "cumprod", "cummax"])
def test_scans(kind, dtype, axis, reverse):
    x = random((8, 16), dtype)
    if kind == "cumprod":
        x = (x.double().sign() + (x == 0)).to(dtype)  # products stay at one
    out = torch.zeros(8, 16, dtype=torch.float64)
    scan_kernel[(1,)](out, x, kind, axis, reverse, 8, 16)
    wide = x.double().flip(axis) if reverse else x.double()
    expected = wide.cummax(axis).values if kind == "cummax" else getattr(wide, kind)(axis)
    expected = expected.flip(axis) if reverse else expected
    tolerance = 0 if not dtype.is_floating_point or kind != "cumsum" else {2: 0.1, 4: 1e-5}[dtype.itemsize]
    torch.testing.assert_close(out, expected, rtol=tolerance / 2, atol=tolerance)


@triton.jit
def affine_scan_kernel(out, x, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + place)
    slope, offset = tl.associative_scan((tile, tile * 0.5), 1, combine_affine)
    tl.store(out + place, slope)
    tl.store(out + M * N + place, offset)


def test_scan_of_a_tuple():
    """A linear recurrence: the combine function is associative but not commutative."""
    x = random((8, 32), torch.float32)
    out = torch.zeros(2, 8, 32)
    affine_scan_kernel[(1,)](out, x, 8, 32)
    torch.testing.assert_close(out.double(), torch.stack(affine_chain(x)), rtol=1e-5, atol=1e-6)


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def boolean_scan_kernel(out, x, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tile = tl.load(x + offsets)
    tl.store(out + offsets, tl.associative_scan(tile, 0, either))
    tl.store(out + N + offsets, tl.associative_scan(tile, 0, either, reverse=True))
    tl.store(out + 2 * N, tl.reduce(tile, 0, either))


def test_scan_and_reduction_of_booleans():
    x = torch.zeros(16, dtype=torch.bool)
    x[5] = x[9] = True
    out = torch.zeros(33, dtype=torch.bool)
    boolean_scan_kernel[(1,)](out, x, 16)
    position = torch.arange(16)
    assert torch.equal(out, torch.cat([position >= 5, position <= 9, torch.tensor([True])]))


@triton.jit
def histogram_kernel(out, x, count, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, inside, other=0)
    tl.store(out + tl.arange(0, BINS), tl.histogram(value, BINS))
    tl.store(out + BINS + tl.arange(0, BINS), tl.histogram(value, BINS, mask=inside))


@pytest.mark.parametrize("count", [1, 50, 64])
def test_histogram(count):
    x = torch.randint(0, 8, (count,), generator=torch.Generator().manual_seed(count), dtype=torch.int32)
    out = torch.zeros(2, 8, dtype=torch.int32)
    histogram_kernel[(1,)](out, x, count, 8, 64)
    counts = torch.bincount(x, minlength=8)
    padded = counts.clone()
    padded[0] += 64 - count
    assert torch.equal(out, torch.stack([padded, counts]).int())


@triton.jit
def softmax_kernel(out, x, DIM: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.softmax(tl.load(x + place), dim=DIM, keep_dims=True))


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_the_standard_library(dim):
    x = random((8, 16), torch.float32)
    out = torch.zeros(8, 16)
    softmax_kernel[(1,)](out, x, dim, 8, 16)
    torch.testing.assert_close(out, x.softmax(dim))
