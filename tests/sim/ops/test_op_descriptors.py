"""Block pointers (Triton before 3.9) and tensor descriptors made on the host and in the kernel: boxes, padding, clipping, reductions."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_dist.errors import OutOfBoundsError, SimulationError
from triton_dist.sim.machine import Machine
from triton_dist.sim.ops import descriptor

DTYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float8_e5m2]


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=generator).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


@pytest.fixture(autouse=True)
def scratch_allocator():
    """Descriptors made in a kernel need scratch memory on a GPU; the simulator must not care whether there is an allocator."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))


@triton.jit
def block_pointer_kernel(out, x, rows, columns, STRIDE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, PADDING: tl.constexpr):
    source = tl.make_block_ptr(x, (rows, columns), (STRIDE, 1), (tl.program_id(0) * M, 0), (M, N), (1, 0))
    target = tl.make_block_ptr(out, (rows, columns), (columns, 1), (tl.program_id(0) * M, 0), (M, N), (1, 0))
    for _ in range(0, columns, N):
        tile = tl.load(source, boundary_check=(0, 1), padding_option=PADDING)
        tl.store(target, tile, boundary_check=(0, 1))
        source = tl.advance(source, (0, N))
        target = tl.advance(target, (0, N))


@triton.jit
def padding_kernel(out, x, rows, columns, M: tl.constexpr, N: tl.constexpr, PADDING: tl.constexpr):
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), (1, -1), (M, N), (1, 0))
    tile = tl.load(source, boundary_check=(0, 1), padding_option=PADDING)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tile)


def skip_without_block_pointers(version: tuple[int, int]) -> None:
    if version >= (3, 9):
        pytest.skip("Triton 3.9 has no block pointers")


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
def test_block_pointers_copy_a_ragged_matrix(dtype, triton_version):
    skip_without_block_pointers(triton_version)
    x = torch.randint(0, 2, (50, 37)).bool() if dtype == torch.bool else random((50, 37), dtype)
    out = torch.zeros(50, 30, dtype=dtype)
    block_pointer_kernel[(4,)](out, x, 50, 30, 37, 16, 8, "zero")
    assert same(out, x[:, :30])


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_block_pointer_padding(padding, triton_version):
    skip_without_block_pointers(triton_version)
    x = random((5, 6), torch.float32)
    out = torch.zeros(8, 8)
    padding_kernel[(1,)](out, x, 5, 6, 8, 8, padding)
    expected = torch.full((8, 8), 0.0 if padding == "zero" else float("nan"))
    expected[:4, 1:7] = x[1:]
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@triton.jit
def copy_by_descriptor_kernel(target, source, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([row, column], source.load([row, column]))


@triton.jit
def copy_by_device_descriptor_kernel(out, x, rows, columns, stride, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [stride, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [stride, 1], [M, N])
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([row, column], source.load([row, column]))


@pytest.mark.parametrize("side", ["host", "device"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_descriptors_copy_a_ragged_matrix(dtype, side):
    """The matrix ends in the middle of a tile both ways; what lies behind it in memory stays as it was."""
    m, n = 16, 32
    x, out = random((50, 80), dtype), random((50, 80), dtype, 1)
    before = out.clone()
    if side == "host":
        target, source = (TensorDescriptor(tensor, [45, 70], [80, 1], [m, n]) for tensor in (out, x))
        copy_by_descriptor_kernel[(3, 3)](target, source, m, n)
    else:
        copy_by_device_descriptor_kernel[(3, 3)](out, x, 45, 70, 80, m, n)
    expected = before.clone()
    expected[:45, :70] = x[:45, :70]
    assert same(out, expected)


@triton.jit
def window_kernel(out, source, row, column, M: tl.constexpr, N: tl.constexpr):
    tile = source.load([row, column])
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tile)


def window_of(x: torch.Tensor, row: int, column: int, m: int, n: int, fill: float) -> torch.Tensor:
    result = torch.full((m, n), fill, dtype=x.dtype)
    for i in range(m):
        for j in range(n):
            if 0 <= row + i < x.shape[0] and 0 <= column + j < x.shape[1]:
                result[i, j] = x[row + i, column + j]
    return result


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (-3, -5), (8, 28), (10, 2), (-8, 0), (100, 100), (-100, 5)])
def test_boxes_partly_or_wholly_outside_are_padded(row, column, padding):
    x = random((12, 32), torch.float32)
    out = torch.zeros(8, 16)
    source = TensorDescriptor(x, list(x.shape), list(x.stride()), [8, 16], padding=padding)
    window_kernel[(1,)](out, source, row, column, 8, 16)
    expected = window_of(x, row, column, 8, 16, 0.0 if padding == "zero" else float("nan"))
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@triton.jit
def device_padding_kernel(out, x, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N], padding_option="nan")
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], source.load([rows - 4, 8]))


