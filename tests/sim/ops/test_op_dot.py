"""``tl.dot`` in every precision and dtype, batched, with accumulators; ``tl.dot_scaled`` in every format; each against fp64."""
# ruff: noqa: SIM108  (kernels branch on purpose: another form compiles to another op)

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

ITEMS = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24, torch.float64: 2**-53}


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@triton.jit
def dot_kernel(
    out,
    x,
    y,
    start,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
    OUT: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + n[None, :])
    if ACCUMULATE:
        initial = tl.load(start + m[:, None] * N + n[None, :])
        c = tl.dot(a, b, initial, input_precision=PRECISION, out_dtype=OUT)
    else:
        c = tl.dot(a, b, input_precision=PRECISION, out_dtype=OUT)
    tl.store(out + m[:, None] * N + n[None, :], c)


CASES = [
    (torch.float16, torch.float32, tl.float32, 1e-6),
    (torch.float16, torch.float16, tl.float16, 2e-3),
    (torch.bfloat16, torch.float32, tl.float32, 1e-6),
    (torch.float8_e4m3fn, torch.float32, tl.float32, 1e-6),
    (torch.float8_e5m2, torch.float32, tl.float32, 1e-6),
    (torch.float64, torch.float64, tl.float64, 1e-14),
    (torch.int8, torch.int32, tl.int32, 0),
]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("dtype", "out_dtype", "triton_out", "tolerance"), CASES, ids=lambda item: str(item).removeprefix("torch."))
def test_dot_of_every_dtype(dtype, out_dtype, triton_out, tolerance, accumulate):
    m, n, k = 32, 16, 64
    x, y = random((m, k), dtype, 0), random((k, n), dtype, 1)
    start = (
        random((m, n), torch.float32, 2).to(out_dtype) if out_dtype != torch.int32 else torch.randint(-99, 99, (m, n), dtype=torch.int32)
    )
    out = torch.zeros((m, n), dtype=out_dtype)
    dot_kernel[(1,)](out, x, y, start, m, n, k, "ieee", triton_out, accumulate)
    expected = x.double() @ y.double() + (start.double() if accumulate else 0)
    scale = (x.double().abs() @ y.double().abs()).max().item()
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance * scale)


PRECISIONS = {"tf32": 2**-10, "tf32x3": 2**-20, "ieee": 2**-23, "bf16x3": 2**-15, "bf16x6": 2**-22}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_fp32_products_have_the_precision_asked_for(precision):
    """No worse than the name says, and no better either: a kernel that needs ieee has to fail with tf32."""
    x, y = random((32, 64), torch.float32, 3), random((64, 32), torch.float32, 4)
    out = torch.zeros(32, 32)
    dot_kernel[(1,)](out, x, y, out, 32, 32, 64, precision, tl.float32, False)
    relative = ((out.double() - x.double() @ y.double()).abs() / (x.double().abs() @ y.double().abs())).max().item()
    assert relative < 2 * PRECISIONS[precision]
    if precision in ("tf32", "bf16x3", "tf32x3"):
        assert relative > PRECISIONS[precision] / 200


def test_tf32_keeps_ten_bits_of_mantissa():
    x = torch.eye(16) * (1 + 2**-10 + 2**-12)
    out = torch.zeros(16, 16)
    dot_kernel[(1,)](out, x, torch.eye(16), out, 16, 16, 16, "tf32", tl.float32, False)
    assert torch.equal(out, torch.eye(16) * (1 + 2**-10))


def test_int8_products_do_not_wrap():
    x, y = torch.full((16, 64), -128, dtype=torch.int8), torch.full((64, 16), -128, dtype=torch.int8)
    out = torch.zeros((16, 16), dtype=torch.int32)
    dot_kernel[(1,)](out, x, y, out, 16, 16, 64, None, tl.int32, False)
    assert (out == 128 * 128 * 64).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_dot_passes_infinities_and_nan_on(dtype):
    x, y = torch.zeros((16, 16), dtype=dtype), torch.zeros((16, 16), dtype=dtype)
    x[0, 0], x[1, 0], x[2, 1], y[0], y[1] = float("inf"), float("-inf"), float("nan"), 1.0, 2.0
    out = torch.zeros(16, 16)
    dot_kernel[(1,)](out, x, y, out, 16, 16, 16, "ieee", tl.float32, False)
    assert (out[0] == float("inf")).all() and (out[1] == float("-inf")).all()
    assert out[2].isnan().all() and (out[3:] == 0).all()


