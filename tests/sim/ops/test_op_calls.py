"""Early returns, and calls of functions that are not inlined."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def early_return_kernel(out, count, limit):
    program = tl.program_id(0)
    if program >= count:
        return
    tl.store(out + program, 1)
    if program >= limit:
        tl.store(out + program, 2)
        return
    tl.store(out + program, 3)


def test_early_returns_of_a_kernel():
    out = torch.zeros(6, dtype=torch.int32)
    early_return_kernel[(6,)](out, 5, 3)
    assert out.tolist() == [3, 3, 3, 2, 2, 0]


@triton.jit
def classify(value):
    if value < 0:
        return -1
    if value == 0:
        return 0
    if value > 100:
        return 100
    return value * 2


@triton.jit
def early_function_kernel(out, x, count):
    total = 0
    for index in range(count):
        result = classify(tl.load(x + index))
        tl.store(out + index, result)
        total += result
    tl.store(out + count, total)


def test_early_returns_of_a_function_in_a_loop():
    values = [-5, 0, 3, 50, 100, 101, 1000]
    out = torch.empty(8, dtype=torch.int32)
    early_function_kernel[(1,)](out, torch.tensor(values, dtype=torch.int32), 7)
    expected = [-1 if v < 0 else 0 if v == 0 else 100 if v > 100 else 2 * v for v in values]
    assert out.tolist() == [*expected, sum(expected)]


@triton.jit
def checked_sum(out, x, limit, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Many ways lead past each return; tiles and scalars are merged behind it."""
    offsets = tl.arange(0, BLOCK)
    total = 0
    tile = tl.zeros((BLOCK,), tl.int32)
    for index in tl.static_range(COUNT):
        value = tl.load(x + index)
        if value > limit:
            if value > 100:
                tl.store(out + offsets, tile)
                return -index
            total += value
            tile = tile + offsets
        else:
            total -= 1
            tile = tile * 2
    tl.store(out + offsets, tile)
    return total


@triton.jit
def many_returns_kernel(out, x, limit, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    total = checked_sum(out, x, limit, COUNT, BLOCK)
    tl.store(out + BLOCK, total)


@pytest.mark.parametrize("stop", [None, 0, 7, 23])
def test_many_returns_one_after_the_other(stop):
    """Each block of code is emitted once, not once for each of the 2**24 ways to it."""
    values = [(7 * index) % 50 for index in range(24)]
    if stop is not None:
        values[stop] = 200
    total, tile = 0, [0, 0, 0, 0]
    for index, value in enumerate(values):
        if value > 100:
            total = -index
            break
        total = total + value if value > 20 else total - 1
        tile = [t + place for place, t in enumerate(tile)] if value > 20 else [2 * t for t in tile]
    out = torch.zeros(5, dtype=torch.int32)
    many_returns_kernel[(1,)](out, torch.tensor(values, dtype=torch.int32), 20, 24, 4)
    assert out.tolist() == [*tile, total]


@triton.jit(noinline=True)
def scale_and_store(pointer, value, factor):
    tl.store(pointer, value)
    return value * factor, factor + 1


@triton.jit(noinline=True)
def chained(pointer, value):
    first, factor = scale_and_store(pointer, value, 3)
    second, factor = scale_and_store(pointer + 1, first, factor)
    return second + factor


@triton.jit
def noinline_kernel(out, start):
    value = start
    for index in range(3):
        value = chained(out + 2 * index, value)
    tl.store(out + 6, value)


def test_functions_that_are_not_inlined_call_each_other():
    value, expected = 2, []
    for _ in range(3):
        expected += [value, value * 3]
        value = value * 3 * 4 + 5
    out = torch.empty(7, dtype=torch.int32)
    noinline_kernel[(1,)](out, 2)
    assert out.tolist() == [*expected, value]


@triton.jit(noinline=True)
def normalise(out, x, scale, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tile = tl.load(x + offsets)
    total = tl.sum(tile, axis=0)
    if total <= 0:
        return 0.0
    tl.store(out + offsets, tile / total * scale)
    return total


@triton.jit
def noinline_tile_kernel(out, x, BLOCK: tl.constexpr):
    for row in range(3):
        tl.store(out + 3 * BLOCK + row, normalise(out + row * BLOCK, x + row * BLOCK, 2.0, BLOCK))


def test_tiles_in_a_function_that_is_not_inlined():
    x = torch.rand(3, 16, generator=torch.Generator().manual_seed(0))
    x[1] = -x[1]
    out = torch.zeros(51)
    noinline_tile_kernel[(1,)](out, x, 16)
    totals = x.sum(1)
    expected = torch.where(totals[:, None] > 0, x / totals[:, None] * 2, 0.0)
    torch.testing.assert_close(out, torch.cat([expected.ravel(), totals.clamp(min=0)]))
