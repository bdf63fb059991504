"""Control flow: loops and branches, loop-carried tuples, tuple arguments, and pointers chosen by branches."""
# ruff: noqa: SIM108, SIM201  (kernels branch on purpose: another form compiles to another op)

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def nested_loops_kernel(out, rows, columns, step):
    total = 0
    last = -1
    for row in range(rows):
        for column in range(0, columns, step):
            if (row + column) % 3 == 0:
                total += row * column
            elif column > row:
                total -= 1
                last = column
            else:
                last = row * 100
    tl.store(out, total)
    tl.store(out + 1, last)


@pytest.mark.parametrize(("rows", "columns", "step"), [(5, 7, 1), (4, 9, 2), (0, 5, 1), (3, 0, 1)])
def test_nested_loops_with_branches(rows, columns, step):
    total, last = 0, -1
    for row in range(rows):
        for column in range(0, columns, step):
            if (row + column) % 3 == 0:
                total += row * column
            elif column > row:
                total, last = total - 1, column
            else:
                last = row * 100
    out = torch.zeros(2, dtype=torch.int32)
    nested_loops_kernel[(1,)](out, rows, columns, step)
    assert out.tolist() == [total, last]


@triton.jit
def fibonacci_kernel(out, count, BLOCK: tl.constexpr):
    pair = (tl.zeros((BLOCK,), tl.int64), tl.full((BLOCK,), 1, tl.int64))
    for _ in range(count):
        pair = (pair[1], pair[0] + pair[1])
    tl.store(out + tl.arange(0, BLOCK), pair[0])


def test_loop_carried_tuple_swaps_at_once():
    out = torch.empty(4, dtype=torch.int64)
    fibonacci_kernel[(1,)](out, 50, 4)
    assert out.tolist() == [12586269025] * 4


@triton.jit
def collatz_kernel(out, start):
    value = start + tl.program_id(0)
    steps = 0
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(out + tl.program_id(0), steps)