@triton.jit
def batched_dot_kernel(out, x, y, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    batch, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + (batch * M + m[None, :, None]) * K + k[None, None, :])
    b = tl.load(y + (batch * K + k[None, :, None]) * N + n[None, None, :])
    tl.store(out + (batch * M + m[None, :, None]) * N + n[None, None, :], tl.dot(a, b, input_precision="ieee"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_batched_dot(dtype):
    x, y = random((4, 16, 32), dtype, 0), random((4, 32, 16), dtype, 1)
    out = torch.zeros(4, 16, 16)
    batched_dot_kernel[(1,)](out, x, y, 4, 16, 16, 32)
    torch.testing.assert_close(out.double(), x.double() @ y.double(), rtol=1e-5, atol=1e-5)


@triton.jit
def transposed_dot_kernel(out, x, y, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + m[:, None] * K + k[None, :])
    product = tl.dot(a, b.T, input_precision="ieee")
    product = tl.dot(product.to(a.dtype), b, acc=a.to(tl.float32) * 0.5, input_precision="ieee")
    tl.store(out + m[:, None] * K + k[None, :], product)


def test_dots_in_a_row_with_a_transposed_operand():
    x, y = random((16, 32), torch.float32, 0), random((16, 32), torch.float32, 1)
    out = torch.zeros(16, 32)
    transposed_dot_kernel[(1,)](out, x, y, 16, 32)
    expected = x.double() @ y.double().t() @ y.double() + x.double() / 2
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)


@triton.jit
def scaled_kernel(
    out, x, scale_x, y, scale_y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    KIND_X: tl.constexpr, KIND_Y: tl.constexpr, PACK_X: tl.constexpr, PACK_Y: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    ROW: tl.constexpr = K // PACK_X
    DEPTH: tl.constexpr = K // PACK_Y
    m, n = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + m[:, None] * ROW + tl.arange(0, ROW)[None, :])
    b = tl.load(y + tl.arange(0, DEPTH)[:, None] * N + n[None, :])
    groups = tl.arange(0, K // GROUP)
    if scale_x is None:
        left = None
    else:
        left = tl.load(scale_x + m[:, None] * (K // GROUP) + groups[None, :])
    if scale_y is None:
        right = None
    else:
        right = tl.load(scale_y + n[:, None] * (K // GROUP) + groups[None, :])
    c = tl.dot_scaled(a, left, KIND_X, b, right, KIND_Y)
    tl.store(out + m[:, None] * N + n[None, :], c)


FORMATS = ["e2m1", "e4m3", "e5m2", "bf16", "fp16"]


def operand(kind: str, shape: tuple[int, int], axis: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """A random operand as the kernel takes it (e2m1: two values a byte along ``axis``, the first one low), and its values in fp64."""
    random_state = np.random.default_rng(seed)
    if kind == "e2m1":
        codes = random_state.integers(0, 16, shape, dtype=np.uint8)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        even, odd = np.moveaxis(codes, axis, 0)[0::2], np.moveaxis(codes, axis, 0)[1::2]
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(even | odd << 4, 0, axis))), values
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}[kind]
    tensor = torch.from_numpy(random_state.standard_normal(shape)).to(dtype)
    return tensor, tensor.double().numpy()


def block_scale(shape: tuple[int, int], seed: int) -> tuple[torch.Tensor, np.ndarray]:
    codes = np.random.default_rng(seed).integers(122, 132, shape, dtype=np.uint8)
    return torch.from_numpy(codes), np.exp2(codes.astype(np.float64) - 127)


@pytest.mark.parametrize(
    ("kind_x", "kind_y"), [(a, b) for a in FORMATS for b in FORMATS if a[:2] == b[:2] or {a, b} & {"e2m1", "e4m3"} and "fp16" not in (a, b)]
)
def test_scaled_dot_of_every_pair_of_formats(kind_x, kind_y):
    m, n, k = 32, 64, 128
    x, values_x = operand(kind_x, (m, k), 1, 0)
    y, values_y = operand(kind_y, (k, n), 0, 1)
    scale_x, factor_x = block_scale((m, k // 32), 2) if kind_x not in ("bf16", "fp16") else (None, np.ones((m, k // 32)))
    scale_y, factor_y = block_scale((n, k // 32), 3) if kind_y not in ("bf16", "fp16") else (None, np.ones((n, k // 32)))
    out = torch.zeros(m, n)
    scaled_kernel[(1,)](out, x, scale_x, y, scale_y, m, n, k, kind_x, kind_y, 1 + (kind_x == "e2m1"), 1 + (kind_y == "e2m1"), 32)
    left, right = values_x * np.repeat(factor_x, 32, 1), values_y * np.repeat(factor_y, 32, 1).T
    error = np.abs(out.double().numpy() - left @ right) / (np.abs(left) @ np.abs(right) + 1e-30)
    assert error.max() < 1e-6


def test_scale_code_255_is_nan():
    x, y = torch.ones((16, 64), dtype=torch.float8_e4m3fn), torch.ones((64, 16), dtype=torch.float8_e4m3fn)
    scale_x, scale_y = torch.full((16, 2), 127, dtype=torch.uint8), torch.full((16, 2), 127, dtype=torch.uint8)
    scale_x[3, 1], scale_y[5, 0] = 255, 128
    out = torch.zeros(16, 16)
    scaled_kernel[(1,)](out, x, scale_x, y, scale_y, 16, 16, 64, "e4m3", "e4m3", 1, 1, 32)
    assert out[3].isnan().all() and out.isnan().sum() == 16
    assert (out[0, :5] == 64).all() and out[0, 5] == 96
