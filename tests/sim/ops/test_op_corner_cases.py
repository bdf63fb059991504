"""Shapes of one element, booleans in reductions, pointers to pointers, and loops that wait for their own stores."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def one_element_kernel(out, x):
    one = tl.arange(0, 1)
    tile = tl.load(x + one)
    tl.store(out + one, tile * 2)
    tl.store(out + 1, tl.sum(tile))
    tl.store(out + 2 + one, tl.cumsum(tile))
    tl.store(out + 3, tl.max(tile.reshape(1, 1)))
    tl.store(out + 4 + tl.arange(0, 2), tl.join(tile, tile + 1).reshape(2))
    tl.store(out + 6 + tl.arange(0, 4), tile.broadcast_to(4))
    first, second = tl.split(tl.join(tl.load(x), tl.load(x + 1)))
    tl.store(out + 10, first)
    tl.store(out + 11, second)
    tl.store(out + 12 + tl.arange(0, 2), tl.join(tl.load(x), tl.load(x + 1) - 2))
    tl.store(out + 14, tl.argmax(tile, 0).to(tl.float32))
    tl.store(out + 15 + one[:, None], tl.trans(tile[None, :]))


def test_tiles_of_one_element():
    out = torch.full((16,), -1.0)
    one_element_kernel[(1,)](out, torch.tensor([3.0, 7.0]))
    assert out.tolist() == [6, 3, 3, 3, 3, 4, 3, 3, 3, 3, 3, 7, 3, 5, 0, 3]


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def both(a, b):
    return a & b


@triton.jit
def boolean_reductions_kernel(out, x, M: tl.constexpr, N: tl.constexpr):
    rows = tl.arange(0, M)
    tile = tl.load(x + rows[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + rows, tl.sum(tile, 1))
    tl.store(out + M + rows, tl.reduce(tile, 1, either).to(tl.int32))
    tl.store(out + 2 * M + rows, tl.reduce(tile, 1, both).to(tl.int32))
    tl.store(out + 3 * M + rows, tl.max(tile.to(tl.int32), 1))
    tl.store(out + 4 * M + rows, tl.xor_sum(tile.to(tl.int8), 1).to(tl.int32))
    tl.store(out + 5 * M + rows, tl.reduce_or(tile.to(tl.int32) * 6, 1))
    if tl.max(tile.to(tl.int32)) == 1 and not tl.reduce(tl.reduce(tile, 1, both), 0, both):
        tl.store(out + 6 * M, 1)


def test_reductions_of_booleans():
    x = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]]).bool()
    out = torch.zeros(25, dtype=torch.int32)
    boolean_reductions_kernel[(1,)](out, x, 4, 4)
    assert out.tolist() == [4, 0, 2, 1] + [1, 0, 1, 1] + [1, 0, 0, 0] + [1, 0, 1, 1] + [0, 0, 0, 1] + [6, 0, 6, 6] + [1]


@triton.jit
def pointer_to_pointer_kernel(table, out, N: tl.constexpr):
    offsets = tl.arange(0, N)
    pointers = table.to(tl.pointer_type(tl.pointer_type(tl.float32)))
    second = tl.load(pointers + 1)
    tl.store(out + offsets, tl.load(second + offsets))
    both = tl.load(pointers + tl.arange(0, 2))
    tl.store(out + N + tl.arange(0, 2), tl.load(both + 3))
    chosen = tl.where(offsets % 2 == 0, tl.load(pointers), second)
    tl.store(out + N + 2 + offsets, tl.load(chosen + offsets))


def test_pointers_to_pointers(triton_version):
    if triton_version >= (3, 9):
        pytest.skip("Triton 3.9 aborts on the type of a pointer to a pointer")
    a, b = torch.arange(8.0), torch.arange(8.0) + 100
    out = torch.zeros(18)
    pointer_to_pointer_kernel[(1,)](torch.tensor([a.data_ptr(), b.data_ptr()]), out, 8)
    mixed = torch.where(torch.arange(8) % 2 == 0, a, b)
    assert torch.equal(out, torch.cat([b, torch.stack([a[3], b[3]]), mixed]))


@triton.jit
def chosen_pointers_kernel(a, b, out, N: tl.constexpr):
    offsets = tl.arange(0, N)
    chosen = tl.where(offsets % 3 == 0, a + offsets, b + 2 * offsets)
    tl.store(out + offsets, tl.load(chosen))
    tl.store(chosen + 1, offsets + 500.0, offsets < 2)
    tl.store(out + N, tl.load(tl.where(N > 4, a, b)))


def test_pointers_chosen_element_by_element():
    a, b, out = torch.arange(20.0), torch.arange(20.0) + 100, torch.zeros(9)
    chosen_pointers_kernel[(1,)](a, b, out, 8)
    assert out.tolist() == [0, 102, 104, 3, 108, 110, 6, 114, 0]
    assert a[1] == 500 and b[3] == 501


@triton.jit
def memory_loop_kernel(counter, limit):
    while tl.load(counter, volatile=True) < limit:
        tl.store(counter, tl.load(counter, volatile=True) + 1)


@pytest.mark.parametrize("programs", [1, 5])
def test_a_loop_driven_by_its_own_stores_ends(programs):
    counter = torch.zeros(1, dtype=torch.int32)
    memory_loop_kernel[(programs,)](counter, 20)
    assert counter.item() >= 20


@triton.jit
def tile_memory_loop_kernel(x, N: tl.constexpr):
    offsets = tl.arange(0, N)
    while tl.sum(tl.load(x + offsets, volatile=True)) < 100:
        tl.store(x + offsets, tl.load(x + offsets, volatile=True) + offsets)


def test_a_loop_driven_by_its_own_tile_stores_ends():
    x = torch.zeros(8, dtype=torch.int32)
    tile_memory_loop_kernel[(1,)](x, 8)
    assert x.tolist() == [4 * i for i in range(8)]


@triton.jit
def uniform_stores_kernel(target, counter, M: tl.constexpr, N: tl.constexpr):
    target.store([0, 0], tl.zeros((M, N), tl.float32) + 3)
    target.store([M, 0], (tl.arange(0, M)[:, None] * 1.0).broadcast_to(M, N))
    target.store([2 * M, 0], (tl.arange(0, N)[None, :] * 1.0).broadcast_to(M, N))
    counter.atomic_add([0, 0], tl.full((M, N), 5, tl.int32))
    counter.atomic_max([M, 0], (tl.arange(0, M)[:, None]).broadcast_to(M, N))


def test_descriptors_take_tiles_that_do_not_vary():
    target, counter = torch.zeros(24, 16), torch.ones((16, 16), dtype=torch.int32)
    uniform_stores_kernel[(1,)](TensorDescriptor.from_tensor(target, [8, 16]), TensorDescriptor.from_tensor(counter, [8, 16]), 8, 16)
    rows, columns = torch.arange(8.0)[:, None].expand(8, 16), torch.arange(16.0)[None, :].expand(8, 16)
    assert torch.equal(target, torch.cat([torch.full((8, 16), 3.0), rows, columns]))
    assert torch.equal(counter, torch.cat([torch.full((8, 16), 6), rows.clamp(min=1).int()]).int())


@triton.jit
def half_dot_kernel(out, x, COUNT: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.full((N, N), 1.0, tl.float16)
    for index in range(COUNT):
        total = tl.dot(tl.load(x + index * N * N + place), tl.full((N, N), 0.5, tl.float16), total, out_dtype=tl.float16)
    tl.store(out + place, total)


def test_dot_with_uniform_operands_and_a_half_precision_accumulator():
    x = torch.randint(-4, 5, (3, 16, 16), generator=torch.Generator().manual_seed(0)).half()
    out = torch.zeros((16, 16), dtype=torch.float16)
    half_dot_kernel[(1,)](out, x, 3, 16)
    expected = 1 + x.sum(0).sum(1, keepdim=True).expand(16, 16) * 0.5
    assert torch.equal(out, expected)


@triton.jit
def packed_rows_kernel(out, x, scale_x, y, scale_y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """e2m1 packed along M and N instead of K."""
    a = tl.load(x + tl.arange(0, M // 2)[:, None] * K + tl.arange(0, K)[None, :])
    b = tl.load(y + tl.arange(0, K)[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :])
    left = tl.load(scale_x + tl.arange(0, M)[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    c = tl.dot_scaled(a, left, "e2m1", b, tl.full((N, K // 32), 128, tl.uint8), "e2m1", lhs_k_pack=False, rhs_k_pack=False)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], c)


def test_scaled_dot_of_values_packed_along_rows():
    m, n, k = 32, 32, 64
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    generator = torch.Generator().manual_seed(0)
    codes_x, codes_y = torch.randint(0, 16, (m, k), generator=generator), torch.randint(0, 16, (k, n), generator=generator)
    scale = torch.randint(125, 130, (m, k // 32), generator=generator)
    x, y = codes_x[0::2] | codes_x[1::2] << 4, codes_y[:, 0::2] | codes_y[:, 1::2] << 4
    out = torch.zeros(m, n)
    packed_rows_kernel[(1,)](out, x.to(torch.uint8), scale.to(torch.uint8), y.to(torch.uint8), x, m, n, k)
    factor = torch.exp2(scale.double() - 127).repeat_interleave(32, 1)
    torch.testing.assert_close(out.double(), (values[codes_x].double() * factor) @ (values[codes_y].double() * 2), rtol=1e-6, atol=1e-6)


@triton.jit
def masked_assert_kernel(x, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.device_assert(tl.load(x + offsets) > 0, "positive", mask=offsets < 2)


def test_masked_assertions(triton_version):
    good, bad = torch.tensor([1, 1, -1, -1], dtype=torch.int32), torch.tensor([1, -1, 1, 1], dtype=torch.int32)
    masked_assert_kernel[(1,)](good, 4, debug=True)
    with pytest.raises(AssertionError, match="positive"):
        masked_assert_kernel[(1,)](bad, 4, debug=True)


@triton.jit
def function_list_kernel(out, x, N: tl.constexpr, FUNCTIONS: tl.constexpr):
    offsets = tl.arange(0, N)
    value = tl.load(x + offsets)
    for index in tl.static_range(len(FUNCTIONS)):
        value = FUNCTIONS[index](value)
    tl.store(out + offsets, value)


@triton.jit
def plus_one(x):
    return x + 1


@triton.jit
def doubled(x):
    return x * 2


def test_functions_passed_in_a_tuple():
    x, out = torch.arange(8), torch.zeros(8, dtype=torch.int64)
    function_list_kernel[(1,)](out, x, 8, (plus_one, doubled, plus_one))
    assert torch.equal(out, (x + 1) * 2 + 1)


@triton.jit
def unsigned_kernel(out, x, N: tl.constexpr):
    """Unsigned values through comparisons, division, shifts, conversion and a reduction."""
    offsets = tl.arange(0, N)
    value = tl.load(x + offsets)
    tl.store(out + offsets, (value // 3).to(tl.int64))
    tl.store(out + N + offsets, (value >> 1).to(tl.int64))
    tl.store(out + 2 * N + offsets, value.to(tl.float64).to(tl.int64))
    tl.store(out + 3 * N + offsets, tl.where(value > 5, tl.minimum(value, 100), tl.max(value)).to(tl.int64))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32], ids=str)
def test_unsigned_values_stay_unsigned(dtype):
    values = [0, 1, 5, 6, 99, 101, torch.iinfo(dtype).max // 2 + 1, torch.iinfo(dtype).max]
    out = torch.zeros((4, 8), dtype=torch.int64)
    unsigned_kernel[(1,)](out, torch.tensor(values, dtype=dtype), 8)
    largest = max(values)
    expected = [[v // 3 for v in values], [v >> 1 for v in values], values, [min(v, 100) if v > 5 else largest for v in values]]
    assert out.tolist() == expected
