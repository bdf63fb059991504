"""Matrix products by pointers, block pointers, descriptors, persistent programs, groups and block scales, against torch in fp64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
EPSILON = {torch.float32: 2**-23, torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float8_e4m3fn: 2**-4, torch.float8_e5m2: 2**-3}


def check(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, function=lambda product: product) -> None:
    """Each element is off by at most one rounding of the result and those of an fp32 sum."""
    product = a.double() @ b.double()
    sums = (a.double().abs() @ b.double().abs()) * 2**-22 + 1e-30
    error = (out.double() - function(product)).abs()
    assert (error <= function(product).abs() * EPSILON[out.dtype] + sums).all()


@triton.jit
def tile_of(program, M, N, TILE_M: tl.constexpr, TILE_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Tiles in groups of ``GROUP_M`` rows, down each column of a group first, so that neighbours in time share operands in L2."""
    rows, columns = tl.cdiv(M, TILE_M), tl.cdiv(N, TILE_N)
    group = program // (GROUP_M * columns)
    first = group * GROUP_M
    height = min(rows - first, GROUP_M)
    return first + program % (GROUP_M * columns) % height, program % (GROUP_M * columns) // height


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def pointer_matmul_kernel(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    row, column = tile_of(tl.program_id(0), M, N, TILE_M, TILE_N, GROUP_M)
    m, n, k = row * TILE_M + tl.arange(0, TILE_M), column * TILE_N + tl.arange(0, TILE_N), tl.arange(0, TILE_K)
    a_tile = a + (m % M)[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + (n % N)[None, :] * stride_bn
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for step in range(0, tl.cdiv(K, TILE_K)):
        left = tl.load(a_tile, mask=k[None, :] < K - step * TILE_K, other=0.0)
        right = tl.load(b_tile, mask=k[:, None] < K - step * TILE_K, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
        a_tile += TILE_K * stride_ak
        b_tile += TILE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    target = c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(target, total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul_by_pointers(randn, dtype, layout):
    m, n, k = 149, 110, 101
    a, b = randn((m, k), torch.float32, 0).to(dtype), randn((k, n), torch.float32, 1).to(dtype)
    if layout == "tn":
        a = a.t().contiguous().t()
    if layout == "nt":
        b = b.t().contiguous().t()
    out_dtype = torch.float16 if dtype.itemsize == 1 else dtype
    out = torch.full((m, n), 99.0).to(out_dtype)
    activation = "leaky_relu" if layout == "nn" else ""
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32),)
    pointer_matmul_kernel[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), 32, 32, 32, 3, activation)
    check(out, a, b, (lambda x: torch.where(x >= 0, x, 0.01 * x)) if activation else (lambda x: x))


@triton.jit
def block_pointer_matmul_kernel(a, b, c, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr):
    row, column = tile_of(tl.program_id(0), M, N, TILE_M, TILE_N, GROUP_M)
    a_tile = tl.make_block_ptr(a, (M, K), (K, 1), (row * TILE_M, 0), (TILE_M, TILE_K), (1, 0))
    b_tile = tl.make_block_ptr(b, (K, N), (N, 1), (0, column * TILE_N), (TILE_K, TILE_N), (1, 0))
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for _ in range(0, K, TILE_K):
        left = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
        right = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(left, right, total, input_precision="ieee")
        a_tile = tl.advance(a_tile, (0, TILE_K))
        b_tile = tl.advance(b_tile, (TILE_K, 0))
    c_tile = tl.make_block_ptr(c, (M, N), (N, 1), (row * TILE_M, column * TILE_N), (TILE_M, TILE_N), (1, 0))
    tl.store(c_tile, total.to(c.dtype.element_ty), boundary_check=(0, 1))


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_matmul_by_block_pointers(randn, dtype, triton_version):
    if triton_version >= (3, 9):
        pytest.skip("Triton 3.9 has no block pointers")
    m, n, k = 99, 113, 85
    a, b, out = randn((m, k), dtype, 0), randn((k, n), dtype, 1), torch.zeros(m, n, dtype=dtype)
    block_pointer_matmul_kernel[(triton.cdiv(m, 32) * triton.cdiv(n, 32),)](a, b, out, m, n, k, 32, 32, 16, 2)
    check(out, a, b)


@triton.jit
def descriptor_matmul_kernel(a, b, c, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr):
    row, column = tile_of(tl.program_id(0), M, N, TILE_M, TILE_N, GROUP_M)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for step in range(0, K, TILE_K):
        left = a.load([row * TILE_M, step])
        right = b.load([column * TILE_N, step])
        total = tl.dot(left, right.T, total, input_precision="ieee")
    c.store([row * TILE_M, column * TILE_N], total.to(c.dtype))


@triton.jit
def device_descriptor_matmul_kernel(
    a, b, c, M, N, K, stride_a, stride_b, stride_c, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr
):
    a_descriptor = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [TILE_M, TILE_K])
    b_descriptor = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [TILE_N, TILE_K])
    c_descriptor = tl.make_tensor_descriptor(c, [M, N], [stride_c, 1], [TILE_M, TILE_N])
    descriptor_matmul_kernel(a_descriptor, b_descriptor, c_descriptor, M, N, K, TILE_M, TILE_N, TILE_K, GROUP_M)