def test_nan_padding_of_a_device_descriptor():
    x = random((12, 32), torch.float32)
    out = torch.zeros(8, 32)
    device_padding_kernel[(1,)](out, x, 12, 32, 8, 32)
    torch.testing.assert_close(out, window_of(x, 8, 8, 8, 32, float("nan")), rtol=0, atol=0, equal_nan=True)


@triton.jit
def ranks_kernel(out, x, RANK: tl.constexpr, N: tl.constexpr):
    if RANK == 1:
        source = tl.make_tensor_descriptor(x, [40], [1], [N])
        target = tl.make_tensor_descriptor(out, [40], [1], [N])
        target.store([8], source.load([32]))
    elif RANK == 3:
        source = tl.make_tensor_descriptor(x, [3, 5, 8], [40, 8, 1], [1, 2, N])
        target = tl.make_tensor_descriptor(out, [3, 5, 8], [40, 8, 1], [1, 2, N])
        target.store([0, 3, 0], source.load([2, 4, 0]))
    else:
        source = tl.make_tensor_descriptor(x, [1, 1, 3, 5, 8], [120, 120, 40, 8, 1], [1, 1, 2, 2, N])
        target = tl.make_tensor_descriptor(out, [1, 1, 3, 5, 8], [120, 120, 40, 8, 1], [1, 1, 2, 2, N])
        target.store([0, 0, 1, 0, 0], source.load([0, 0, 0, 1, 0]))


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_descriptors_of_other_ranks(rank):
    x = random((3, 5, 8), torch.float32)
    out = torch.zeros(3, 5, 8)
    expected = torch.zeros(3, 5, 8)
    if rank == 1:
        x, out, expected = x.flatten()[:40].clone(), out.flatten()[:40].clone(), expected.flatten()[:40].clone()
        expected[8:16] = x[32:]
    elif rank == 3:
        expected[0, 3] = x[2, 4]
    else:
        expected[1:3, 0:2] = x[0:2, 1:3]
    ranks_kernel[(1,)](out, x, rank, 8)
    assert torch.equal(out, expected)


