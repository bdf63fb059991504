"""Kernels that stream rows or vectors: vector add, softmax and seeded dropout, against torch in fp64."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


@triton.jit
def vector_add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@pytest.mark.parametrize("count", [1, 127, 3 * 128, 98_431])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32, torch.float64], ids=str)
def test_vector_add(randn, dtype, count):
    x, y = (randn((count,), torch.float64, seed) * 9 for seed in (0, 1))
    x, y = x.to(dtype), y.to(dtype)
    out = torch.full((count + 3,), 77, dtype=dtype)
    grid = lambda meta: (triton.cdiv(count, meta["BLOCK"]),)  # noqa: E731  (the form in which users write grids)
    vector_add_kernel[grid](x, y, out, count, BLOCK=128 if count < 1000 else 4096)
    assert torch.equal(out[:count], x + y)
    assert (out[count:] == 77).all()


@triton.jit
def softmax_kernel(out, x, stride_out, stride_x, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Each program takes every ``num_programs``-th row; a row is one tile."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        logits = tl.load(x + row * stride_x + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        weights = tl.exp(logits - tl.max(logits, axis=0))
        tl.store(out + row * stride_out + offsets, weights / tl.sum(weights, axis=0), mask=inside)


@triton.jit
def online_softmax_kernel(out, x, columns, BLOCK: tl.constexpr):
    """Rows longer than a tile: running maximum and sum first, then the quotients."""
    row = tl.program_id(0)
    largest = -float("inf")
    total = 0.0
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        logits = tl.load(x + row * columns + offsets, offsets < columns, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(logits, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(logits - larger), 0)
        largest = larger
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        logits = tl.load(x + row * columns + offsets, offsets < columns).to(tl.float32)
        tl.store(out + row * columns + offsets, tl.exp(logits - largest) / total, offsets < columns)


@pytest.mark.parametrize("columns", [1, 37, 781])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax(randn, dtype, columns):
    x = randn((53, columns), dtype) * 5
    wide = torch.zeros(53, columns + 9, dtype=dtype)
    out = wide[:, :columns]
    softmax_kernel[(8,)](out, x, out.stride(0), x.stride(0), 53, columns, BLOCK=triton.next_power_of_2(columns), STAGES=2)
    expected = x.double().softmax(1)
    torch.testing.assert_close(out.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 10)
    assert (wide[:, columns:] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax_of_rows_longer_than_a_tile(randn, dtype):
    x = randn((5, 401), dtype) * 5
    x[1, :100] = float("-inf")
    out = torch.zeros_like(x)
    online_softmax_kernel[(5,)](out, x, 401, BLOCK=128)
    torch.testing.assert_close(out.double(), x.double().softmax(1), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 10)


@triton.jit
def dropout_kernel(out, x, count, probability, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    kept = tl.rand(seed, offsets) > probability
    tl.store(out + offsets, tl.where(kept, tl.load(x + offsets, inside) / (1 - probability), 0.0), inside)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_seeded_dropout(randn, dtype):
    """The mask depends on seed and position alone: not on the tile size, and backward can make it again."""
    count, probability = 3001, 0.35
    x = randn((count,), dtype) + 3

    def run(seed: int, block: int) -> torch.Tensor:
        out = torch.zeros_like(x)
        dropout_kernel[(triton.cdiv(count, block),)](out, x, count, probability, seed, BLOCK=block)
        return out

    out = run(123, 512)
    assert torch.equal(out, run(123, 1024))
    assert not torch.equal(out == 0, run(124, 512) == 0)
    kept = out != 0
    assert abs(kept.double().mean().item() - (1 - probability)) < 0.03
    torch.testing.assert_close(out[kept].double(), x[kept].double() / (1 - probability), rtol=TOLERANCE[dtype], atol=0)
