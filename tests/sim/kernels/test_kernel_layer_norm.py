"""Layer norm forward, and backward with partial sums under a spin lock, against torch's autograd in fp64."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}


@triton.jit
def layer_norm_forward_kernel(x, y, weight, bias, means, factors, columns, epsilon, BLOCK: tl.constexpr):
    """One row a program, in pieces of ``BLOCK``; keeps mean and reciprocal deviation for backward."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + offsets, offsets < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + offsets, offsets < columns, other=0.0).to(tl.float32)
        centred = tl.where(offsets < columns, value - mean, 0.0)
        squares += centred * centred
    factor = 1 / tl.sqrt(tl.sum(squares, 0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(factors + row, factor)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        inside = offsets < columns
        normal = (tl.load(x + row * columns + offsets, inside, other=0.0).to(tl.float32) - mean) * factor
        tl.store(y + row * columns + offsets, normal * tl.load(weight + offsets, inside) + tl.load(bias + offsets, inside), inside)


@triton.jit
def layer_norm_backward_kernel(
    grad_x, grad_y, partial_weight, partial_bias, x, weight, means, factors, locks, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row a program. Rows of a group add their part of the parameters' gradients to one row of partial sums, under its lock."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    value = tl.load(x + row * columns + offsets, inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_y + row * columns + offsets, inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + offsets, inside, other=0.0).to(tl.float32)
    factor = tl.load(factors + row)
    normal = tl.where(inside, (value - tl.load(means + row)) * factor, 0.0)
    scaled = tl.where(inside, scale * grad, 0.0)
    first = tl.sum(normal * scaled, axis=0) / columns
    second = tl.sum(scaled, axis=0) / columns
    tl.store(grad_x + row * columns + offsets, (scaled - (normal * first + second)) * factor, inside)

    group = row % GROUPS
    lock = locks + group
    count = locks + GROUPS + group
    weight_row = partial_weight + group * columns + offsets
    bias_row = partial_bias + group * columns + offsets
    weight_part, bias_part = grad * normal, grad
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        weight_part += tl.load(weight_row, inside)
        bias_part += tl.load(bias_row, inside)
    tl.store(weight_row, weight_part, inside)
    tl.store(bias_row, bias_part, inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def sum_partials_kernel(partial_weight, partial_bias, grad_weight, grad_bias, groups, columns, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    column = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    weight_total = tl.zeros((TILE_M, TILE_N), tl.float32)
    bias_total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for begin in range(0, groups, TILE_M):
        row = begin + tl.arange(0, TILE_M)
        inside = (row[:, None] < groups) & (column[None, :] < columns)
        place = row[:, None] * columns + column[None, :]
        weight_total += tl.load(partial_weight + place, inside, other=0.0)
        bias_total += tl.load(partial_bias + place, inside, other=0.0)
    tl.store(grad_weight + column, tl.sum(weight_total, axis=0), column < columns)
    tl.store(grad_bias + column, tl.sum(bias_total, axis=0), column < columns)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layer_norm_forward_and_backward(randn, dtype):
    rows, columns, groups, epsilon = 61, 77, 7, 1e-5
    x, grad_y = randn((rows, columns), dtype, 0) * 2 + 0.5, randn((rows, columns), dtype, 1)
    weight, bias = randn((columns,), dtype, 2), randn((columns,), dtype, 3)
    y, means, factors = torch.zeros_like(x), torch.zeros(rows), torch.zeros(rows)
    layer_norm_forward_kernel[(rows,)](x, y, weight, bias, means, factors, columns, epsilon, BLOCK=16)

    exact = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    expected = torch.nn.functional.layer_norm(exact[0], (columns,), exact[1], exact[2], epsilon)
    torch.testing.assert_close(y.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])

    expected.backward(grad_y.double())
    grad_x = torch.zeros_like(x)
    partial_weight, partial_bias = torch.full((groups, columns), 1e9), torch.full((groups, columns), 1e9)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    layer_norm_backward_kernel[(rows,)](
        grad_x, grad_y, partial_weight, partial_bias, x, weight, means, factors, locks, columns, GROUPS=groups, BLOCK=128
    )
    grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
    sum_partials_kernel[(triton.cdiv(columns, 32),)](
        partial_weight, partial_bias, grad_weight, grad_bias, groups, columns, TILE_M=4, TILE_N=32
    )
    for actual, source in ((grad_x, exact[0]), (grad_weight, exact[1]), (grad_bias, exact[2])):
        torch.testing.assert_close(actual.double(), source.grad, rtol=TOLERANCE[dtype], atol=5 * TOLERANCE[dtype])
    assert (locks == torch.tensor([0] * groups + [1] * groups)).all()