@triton.jit
def reduce_by_descriptor_kernel(target, source, KIND: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    tile = source.load([row, column])
    if KIND == "add":
        target.atomic_add([row, column], tile)
    elif KIND == "min":
        target.atomic_min([row, column], tile)
    elif KIND == "max":
        target.atomic_max([row, column], tile)
    elif KIND == "and":
        target.atomic_and([row, column], tile)
    elif KIND == "or":
        target.atomic_or([row, column], tile)
    else:
        target.atomic_xor([row, column], tile)


REDUCTIONS = [("add", dtype) for dtype in (torch.int32, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32)]
REDUCTIONS += [
    (kind, dtype)
    for kind in ("min", "max")
    for dtype in (torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16, torch.bfloat16)
]
REDUCTIONS += [(kind, dtype) for kind in ("and", "or", "xor") for dtype in (torch.int32, torch.uint32, torch.int64, torch.uint64)]


@pytest.mark.parametrize(("kind", "dtype"), REDUCTIONS, ids=lambda item: str(item).removeprefix("torch."))
def test_atomic_reductions_of_boxes(kind, dtype):
    x, out = random((40, 48), dtype), random((40, 48), dtype, 1)
    if not dtype.is_floating_point and not dtype.is_signed:
        x[0, :4] = torch.tensor([torch.iinfo(dtype).max] * 4, dtype=torch.uint64).to(dtype) if dtype == torch.uint64 else 2**32 - 1
    a, b = (out.float(), x.float()) if dtype.is_floating_point else (out.to(torch.int64), x.to(torch.int64))
    expected = out.clone()
    if kind in ("min", "max") and dtype == torch.uint64:
        a, b = a ^ -(2**63), b ^ -(2**63)
    functions = {"add": torch.add, "min": torch.minimum, "max": torch.maximum}
    functions |= {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}
    result = functions[kind](a, b)
    if kind in ("min", "max") and dtype == torch.uint64:
        result = result ^ -(2**63)
    expected[:37, :45] = result.to(dtype)[:37, :45]
    target, source = (TensorDescriptor(tensor, [37, 45], [48, 1], [8, 16]) for tensor in (out, x))
    reduce_by_descriptor_kernel[(5, 3)](target, source, kind, 8, 16)
    assert same(out, expected)


@triton.jit
def gather_scatter_kernel(target, source, rows, column, COUNT: tl.constexpr):
    index = tl.load(rows + tl.arange(0, COUNT))
    tile = source.gather(index, column)
    target.scatter(tile, index // 2, column)


@pytest.mark.parametrize("column", [0, 16, 24])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_gather_and_scatter_of_rows(dtype, column):
    x, out = random((20, 40), dtype), torch.zeros(20, 40, dtype=dtype)
    rows = torch.tensor([4, 0, 18, 6, 10, 2, 16, 14], dtype=torch.int32)
    source, target = (TensorDescriptor(tensor, [20, 40], [40, 1], [1, 16]) for tensor in (x, out))
    gather_scatter_kernel[(1,)](target, source, rows, column, 8)
    expected = torch.zeros_like(x)
    expected[rows // 2, column : column + 16] = x[rows, column : column + 16]
    assert same(out, expected)


@triton.jit
def gather_outside_kernel(out, source, rows, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    tile = source.gather(tl.load(rows + tl.arange(0, COUNT)), 32)
    tl.store(out + tl.arange(0, COUNT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], tile)


def test_gather_of_rows_outside_reads_zero():
    x = random((20, 40), torch.float32)
    out = torch.ones(8, 16)
    rows = torch.tensor([0, -1, 19, 20, 5, 1000, 7, -5], dtype=torch.int32)
    gather_outside_kernel[(1,)](out, TensorDescriptor(x, [20, 40], [40, 1], [1, 16]), rows, 8, 16)
    expected = torch.zeros(8, 16)
    for place, row in enumerate(rows.tolist()):
        if 0 <= row < 20:
            expected[place, :8] = x[row, 32:]
    assert torch.equal(out, expected)


@triton.jit
def descriptor_in_loop_kernel(out, a, b, count, M: tl.constexpr, N: tl.constexpr):
    first = tl.make_tensor_descriptor(a, [M, N], [N, 1], [M, N])
    second = tl.make_tensor_descriptor(b, [M, N], [N, 1], [M, N])
    total = tl.zeros((M, N), tl.float32)
    for index in range(count):
        total += helper(first, index) * helper(second, index)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


@triton.jit
def helper(descriptor, index):
    return descriptor.load([index, 0])


def test_descriptors_in_loops_and_helpers():
    a, b = random((8, 16), torch.float32), random((8, 16), torch.float32, 1)
    out = torch.zeros(8, 16)
    descriptor_in_loop_kernel[(1,)](out, a, b, 3, 8, 16)
    expected = torch.zeros(8, 16)
    for index in range(3):
        expected[: 8 - index] += a[index:] * b[index:]
    torch.testing.assert_close(out, expected)


@triton.jit
def bad_descriptor_kernel(out, x, offset, stride, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x + offset, [4, N], [stride, 1], [4, N])
    tl.store(out + tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :], source.load([0, 0]))


@pytest.mark.parametrize(("offset", "stride", "message"), [(1, 16, "base address"), (0, 18, "stride of 72 bytes")])
def test_descriptors_that_the_hardware_does_not_take(offset, stride, message):
    with pytest.raises(SimulationError, match=rf"(?s)test_op_descriptors\.py:\d+.*{message}"):
        bad_descriptor_kernel[(1,)](torch.zeros(4, 16), torch.zeros(100), offset, stride, 16)


def test_a_descriptor_larger_than_its_tensor_is_out_of_bounds():
    """The hardware believes the descriptor's shape; the simulator knows the allocation."""
    x = random((12, 32), torch.float32)
    with pytest.raises(OutOfBoundsError, match=r"(?s)test_op_descriptors\.py:\d+.*descriptor load of source\["):
        window_kernel[(1,)](torch.zeros(8, 16), TensorDescriptor(x, [20, 32], [32, 1], [8, 16]), 8, 0, 8, 16)


@triton.jit
def store_box_kernel(target, row, column, M: tl.constexpr, N: tl.constexpr):
    target.store([row, column], tl.full((M, N), 7.0, tl.float32))


@pytest.mark.parametrize(("row", "column"), [(40, 0), (0, 40), (-8, 0), (0, -16), (1000, 1000)])
def test_a_store_wholly_outside_writes_nothing(row, column):
    out = torch.zeros(40, 40)
    store_box_kernel[(1,)](TensorDescriptor(out, [37, 33], [40, 1], [8, 16]), row, column, 8, 16)
    assert not out.any()


@triton.jit
def scatter_rows_kernel(target, rows, column, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    target.scatter(tl.full((COUNT, WIDTH), 3.0, tl.float32), tl.load(rows + tl.arange(0, COUNT)), column)


@pytest.mark.parametrize(("column", "columns"), [(0, slice(0, 16)), (32, slice(32, 40)), (48, slice(0, 0))])
def test_scatter_writes_only_what_is_inside(column, columns):
    out = torch.zeros(20, 40)
    rows = torch.tensor([0, -1, 19, 20, 5, 1000, 7, -5], dtype=torch.int32)
    scatter_rows_kernel[(1,)](TensorDescriptor(out, [20, 40], [40, 1], [1, 16]), rows, column, 8, 16)
    expected = torch.zeros(20, 40)
    for row in (0, 19, 5, 7):
        expected[row, columns] = 3
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (descriptor.INC, [1, 0, 0, 6]),  # old >= limit ? 0 : old + 1
        (descriptor.DEC, [5, 4, 5, 4]),  # old == 0 or old > limit ? limit : old - 1
    ],
)
def test_reductions_that_wrap_at_a_limit(kind, expected):
    """As PTX defines them; both sides count as unsigned. The front end has no name for these two."""
    out, limit = torch.tensor([[0, 5, -1, 5]], dtype=torch.int32), np.array([[5, 5, 5, 7]], np.int32)
    machine = Machine(1)
    origin = machine.memory.register(out, name="out")
    target = descriptor.Descriptor(out.data_ptr(), (1, 4), (4, 1), (1, 4), np.dtype(np.int32), False, origin)
    context = types.SimpleNamespace(memory=machine.memory, charge=lambda *_: None, matrix_ns=0.0, race=None)
    descriptor.reduce(context, target, (0, 0), limit, kind)
    assert out[0].tolist() == expected
