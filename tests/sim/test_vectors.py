"""Vectors that each thread holds, and what packs and unpacks them."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.language import make_vector, vector
from triton_dist.language.extra.language_extra import ld, pack, pack_b32_v2, st, tid, unpack


@triton_dist.jit
def scaled_sum_kernel(x, y, out, count, TILE: tl.constexpr):
    """Whole vectors first, single elements at the end; the tiles of a grid-stride loop."""
    SIZE: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    with dl.simt_exec_region() as (thread, threads):
        for tile in range(tl.program_id(0), tl.cdiv(count, TILE), tl.num_programs(0)):
            begin = tile * TILE
            end = min(count, begin + TILE) // SIZE * SIZE
            for place in range(begin + thread * SIZE, end, threads * SIZE):
                total = dl.ld_vector(x + place, vec_size=SIZE) + dl.ld_vector(y + place, SIZE)
                dl.st_vector(out + place, (total + 1) * 2 - 3)
            if begin + TILE >= count:
                for place in range(end + thread, count, threads):
                    total = dl.ld_vector(x + place, vec_size=1) + dl.ld_vector(y + place, vec_size=1)
                    dl.st_vector(out + place, (total + 1) * 2 - 3)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 1024, 2999])
def test_sum_of_vectors(dtype, count):
    generator = torch.Generator().manual_seed(count)
    x, y = (torch.randint(-30, 30, (count,), generator=generator).to(dtype) for _ in range(2))
    out = torch.zeros_like(x)
    scaled_sum_kernel[(3,)](x, y, out, count, 512)
    assert torch.equal(out, (x + y + 1) * 2 - 3)


@triton_dist.jit
def methods_kernel(x, out, scale):
    values = dl.ld_vector(x + tid(0) * 4, 4, scope="gpu", semantic="acquire")
    values[1] = 10
    values[-1] += values[0]
    total = dl.zeros_vector(4, tl.float32)
    for step in tl.range(0, 3):
        total = total + values * scale
        if step == 1:
            total[0] = 100.0
    halves = total.to(tl.float16).recast(tl.int32).recast(tl.float16).to(tl.float32)
    both = 1 - make_vector((halves[0], halves[1], halves[2], halves[3]))
    st(out + tid(0) * 4, both, "sys", "release")


def test_methods_of_vectors():
    x, out = torch.arange(512, dtype=torch.float32) % 7, torch.zeros(512)
    methods_kernel[(1,)](x, out, 0.5)
    values = x.reshape(128, 4).clone()
    values[:, 1] = 10
    values[:, 3] += values[:, 0]
    total = values * 1.5
    total[:, 0] = 100 + values[:, 0] * 0.5
    assert torch.equal(out.reshape(128, 4), 1 - total)


@triton.jit
def double(values, scale):
    return values * scale


@triton.jit
def passed_on_kernel(x, out):
    """A plain kernel gives vectors to a function and takes them from it."""
    values = double(dl.ld_vector(x + tid(0) * 2, 2), 3)
    dl.st_vector(out + tid(0) * 2, double(values, tl.load(x + 2)))


def test_vectors_are_arguments_and_results():
    x, out = torch.arange(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    passed_on_kernel[(1,)](x, out)
    assert torch.equal(out, x * 6)


@triton.jit
def pack_kernel(x, wide, out):
    bytes_of = unpack(ld(x + tid(0)), tl.uint8)
    st(wide + tid(0), pack(make_vector((bytes_of[3], bytes_of[2], bytes_of[1], bytes_of[0])), tl.int32))
    st(out + tid(0), pack_b32_v2(ld(x + tid(0)), tid(0)))


def test_pack_and_unpack():
    x = torch.randint(-(2**31), 2**31 - 1, (128,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    wide, out = torch.zeros_like(x), torch.zeros(128, dtype=torch.uint64)
    pack_kernel[(1,)](x, wide, out)
    assert torch.equal(wide.view(torch.uint8).reshape(128, 4), x.view(torch.uint8).reshape(128, 4).flip(1))
    assert torch.equal(out.view(torch.int32).reshape(128, 2), torch.stack([x, torch.arange(128, dtype=torch.int32)], 1))


@triton.jit
def misaligned_kernel(x):
    dl.st_vector(x + 1 + tid(0) * 4, dl.zeros_vector(4, tl.float32))


def test_a_misaligned_vector_is_named():
    with pytest.raises(errors.MisalignedAccessError, match="st_vector: address .* of thread 0 is not a multiple of 16 bytes"):
        misaligned_kernel[(1,)](torch.zeros(1024))


@triton.jit
def outside_kernel(x):
    dl.ld_vector(x + tid(0) * 4, 4)


def test_a_vector_outside_of_its_tensor_is_named():
    with pytest.raises(errors.OutOfBoundsError, match="test_vectors.py"):
        outside_kernel[(1,)](torch.zeros(508))


@triton_dist.jit
def three_elements_kernel(x):
    make_vector((1.0, tl.load(x), 2.0))


@triton_dist.jit
def mixed_types_kernel(x):
    make_vector((tid(0), tl.load(x)))


@triton_dist.jit
def other_size_kernel(x):
    dl.ld_vector(x, 4) + dl.ld_vector(x, 2)


@triton_dist.jit
def size_kernel(x):
    dl.ld_vector(x, 3)


@triton_dist.jit
def run_time_index_kernel(x):
    values = dl.ld_vector(x, 4)
    st(x, values[tid(0)])


@triton_dist.jit
def index_kernel(x):
    values = dl.ld_vector(x, 4)
    values[4] = 1.0


@triton_dist.jit
def tile_kernel(x):
    dl.ld_vector(x, 4) + tl.arange(0, 4)


@triton_dist.jit
def other_type_kernel(x):
    dl.st_vector(x, dl.zeros_vector(4, tl.int32))


@triton_dist.jit
def no_vector_kernel(x):
    dl.st_vector(x, 1.0)


@triton_dist.jit
def recast_kernel(x):
    dl.ld_vector(x, 1).recast(tl.int64)


@triton_dist.jit
def release_load_kernel(x):
    dl.ld_vector(x, 4, "sys", "release")


@triton_dist.jit
def pack_too_many_kernel(x):
    pack(dl.ld_vector(x, 4), tl.int64)


@triton_dist.jit
def unpack_kernel(x):
    unpack(tl.load(x), tl.int64)


@triton_dist.jit
def zeros_size_kernel(x):
    dl.zeros_vector(tl.load(x).to(tl.int32), tl.float32)


@triton_dist.jit
def vector_in_a_tile_op_kernel(x):
    tl.store(x, dl.ld_vector(x, 4))


@pytest.mark.parametrize(
    "kernel, message",
    [
        (three_elements_kernel, "a power of two of them; this one has 3"),
        (mixed_types_kernel, "elements of a vector are scalars of one type; these are .*int32.*fp32"),
        (other_size_kernel, "vectors of 4 and of 2 elements"),
        (size_kernel, "ld_vector: argument 'vec_size' is 3 .*allowed: 1, 2, 4"),
        (run_time_index_kernel, "index of a vector is known when the kernel is compiled"),
        (index_kernel, "index 4 is outside a vector of 4 elements"),
        (tile_kernel, "combined with a vector or a scalar, not with"),
        (other_type_kernel, "st_vector: argument 'vec' .*a vector of fp32, which the pointer points to"),
        (no_vector_kernel, "st_vector: argument 'vec' is 1.0 .*allowed: a vector of fp32"),
        (recast_kernel, "1 elements of fp32 are not a whole number of int64"),
        (release_load_kernel, "'release' is refused: it reads"),
        (pack_too_many_kernel, "4 values of fp32 do not fill one int64"),
        (unpack_kernel, "can't be split into int64"),
        (zeros_size_kernel, "'vec_size' is .*known when compiling|known when"),
        (vector_in_a_tile_op_kernel, "only its elements can"),
    ],
)
def test_what_is_refused_is_named(kernel, message):
    with pytest.raises(CompilationError) as caught:
        kernel[(1,)](torch.zeros(8))
    text, error = "", caught.value
    while error is not None:
        text, error = f"{text}\n{error}", error.__cause__
    assert re.search(message, text), text


def test_a_vector_is_made_of_tensors():
    with pytest.raises(errors.PrimitiveArgumentError, match="scalars of one type"):
        vector([1, 2])
