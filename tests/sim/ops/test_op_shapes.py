"""Ops that move elements without computing: reshapes, permutations, joins, sorts, gathers; and map_elementwise."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from triton_dist.errors import OutOfBoundsError, UnsupportedOperationError

DTYPES = [torch.int8, torch.uint16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=generator).to(dtype)


@triton.jit
def permute_kernel(
    out, x, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr
):
    tile = tl.load(x + tl.arange(0, A * B * C)).reshape(A, B, C)
    moved = tl.permute(tile, FIRST, SECOND, THIRD)
    tl.store(out + tl.arange(0, A * B * C), tl.reshape(moved, (A * B * C,)))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_permutations(order):
    x = random((2, 4, 8), torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    permute_kernel[(1,)](out, x, 2, 4, 8, *order)
    assert torch.equal(out, x.permute(order).reshape(-1))


@triton.jit
def shape_kernel(out, x, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tile = tl.load(x + offsets)
    tl.store(out + offsets, tl.trans(tile.reshape(4, N // 4)).reshape(N))
    tl.store(out + N + offsets, tl.reshape(tile.reshape(2, N // 2).T, N))
    tl.store(out + 2 * N + offsets, tl.ravel(tl.view(tile, (N // 2, 2))))
    wide = tl.expand_dims(tile, 0).broadcast_to(2, N)
    tl.store(out + 3 * N + tl.arange(0, 2)[:, None] * N + offsets[None, :], wide)
    a, b = tl.split(tile.reshape(N // 2, 2))
    half = tl.arange(0, N // 2)
    tl.store(out + 5 * N + half, a)
    tl.store(out + 5 * N + N // 2 + half, b)
    tl.store(out + 6 * N + offsets, tl.interleave(b, a))
    tl.store(out + 7 * N + tl.arange(0, N // 2)[:, None] * 2 + tl.arange(0, 2)[None, :], tl.join(b, a))
    tl.store(out + 8 * N + offsets, tl.cat(b, a, can_reorder=True))
    tl.store(out + 9 * N + offsets, tl.flip(tile, 0))
    tl.store(out + 10 * N + offsets, tl.flip(tile.reshape(4, N // 4), 1).reshape(N))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shape_ops_of_every_dtype(dtype):
    x = random((16,), dtype)
    out = torch.zeros(11, 16, dtype=dtype)
    shape_kernel[(1,)](out, x, 16)
    as_bytes = x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    a, b = as_bytes[0::2], as_bytes[1::2]
    swapped = torch.stack([b, a], 1).ravel()
    expected = [
        as_bytes.reshape(4, 4).t().ravel(),
        as_bytes.reshape(2, 8).t().ravel(),
        as_bytes,
        as_bytes,
        as_bytes,
        torch.cat([a, b]),
        swapped,
        swapped,
        torch.cat([b, a]).sort().values,  # tl.cat may reorder
        as_bytes.flip(0),
        as_bytes.reshape(4, 4).flip(1).ravel(),
    ]
    actual = out.view(as_bytes.dtype)
    actual[8] = actual[8].sort().values
    assert torch.equal(actual, torch.stack(expected))


@triton.jit
def uniform_kernel(out, value, A: tl.constexpr, B: tl.constexpr):
    tile = tl.full((A, B), 3.0, tl.float32) * value
    place = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    a, b = tl.split(tl.join(tile, tile + 1))
    tl.store(out + place, tl.trans(tile.reshape(B, A)))
    tl.store(out + A * B + place, a + b)
    tl.store(out + 2 * A * B + tl.arange(0, A), tl.sum(tile, 1))
    tl.store(out + 2 * A * B + A + tl.arange(0, B), tl.max(tl.cumsum(tile, 0), 0))
    tl.store(out + 2 * A * B + A + B + tl.arange(0, A * B), tl.ravel(tl.flip(tile, 1)))
    tl.store(out + 3 * A * B + A + B, tl.sum(tl.sort(tile)))


def test_tiles_with_one_value_keep_their_shape():
    """Inside the simulator such a tile is a single number; no op may notice."""
    out = torch.zeros(8 * 4 * 3 + 8 + 4 + 1)
    uniform_kernel[(1,)](out, 2.0, 8, 4)
    expected = [6.0] * 32 + [13.0] * 32 + [24.0] * 8 + [48.0] * 4 + [6.0] * 32 + [192.0]
    assert out.tolist() == expected


@triton.jit
def sort_kernel(out, x, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr, K: tl.constexpr):
    row = tl.arange(0, M)[:, None]
    place = row * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + place)
    tl.store(out + place, tl.sort(tile, dim=1, descending=DESCENDING))
    tl.store(out + M * N + row * K + tl.arange(0, K)[None, :], tl.topk(tile, K))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.bfloat16], ids=str
)
def test_sort_and_topk(dtype, descending):
    x = random((4, 32), dtype)
    if dtype.is_floating_point:
        x[0, :3] = torch.tensor([float("inf"), float("-inf"), 0.0])
    out = torch.zeros(4 * 32 + 4 * 4, dtype=dtype)
    sort_kernel[(1,)](out, x, 4, 32, descending, 4)
    assert torch.equal(out[:128].reshape(4, 32), x.sort(1, descending=descending).values)
    assert torch.equal(out[128:].reshape(4, 4), x.sort(1, descending=True).values[:, :4])


@triton.jit
def gather_kernel(out, x, index, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, P: tl.constexpr, Q: tl.constexpr):
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    place = tl.arange(0, P)[:, None] * Q + tl.arange(0, Q)[None, :]
    tl.store(out + place, tl.gather(tile, tl.load(index + place), AXIS))


@pytest.mark.parametrize(("axis", "shape"), [(0, (16, 8)), (1, (4, 32))])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.int64], ids=str)
def test_gather_from_a_tile(dtype, axis, shape):
    x = random((4, 8), dtype)
    index = torch.randint(0, (4, 8)[axis], shape, generator=torch.Generator().manual_seed(1))
    out = torch.zeros(shape, dtype=dtype)
    gather_kernel[(1,)](out, x, index.int(), axis, 4, 8, *shape)
    assert torch.equal(out.view(torch.uint8), torch.gather(x, axis, index).view(torch.uint8))


@triton.jit
def three_way(a, b):
    if a < b:
        result = -1
    elif a == b:
        result = 0
    else:
        result = 1
    return result


@triton.jit
def three_way_by_returns(a, b):
    if a < b:
        return -1
    if a == b:
        return 0
    return 1


@triton.jit
def digits(a, b):
    """How often ``a`` can be halved before it is at most ``b``: the loop ends at another time for each element."""
    count = 0
    while a > b:
        a = a // 2
        count += 1
    return count


@triton.jit
def power(a, b):
    result = 1
    for _ in range(b & 3):
        result *= a
    return result


@triton.jit
def order_pair(a0, a1, b0, b1):
    return tl.minimum(a0, a1), tl.maximum(a0, a1), a0 + b1, a1 + b0


@triton.jit
def map_kernel(out, x, y, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a, b = tl.load(x + offsets), tl.load(y + offsets)
    if FUNCTION == "branches":
        result = tl.map_elementwise(three_way, a, b)
    elif FUNCTION == "returns":
        result = tl.map_elementwise(three_way_by_returns, a, b)
    elif FUNCTION == "while":
        result = tl.map_elementwise(digits, a, b)
    else:
        result = tl.map_elementwise(power, a, b)
    tl.store(out + offsets, result)


@triton.jit
def map_pairs_kernel(out, x, y, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a, b = tl.map_elementwise(order_pair, tl.load(x + offsets), tl.load(y + offsets), pack=2)
    tl.store(out + offsets, a)
    tl.store(out + BLOCK + offsets, b)


@pytest.mark.parametrize("function", ["branches", "returns"])
def test_map_elementwise_with_branches(function):
    x, y = random((32,), torch.int32), random((32,), torch.int32, 1)
    y[:5] = x[:5]
    out = torch.zeros(32, dtype=torch.int32)
    map_kernel[(1,)](out, x, y, function, 32)
    assert torch.equal(out, torch.sign(x - y))


def test_map_elementwise_with_loops():
    x, y = random((32,), torch.int32), random((32,), torch.int32, 1).abs()
    out = torch.zeros(32, dtype=torch.int32)
    map_kernel[(1,)](out, x, y, "while", 32)
    expected = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        count = 0
        while a > b:
            a, count = a // 2, count + 1
        expected.append(count)
    assert out.tolist() == expected
    map_kernel[(1,)](out, x, y, "for", 32)
    assert out.tolist() == [a ** (b & 3) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def test_map_elementwise_of_pairs():
    x, y = random((32,), torch.float32), random((32,), torch.float32, 1)
    out = torch.zeros(2, 32)
    map_pairs_kernel[(1,)](out, x, y, 32)
    pairs, others = x.reshape(16, 2), y.reshape(16, 2)
    assert torch.equal(out[0], pairs.sort(1).values.ravel())
    assert torch.equal(out[1], (pairs + others.flip(1)).ravel())


@triton.jit
def swizzle_kernel(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    index = tl.program_id(0)
    row, column = tl.swizzle2d(index // COLUMNS, index % COLUMNS, ROWS, COLUMNS, GROUP)
    tl.store(out + index, row * COLUMNS + column)


def test_swizzle_visits_every_tile_once():
    out = torch.zeros(35, dtype=torch.int32)
    swizzle_kernel[(35,)](out, 5, 7, 3)
    assert sorted(out.tolist()) == list(range(35))
    assert out[:6].tolist() == [0, 7, 14, 1, 8, 15]


@pytest.mark.parametrize("bad", [4, -1, 1000])
def test_gather_outside_of_the_tile_is_a_named_error(bad):
    index = torch.zeros((16, 8), dtype=torch.int32)
    index[3, 5] = bad
    with pytest.raises(OutOfBoundsError, match=rf"(?s)test_op_shapes\.py:\d+.*index {bad}, but the tile has 4 elements along axis 0"):
        gather_kernel[(1,)](torch.zeros(16, 8), torch.zeros(4, 8), index, 0, 4, 8, 16, 8)


@triton.jit
def clear_bits(a, b):
    """Never ends where ``a & b`` is ``a``."""
    while a > 0:
        a = a & b
        b = b >> 1 << 1
    return a + b


@triton.jit
def load_one(pointer):
    return tl.load(pointer) + 1


@triton.jit
def special_map_kernel(out, x, y, LOAD: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if LOAD:
        result = tl.map_elementwise(load_one, x + offsets)
    else:
        result = tl.map_elementwise(clear_bits, tl.load(x + offsets), tl.load(y + offsets))
    tl.store(out + offsets, result)


def test_a_mapped_function_may_load_but_not_loop_for_ever():
    x, y = torch.tensor([1, 2, 0, 4], dtype=torch.int32), torch.tensor([0, 1, 5, 3], dtype=torch.int32)
    out = torch.zeros(4, dtype=torch.int32)
    special_map_kernel[(1,)](out, x, y, True, 4)
    assert out.tolist() == [2, 3, 1, 5]
    special_map_kernel[(1,)](out, x, y, False, 4)
    assert out.tolist() == [0, 0, 5, 2]
    with pytest.raises(UnsupportedOperationError, match="waits for memory"):
        special_map_kernel[(1,)](out, x * 0 + 2, y * 0 + 2, False, 4)