def padded(matrix: torch.Tensor) -> torch.Tensor:
    """A view of a copy whose rows are a multiple of 16 bytes apart, as TMA asks for; what lies between is NaN."""
    rows, columns = matrix.shape
    width = triton.cdiv(columns, 16) * 16
    wide = torch.full((rows, width), float("nan")).to(matrix.dtype)
    wide[:, :columns] = matrix
    return wide[:, :columns]


def descriptor(matrix: torch.Tensor, block: list[int]) -> TensorDescriptor:
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), block)


@pytest.mark.parametrize("side", ["host", "device"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul_by_descriptors(randn, dtype, side):
    m, n, k = 99, 113, 101
    a, b = padded(randn((m, k), torch.float32, 0).to(dtype)), padded(randn((n, k), torch.float32, 1).to(dtype))
    out = padded(torch.zeros(m, n, dtype=torch.float16 if dtype.itemsize == 1 else dtype))
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32),)
    if side == "host":
        operands = descriptor(a, [32, 32]), descriptor(b, [32, 32]), descriptor(out, [32, 32])
        descriptor_matmul_kernel[grid](*operands, m, n, k, 32, 32, 32, 2)
    else:
        device_descriptor_matmul_kernel[grid](a, b, out, m, n, k, a.stride(0), b.stride(0), out.stride(0), 32, 32, 32, 2)
    check(out, a, b.float().t() if dtype.itemsize == 1 else b.t())