def test_while_loop():
    def steps(value: int) -> int:
        return 0 if value == 1 else 1 + steps(value // 2 if value % 2 == 0 else 3 * value + 1)

    out = torch.empty(20, dtype=torch.int32)
    collatz_kernel[(20,)](out, 1)
    assert out.tolist() == [steps(value) for value in range(1, 21)]


@triton.jit
def two_conditions_kernel(out, limit, BLOCK: tl.constexpr):
    tile = tl.arange(0, BLOCK)
    index = 0
    while (index < limit) and (tl.sum(tile) < 1000):
        tile += tile + 1
        index += 1
    tl.store(out + tl.arange(0, BLOCK), tile)
    tl.store(out + BLOCK, index)


@pytest.mark.parametrize("limit", [0, 3, 100])
def test_while_loop_over_tiles(limit):
    tile, index = torch.arange(8), 0
    while index < limit and tile.sum() < 1000:
        tile, index = tile + tile + 1, index + 1
    out = torch.empty(9, dtype=torch.int32)
    two_conditions_kernel[(1,)](out, limit, 8)
    assert out.tolist() == [*tile.tolist(), index]


@triton.jit
def static_loop_kernel(out, COUNT: tl.constexpr):
    for index in tl.static_range(COUNT):
        if index % 2 == 0:
            tl.store(out + index, index)
        else:
            tl.store(out + index, -index)
    for index in tl.range(COUNT, 2 * COUNT, num_stages=3, loop_unroll_factor=2):
        tl.store(out + index, index * 10)
    for index in range(3 * COUNT - 1, 2 * COUNT - 1, -1):
        tl.store(out + index, index * 100)


def test_static_and_hinted_and_downward_loops():
    out = torch.empty(15, dtype=torch.int32)
    static_loop_kernel[(1,)](out, 5)
    assert out.tolist() == [0, -1, 2, -3, 4, 50, 60, 70, 80, 90, 1000, 1100, 1200, 1300, 1400]


@triton.jit
def wide_index_kernel(out, start, stop, step):
    count = 0
    last = start
    for index in range(start, stop, step):
        count += 1
        last = index
    tl.store(out, last)
    tl.store(out + 1, count.to(tl.int64))


def test_loop_over_64_bit_indices():
    out = torch.empty(2, dtype=torch.int64)
    wide_index_kernel[(1,)](out, 2**40, 2**40 + 10, 3)
    assert out.tolist() == [2**40 + 9, 4]


@triton.jit
def unsigned_loop_kernel(out, start, stop):
    count = 0
    first = tl.load(start)
    last = first
    for index in range(first, tl.load(stop)):
        count += 1
        last = index
    tl.store(out, last.to(tl.int64))
    tl.store(out + 1, count.to(tl.int64))


def test_loop_bounds_compare_as_signed():
    """Stock Triton drops the sign of a loop's bounds, so above 2**31 a loop over unsigned ones does not run; the simulator shows that."""
    start, stop = (torch.tensor([value], dtype=torch.uint32) for value in (2**31 - 2, 2**31 + 3))
    out = torch.empty(2, dtype=torch.int64)
    unsigned_loop_kernel[(1,)](out, start, stop)
    assert out.tolist() == [2**31 - 2, 0]


class Problem(NamedTuple):
    x: object
    out: object
    sizes: tuple
    scale: float


@triton.jit
def tuple_argument_kernel(problem, pair, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    rows, columns = problem.sizes
    inside = offsets < rows * columns
    value = tl.load(problem.x + offsets, inside) * problem.scale + pair[0] * pair[1][0]
    tl.store(problem.out + offsets, value, inside)


def test_tuple_and_namedtuple_arguments():
    x = torch.arange(15, dtype=torch.float32)
    out = torch.zeros(16)
    tuple_argument_kernel[(1,)](Problem(x, out, (3, 5), 0.5), (7, (2, None)), 16)
    assert out.tolist() == [*(x * 0.5 + 14).tolist(), 0.0]


@triton.jit
def select_pointer_kernel(a, b, out, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for index in range(count):
        source = a if index % 2 == 0 else b
        if index % 3 == 0:
            target = out + index * BLOCK
        else:
            target = out + (count - 1 - index) * BLOCK + count * BLOCK
        tl.store(target + offsets, tl.load(source + offsets) + index)


def test_pointers_chosen_by_branches():
    a, b = torch.arange(8), torch.arange(8) * 100
    out = torch.zeros(8, 8, dtype=torch.int64)
    select_pointer_kernel[(1,)](a, b, out, 4, 8)
    expected = torch.zeros_like(out)
    for index in range(4):
        row = index if index % 3 == 0 else 4 + 3 - index
        expected[row] = (a if index % 2 == 0 else b) + index
    assert torch.equal(out, expected)


@triton.jit
def short_circuit_kernel(out, x, count):
    found = -1
    index = 0
    while index < count and found < 0:
        if tl.load(x + index) > 10 and (index != 2 or count == 0):
            found = index
        index += 1
    tl.store(out, found)
    tl.store(out + 1, 1 if not (found == 3) else 2)


def test_short_circuit_conditions():
    out = torch.empty(2, dtype=torch.int32)
    short_circuit_kernel[(1,)](out, torch.tensor([1, 2, 30, 40], dtype=torch.int32), 4)
    assert out.tolist() == [3, 2]


@triton.jit
def grid_kernel(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    index = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out + index, x + 10 * y + 100 * z)


def test_grid_of_three_axes():
    out = torch.empty(2, 3, 4, dtype=torch.int32)
    grid_kernel[(4, 3, 2)](out)
    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(4), indexing="ij")
    assert torch.equal(out, (x + 10 * y + 100 * z).int())


@triton.jit
def carry_scalar_and_tile_kernel(out, x, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = 0.0
    pointer = x + offsets
    for _ in range(count):
        tile = tl.load(pointer)
        largest = tl.maximum(largest, tile)
        total += tl.sum(tile)
        pointer += BLOCK
    tl.store(out + offsets, largest)
    tl.store(out + BLOCK, total)


def test_loop_carries_tiles_scalars_and_pointers():
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(2))
    out = torch.empty(17)
    carry_scalar_and_tile_kernel[(1,)](out, x, 5, 16)
    torch.testing.assert_close(out, torch.cat([x.amax(0), x.sum()[None]]))


@triton.jit
def constexpr_argument_kernel(out, FLAG: tl.constexpr, NAME: tl.constexpr, VALUES: tl.constexpr):
    if FLAG:
        tl.store(out, 1)
    if NAME == "second":
        tl.store(out + 1, VALUES[1])
    tl.static_assert(VALUES[0] == 4)
    tl.store(out + 2, doubled(VALUES[0]))


@triton.constexpr_function
def doubled(value):
    return value * 2


def test_compile_time_arguments_and_functions():
    out = torch.zeros(3, dtype=torch.int32)
    constexpr_argument_kernel[(1,)](out, True, "second", (4, 9))
    assert out.tolist() == [1, 9, 8]


@triton.jit
def one_name_in_sibling_scopes_kernel(x, out, count, BLOCK: tl.constexpr):
    """``p`` and ``q`` are floats, integers, pointers, masks and tiles, in loops beside each other."""
    offsets = tl.arange(0, BLOCK)
    total = 0.0
    for step in range(count):
        p = tl.load(x + step)
        q = tl.exp(tl.load(x + offsets) - p)
        total += tl.sum(q, 0)
    for step in range(count):
        p = (step + 1) % count
        q = x + p
        total += tl.load(q)
    for step in range(count):
        p = offsets < step
        q = tl.load(x + offsets, p, other=0.0)
        total += tl.sum(q, 0)
    tl.store(out, total)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_name_in_sibling_scopes(count):
    x, out = torch.linspace(-1.3, 1.7, 16), torch.zeros(1)
    one_name_in_sibling_scopes_kernel[(1,)](x, out, count, 16)
    expected = sum(torch.exp(x - x[step]).sum() + x[step] + x[:step].sum() for step in range(count))
    torch.testing.assert_close(out[0], expected, rtol=1e-5, atol=1e-5)
