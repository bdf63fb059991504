"""Loads, stores, pointer arithmetic and atomics of tiles and scalars."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from triton_dist.errors import MisalignedAccessError, OutOfBoundsError

DTYPES = [
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator) * 4).to(dtype)
    return torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=generator).to(dtype)


@triton.jit
def copy_kernel(out, x, rows, columns, stride_row, stride_column, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)[:, None]
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)[None, :]
    inside = (row < rows) & (column < columns)
    tile = tl.load(x + row * stride_row + column * stride_column, inside)
    tl.store(out + row * columns + column, tile, inside)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copy_of_every_dtype_with_odd_sizes(dtype):
    x = random((50, 37), dtype)
    out = torch.zeros_like(x)
    copy_kernel[(4, 5)](out, x, 50, 37, 37, 1, 16, 8)
    assert torch.equal(out.view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1::3],
        lambda x: x[7:8].expand(20, 37),
        lambda x: x[:, :1].expand(50, 9),
        lambda x: x.as_strided((20, 16), (3, 2)),
    ],
    ids=["transposed", "steps", "equal-rows", "equal-columns", "overlapping"],
)
def test_strided_views(view):
    x = random((50, 37), torch.float32)
    part = view(x)
    out = torch.zeros(part.shape)
    copy_kernel[(triton.cdiv(part.shape[0], 16), triton.cdiv(part.shape[1], 8))](out, part, *part.shape, *part.stride(), 16, 8)
    assert torch.equal(out, part)


@triton.jit
def reverse_kernel(out, x, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + (count - 1) - offsets, inside), inside)
    tl.store(out + 2 * count - 1 - offsets, tl.load(x + offsets, inside), inside)


def test_negative_strides():
    x = random((50,), torch.int32)
    out = torch.zeros(100, dtype=torch.int32)
    reverse_kernel[(4,)](out, x, 50, 16)
    assert torch.equal(out, torch.cat([x.flip(0), x.flip(0)]))


@triton.jit
def mask_kernel(out, x, mask, other, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    on = tl.load(mask + offsets)
    tl.store(out + offsets, tl.load(x + offsets, on, other=-7))
    tl.store(out + BLOCK + offsets, tl.load(x + offsets, on, other=tl.load(other + offsets)))
    tl.store(out + 2 * BLOCK + offsets, tl.load(x + offsets), on)
    tl.store(out + 3 * BLOCK + offsets, tl.load(x + offsets, offsets < 0, other=5))
    tl.store(out + 4 * BLOCK + offsets, 9, on & (offsets > 3) & (offsets != 6))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("pattern", ["none", "all", "prefix", "middle", "holes"])
def test_masks_and_other(dtype, pattern):
    x, other = random((16,), dtype), random((16,), dtype, 1)
    position = torch.arange(16)
    on = {
        "none": position < 0,
        "all": position >= 0,
        "prefix": position < 5,
        "middle": (position > 2) & (position < 11),
        "holes": position % 3 == 0,
    }
    mask = on[pattern]
    out = torch.zeros(5, 16, dtype=dtype)
    mask_kernel[(1,)](out, x, mask, other, 16)
    zero = torch.zeros_like(x)
    last = mask & (position > 3) & (position != 6)
    expected = [
        torch.where(mask, x, zero - 7),
        torch.where(mask, x, other),
        torch.where(mask, x, zero),
        zero + 5,
        torch.where(last, zero + 9, zero),
    ]
    assert torch.equal(out, torch.stack(expected))


@triton.jit
def broadcast_kernel(out, x, y, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    row = tl.arange(0, TILE_M)[:, None, None]
    column = tl.arange(0, TILE_N)[None, :, None]
    depth = tl.arange(0, TILE_K)[None, None, :]
    value = tl.load(x + row * TILE_K + depth) * tl.load(y + column)
    tl.store(out + (row * TILE_N + column) * TILE_K + depth, value, (column != 2) & (depth < 3))


def test_three_dimensions_with_broadcasts():
    x, y = random((8, 4), torch.float32), random((4,), torch.float32, 1)
    out = torch.zeros(8, 4, 4)
    broadcast_kernel[(1,)](out, x, y, 8, 4, 4)
    expected = x[:, None, :] * y[None, :, None]
    expected[:, 2] = 0
    expected[:, :, 3] = 0
    assert torch.equal(out, expected)


@triton.jit
def gather_kernel(out, x, index, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    place = tl.load(index + offsets, inside, other=0)
    tl.store(out + offsets, tl.load(x + place, inside), inside)
    tl.store(out + count + place, tl.load(x + offsets, inside), inside)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_gather_and_scatter_by_an_index_tile(index_dtype):
    x = random((50,), torch.float32)
    index = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    out = torch.zeros(2, 50)
    gather_kernel[(4,)](out, x, index.to(index_dtype), 50, 16)
    scattered = torch.empty(50).scatter_(0, index, x)
    assert torch.equal(out, torch.stack([x[index], scattered]))


@triton.jit
def pointer_table_kernel(table, out, count, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for index in range(count):
        pointer = tl.load(table + index).to(tl.pointer_type(tl.float32))
        tl.store(out + index * BLOCK + offsets, tl.load(pointer + offsets) + 1)
    tile = tl.load(table + tl.arange(0, BLOCK), tl.arange(0, BLOCK) < count, other=0).to(tl.pointer_type(tl.float32))
    tl.store(out + count * BLOCK + offsets, tl.load(tile + 2, offsets < count), offsets < count)
    tl.store(out + (count + 1) * BLOCK + offsets, (tile.to(tl.int64) != 0).to(tl.float32))


def test_tables_of_addresses():
    """What grouped kernels do: a tensor of ``data_ptr()`` numbers, one at a time and as a tile of pointers."""
    tensors = [random((8,), torch.float32, seed) for seed in range(3)]
    table = torch.tensor([tensor.data_ptr() for tensor in tensors])
    out = torch.zeros(5, 8)
    pointer_table_kernel[(1,)](table, out, 3, 8)
    assert torch.equal(out[:3], torch.stack(tensors) + 1)
    assert out[3].tolist() == [tensor[2].item() for tensor in tensors] + [0.0] * 5
    assert out[4].tolist() == [1.0] * 3 + [0.0] * 5


def test_a_table_with_a_wrong_address_is_out_of_bounds():
    table = torch.tensor([4096 * 7, 0, 0])
    with pytest.raises(OutOfBoundsError, match=r"test_op_memory\.py:\d+: load through .*NULL pointer"):
        pointer_table_kernel[(1,)](table, torch.zeros(5, 8), 1, 8)


@triton.jit
def duplicate_store_kernel(out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets // 4, offsets)


def test_one_of_several_stores_to_a_word_stays():
    out = torch.full((4,), -1)
    duplicate_store_kernel[(1,)](out, 16)
    assert all(4 * place <= value < 4 * place + 4 for place, value in enumerate(out.tolist()))


@triton.jit
def scalar_access_kernel(out, x, on):
    value = tl.load(x + 1, mask=on > 0, other=-1)
    tl.store(out, value)
    tl.store(out + 1, value + 1, mask=on > 0)
    tl.store(out + 2, tl.load(x + 2, mask=on < 0))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint32, torch.int64, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("on", [0, 1])
def test_masked_scalars(dtype, on):
    x = torch.tensor([0, 1, 1], dtype=dtype)
    out = torch.ones(3, dtype=dtype)
    scalar_access_kernel[(1,)](out, x, on)
    minus_one = torch.tensor([-1], dtype=torch.int64).to(dtype)[0]
    expected = [x[1] if on else minus_one, (x[1].long() + 1 if dtype != torch.bool else True) if on else 1, 0]
    assert out.double().tolist() == [float(value) for value in expected]


@triton.jit
def access_kernel(out, x, first, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offsets = first + tl.arange(0, BLOCK) * STEP
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + offsets))


@pytest.mark.parametrize("first", [-1, 49, 10**6])
def test_out_of_bounds_names_the_line(first):
    with pytest.raises(OutOfBoundsError, match=r"test_op_memory\.py:\d+"):
        access_kernel[(1,)](torch.zeros(16), random((60,), torch.float32), first, 1, 16)


@triton.jit
def misaligned_kernel(out, x, BLOCK: tl.constexpr):
    pointer = (x.to(tl.pointer_type(tl.int8)) + 1).to(tl.pointer_type(tl.int32))
    tl.store(out + tl.arange(0, BLOCK), tl.load(pointer + tl.arange(0, BLOCK)))


def test_misaligned_access_is_an_error():
    with pytest.raises(MisalignedAccessError, match=r"test_op_memory\.py:\d+"):
        misaligned_kernel[(1,)](torch.zeros(4, dtype=torch.int32), torch.zeros(16, dtype=torch.int32), 4)


@triton.jit
def hinted_kernel(out, x, BLOCK: tl.constexpr):
    offsets = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)
    a = tl.load(x + offsets, cache_modifier=".ca", eviction_policy="evict_last")
    b = tl.load(x + offsets, cache_modifier=".cg", eviction_policy="evict_first", volatile=True)
    tl.debug_barrier()
    tl.store(out + offsets, a + b, cache_modifier=".wt")
    tl.store(out + BLOCK + offsets, a, cache_modifier=".cs", eviction_policy="evict_first")


def test_cache_hints_change_nothing():
    x = random((16,), torch.float32)
    out = torch.zeros(32)
    hinted_kernel[(1,)](out, x, 16)
    assert torch.equal(out, torch.cat([x + x, x]))


@triton.jit
def wrapping_offsets_kernel(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK) + 2147483640
    wrapped = offsets + 2147483640 + 16
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + wrapped))


def test_offsets_wrap_around_in_their_own_width():
    x = random((16,), torch.int32)
    out = torch.zeros(8, dtype=torch.int32)
    wrapping_offsets_kernel[(1,)](out, x, 8)
    assert torch.equal(out, x[:8])


@triton.jit
def wrapping_sum_kernel(out, x, first, second, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    offsets = (first + row * N) + (second + column)
    place = row * N + column
    tl.store(out + place, tl.load(x + 8 + offsets))
    tl.store(x + 8 + offsets, place)


def test_a_sum_of_offsets_wraps_around_as_a_whole():
    """The terms are too large for 32 bits, their wrapped sum is a small index: -8 and up."""
    x = random((32,), torch.int32)
    before, out = x.clone(), torch.zeros(32, dtype=torch.int32)
    wrapping_sum_kernel[(1,)](out, x, 2**31 - 4, 2**31 - 4, 4, 8)
    assert torch.equal(out, before)
    assert torch.equal(x, torch.arange(32).int())


@triton.jit
def mask_shapes_kernel(source, target, rows, columns, planes, BLOCK: tl.constexpr):
    """Masks and offsets that gain dimensions late: expanded comparisons, expanded conjunctions, sums that are broadcast."""
    i = tl.arange(0, BLOCK)
    row_and_column = (i[:, None] < rows) & (i[None, :] < columns)
    inside = (i < planes)[:, None, None] & row_and_column[None, :, :]
    matrix = i[:, None] * BLOCK + i[None, :]
    offset = i[:, None, None] * (BLOCK * BLOCK) + matrix[None, :, :]
    tl.store(target + offset, tl.load(source + offset, mask=inside, other=-1), mask=(i >= 1)[:, None, None] & inside)
    repeated = tl.broadcast_to(matrix[None, :, :], (BLOCK, BLOCK, BLOCK))
    tl.store(
        target + BLOCK * BLOCK * BLOCK + offset, tl.load(source + repeated, mask=tl.broadcast_to(inside, (BLOCK, BLOCK, BLOCK)), other=-2)
    )


@pytest.mark.parametrize(("planes", "rows", "columns"), [(8, 8, 8), (5, 3, 7), (0, 8, 8), (8, 1, 1), (3, 0, 2)])
def test_masks_and_offsets_that_gain_dimensions_late(planes, rows, columns):
    source = torch.arange(512, dtype=torch.int32).reshape(8, 8, 8)
    target = torch.full((2, 8, 8, 8), 7777, dtype=torch.int32)
    mask_shapes_kernel[(1,)](source, target, rows, columns, planes, BLOCK=8)
    index = torch.arange(8)
    inside = (index[:, None, None] < planes) & (index[None, :, None] < rows) & (index[None, None, :] < columns)
    first = torch.full((8, 8, 8), 7777, dtype=torch.int32)
    stored = inside & (index[:, None, None] >= 1)
    first[stored] = source[stored]
    assert torch.equal(target[0], first)
    assert torch.equal(target[1], torch.where(inside, source[0][None].expand(8, 8, 8), -2))