@triton.jit
def persistent_matmul_kernel(
    a, b, c, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr, FLATTEN: tl.constexpr
):
    """One program an SM; each takes every ``num_programs``-th tile."""
    tiles = tl.cdiv(M, TILE_M) * tl.cdiv(N, TILE_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        row, column = tile_of(tile, M, N, TILE_M, TILE_N, GROUP_M)
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
        for step in range(tl.cdiv(K, TILE_K)):
            left = a.load([row * TILE_M, step * TILE_K])
            right = b.load([column * TILE_N, step * TILE_K])
            total = tl.dot(left, right.T, total, input_precision="ieee")
        first, second = total.reshape(TILE_M, 2, TILE_N // 2).permute(0, 2, 1).split()
        c.store([row * TILE_M, column * TILE_N], first.to(c.dtype))
        c.store([row * TILE_M, column * TILE_N + TILE_N // 2], second.to(c.dtype))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn], ids=str)
def test_persistent_matmul(randn, dtype, flatten):
    m, n, k = 131, 113, 101
    a, b = padded(randn((m, k), torch.float32, 0).to(dtype)), padded(randn((n, k), torch.float32, 1).to(dtype))
    out = padded(torch.zeros(m, n, dtype=torch.float16))
    operands = descriptor(a, [32, 32]), descriptor(b, [32, 32]), descriptor(out, [32, 16])
    persistent_matmul_kernel[(7,)](*operands, m, n, k, 32, 32, 32, 2, flatten)
    check(out, a, b.float().t() if dtype.itemsize == 1 else b.t())


@triton.jit
def grouped_matmul_kernel(
    a_table, b_table, c_table, sizes, strides, groups, DTYPE: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):
    """Problems of any sizes in one launch: the tables hold addresses, (M, N, K) and the leading strides of each."""
    tile = tl.program_id(0)
    last = 0
    for group in range(groups):
        M, N, K = tl.load(sizes + group * 3), tl.load(sizes + group * 3 + 1), tl.load(sizes + group * 3 + 2)
        columns = tl.cdiv(N, TILE_N)
        tiles = tl.cdiv(M, TILE_M) * columns
        while tile >= last and tile < last + tiles:
            lda, ldb, ldc = tl.load(strides + group * 3), tl.load(strides + group * 3 + 1), tl.load(strides + group * 3 + 2)
            a = tl.load(a_table + group).to(tl.pointer_type(DTYPE))
            b = tl.load(b_table + group).to(tl.pointer_type(DTYPE))
            c = tl.load(c_table + group).to(tl.pointer_type(DTYPE))
            m = (tile - last) // columns * TILE_M + tl.arange(0, TILE_M)
            n = (tile - last) % columns * TILE_N + tl.arange(0, TILE_N)
            k = tl.arange(0, TILE_K)
            total = tl.zeros((TILE_M, TILE_N), tl.float32)
            for step in range(0, K, TILE_K):
                left = tl.load(a + m[:, None] * lda + step + k[None, :], (m[:, None] < M) & (step + k[None, :] < K), other=0.0)
                right = tl.load(b + (step + k[:, None]) * ldb + n[None, :], (step + k[:, None] < K) & (n[None, :] < N), other=0.0)
                total = tl.dot(left, right, total, input_precision="ieee")
            tl.store(c + m[:, None] * ldc + n[None, :], total.to(DTYPE), (m[:, None] < M) & (n[None, :] < N))
            tile += tl.num_programs(0)
        last += tiles


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float32, tl.float32), (torch.float16, tl.float16), (torch.bfloat16, tl.bfloat16)], ids=str
)
def test_grouped_matmul_with_pointer_tables(randn, dtype, name):
    shapes = [(70, 99, 40), (5, 3, 2), (33, 64, 50), (100, 20, 17)]
    a = [randn((m, k), dtype, 2 * i) for i, (m, n, k) in enumerate(shapes)]
    b = [randn((k, n), dtype, 2 * i + 1) for i, (m, n, k) in enumerate(shapes)]
    c = [torch.zeros(m, n, dtype=dtype) for m, n, k in shapes]
    tables = [torch.tensor([matrix.data_ptr() for matrix in matrices]) for matrices in (a, b, c)]
    sizes = torch.tensor(shapes, dtype=torch.int32)
    strides = torch.tensor([[x.stride(0), y.stride(0), z.stride(0)] for x, y, z in zip(a, b, c, strict=True)], dtype=torch.int32)
    grouped_matmul_kernel[(5,)](*tables, sizes, strides, len(shapes), name, 32, 32, 16)
    for x, y, z in zip(a, b, c, strict=True):
        check(z, x, y)


@triton.jit
def block_scaled_matmul_kernel(
    a, scale_a, b, scale_b, c, M, N, K, KIND_A: tl.constexpr, KIND_B: tl.constexpr, PACK_A: tl.constexpr, PACK_B: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Operands in (rows, K) order, ``PACK`` values a byte; one e8m0 scale for each 32 values along K."""
    m, n = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M), tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    k_a, k_b, k_s = tl.arange(0, TILE_K // PACK_A), tl.arange(0, TILE_K // PACK_B), tl.arange(0, TILE_K // 32)
    inside_m, inside_n = m[:, None] < M, n[:, None] < N
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for step in range(0, K, TILE_K):
        left = tl.load(a + m[:, None] * (K // PACK_A) + step // PACK_A + k_a[None, :], inside_m, other=0.0)
        right = tl.load(b + n[:, None] * (K // PACK_B) + step // PACK_B + k_b[None, :], inside_n, other=0.0)
        left_scale = tl.load(scale_a + m[:, None] * (K // 32) + step // 32 + k_s[None, :], inside_m, other=127)
        right_scale = tl.load(scale_b + n[:, None] * (K // 32) + step // 32 + k_s[None, :], inside_n, other=127)
        total = tl.dot_scaled(left, left_scale, KIND_A, right.T, right_scale, KIND_B, total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))


def scaled_operand(kind: str, rows: int, depth: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(as the kernel takes it, its scales, its values in fp64)."""
    state = np.random.default_rng(seed)
    codes = state.integers(120, 134, (rows, depth // 32), dtype=np.uint8)
    factors = np.repeat(np.exp2(codes.astype(np.float64) - 127), 32, 1)
    if kind == "e2m1":
        nibbles = state.integers(0, 16, (rows, depth), dtype=np.uint8)
        packed, values = nibbles[:, 0::2] | nibbles[:, 1::2] << 4, nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        operand = torch.from_numpy(packed)
    else:
        operand = torch.from_numpy(state.standard_normal((rows, depth))).to({"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind])
        values = operand.double().numpy()
    return operand, torch.from_numpy(codes), torch.from_numpy(values * factors)


@pytest.mark.parametrize(("kind_a", "kind_b"), [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1")])
def test_block_scaled_matmul(kind_a, kind_b):
    m, n, k = 77, 101, 384
    a, scale_a, values_a = scaled_operand(kind_a, m, k, 0)
    b, scale_b, values_b = scaled_operand(kind_b, n, k, 1)
    out = torch.zeros(m, n)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    pack = {"e2m1": 2}
    block_scaled_matmul_kernel[grid](
        a, scale_a, b, scale_b, out, m, n, k, kind_a, kind_b, pack.get(kind_a, 1), pack.get(kind_b, 1), 32, 32, 128
    )
    check(out, values_a, values_b.t())
