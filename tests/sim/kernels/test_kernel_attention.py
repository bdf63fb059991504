"""Flash attention forward, causal and not, by pointers and by descriptors, against torch in fp64."""
# ruff: noqa: SIM108  (kernels branch on purpose: another form compiles to another op)

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float8_e5m2: 0.2}


@triton.jit
def attend(total, largest, weights, query, keys, values, scale, allowed):
    """One block of keys: rescale what is there to the new maximum and add the block."""
    scores = tl.dot(query, keys, input_precision="ieee") * scale
    scores = tl.where(allowed, scores, -float("inf"))
    larger = tl.maximum(largest, tl.max(scores, 1))
    safe = tl.where(larger == -float("inf"), 0.0, larger)
    probability = tl.exp2(scores - safe[:, None])
    shrink = tl.exp2(largest - safe)
    weights = weights * shrink + tl.sum(probability, 1)
    total = tl.dot(probability.to(values.dtype), values, total * shrink[:, None], input_precision="ieee")
    return total, larger, weights


@triton.jit
def attention_kernel(
    q, k, v, out, logs, length, scale, DIM: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, CAUSAL: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * DIM
    m, d = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M), tl.arange(0, DIM)
    query = tl.load(q + head + m[:, None] * DIM + d[None, :], m[:, None] < length, other=0.0)
    total = tl.zeros((TILE_M, DIM), tl.float32)
    largest = tl.full((TILE_M,), float("-inf"), tl.float32)
    weights = tl.zeros((TILE_M,), tl.float32)
    if CAUSAL:
        end = min((tl.program_id(0) + 1) * TILE_M, length)
    else:
        end = length
    for begin in range(0, end, TILE_N):
        n = begin + tl.arange(0, TILE_N)
        keys = tl.load(k + head + n[None, :] * DIM + d[:, None], n[None, :] < length, other=0.0)
        values = tl.load(v + head + n[:, None] * DIM + d[None, :], n[:, None] < length, other=0.0)
        allowed = n[None, :] < length
        if CAUSAL:
            allowed = allowed & (n[None, :] <= m[:, None])
        total, largest, weights = attend(total, largest, weights, query, keys, values, scale * 1.44269504, allowed)
    tl.store(out + head + m[:, None] * DIM + d[None, :], (total / weights[:, None]).to(out.dtype.element_ty), m[:, None] < length)
    tl.store(logs + tl.program_id(1) * length + m, largest + tl.log2(weights), m < length)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and base-2 logarithm of each row's sum of exponentials."""
    q, k, v = q.double(), k.double(), v.double()
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1) / math.log(2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_flash_attention(randn, dtype, causal):
    heads, length, dim = 3, 109, 32
    q, k, v = (randn((heads, length, dim), torch.float32, seed).to(dtype) for seed in range(3))
    out = torch.zeros((heads, length, dim), dtype=torch.float16 if dtype.itemsize == 1 else dtype)
    logs = torch.zeros(heads, length)
    attention_kernel[(triton.cdiv(length, 32), heads)](q, k, v, out, logs, length, 1 / math.sqrt(dim), dim, 32, 32, causal)
    expected, expected_logs = reference(q, k, v, causal)
    torch.testing.assert_close(out.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(logs.double(), expected_logs, rtol=1e-5, atol=1e-5)


@triton.jit
def descriptor_attention_kernel(
    q, k, v, out, length, scale, DIM: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, CAUSAL: tl.constexpr
):
    """The causal case in two loops, as the tutorials do it: whole blocks before the diagonal, masked ones on it."""
    head, first = tl.program_id(1), tl.program_id(0) * TILE_M
    m = first + tl.arange(0, TILE_M)
    query = q.load([head, first, 0]).reshape(TILE_M, DIM)
    total = tl.zeros((TILE_M, DIM), tl.float32)
    largest = tl.full((TILE_M,), float("-inf"), tl.float32)
    weights = tl.full((TILE_M,), 0.0, tl.float32)
    for stage in tl.static_range(2):
        if CAUSAL:
            low = first if stage == 1 else 0
            high = min(first + TILE_M, length) if stage == 1 else first
        else:
            low = length if stage == 1 else 0
            high = length
        for begin in tl.range(low, high, TILE_N, warp_specialize=False):
            n = begin + tl.arange(0, TILE_N)
            keys = k.load([head, begin, 0]).reshape(TILE_N, DIM).T
            values = v.load([head, begin, 0]).reshape(TILE_N, DIM)
            allowed = n[None, :] < length
            if CAUSAL and stage == 1:
                allowed = allowed & (n[None, :] <= m[:, None])
            total, largest, weights = attend(total, largest, weights, query, keys, values, scale * 1.44269504, allowed)
    out.store([head, first, 0], (total / weights[:, None]).to(out.dtype).reshape(1, TILE_M, DIM))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_flash_attention_by_descriptors(randn, dtype, causal):
    heads, length, dim = 3, 109, 32
    q, k, v = (randn((heads, length, dim), dtype, seed) for seed in range(3))
    out = torch.zeros_like(q)
    operands = [TensorDescriptor.from_tensor(tensor, [1, rows, dim]) for tensor, rows in ((q, 32), (k, 16), (v, 16), (out, 32))]
    descriptor_attention_kernel[(triton.cdiv(length, 32), heads)](*operands, length, 1 / math.sqrt(dim), dim, 32, 16, causal)
    torch.testing.assert_close(out.double(), reference(q, k, v, causal)[0], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
