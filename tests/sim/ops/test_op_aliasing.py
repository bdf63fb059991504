"""A loaded tile keeps its values when memory changes afterwards, whatever op it goes through in between."""
# ruff: noqa: SIM108  (kernels branch on purpose: another form compiles to another op)

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

KINDS = [
    "direct",
    "branch",
    "where",
    "reduce-one",
    "scan-one",
    "bitcast",
    "reshape",
    "trans",
    "split",
    "broadcast",
    "flip",
    "gather",
    "loop",
    "cat",
]


@triton.jit
def identity(a, b):
    return b + 0 * a


@triton.jit
def pass_through(tile, flag, KIND: tl.constexpr, N: tl.constexpr):
    """The tile itself, by way of ops that may hand on the array that they are given."""
    result = tile
    if KIND == "branch":
        if flag == 3:
            result = tile
        else:
            result = tl.zeros((N,), tl.float32)
    elif KIND == "where":
        result = tl.where(flag == 3, tile, 0.0)
    elif KIND == "reduce-one":
        result = tl.reduce(tile[None, :], 0, identity)
    elif KIND == "scan-one":
        result = tl.associative_scan(tile[None, :], 0, identity).reshape(N)
    elif KIND == "bitcast":
        result = tile.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)
    elif KIND == "reshape":
        result = tile.reshape(2, N // 2).reshape(N)
    elif KIND == "trans":
        result = tile.reshape(1, N).T.reshape(N)
    elif KIND == "split":
        first, second = tile.reshape(N // 2, 2).split()
        result = tl.interleave(first, second)
    elif KIND == "broadcast":
        result = tl.sum(tile[None, :].broadcast_to(2, N), 0) / 2
    elif KIND == "flip":
        result = tl.flip(tl.flip(tile, 0), 0)
    elif KIND == "gather":
        result = tl.gather(tile, tl.arange(0, N), 0)
    elif KIND == "loop":
        for _ in range(flag):
            result = tile
    elif KIND == "cat":
        first, second = tile.reshape(2, N // 2).T.split()
        result = tl.cat(first, second, can_reorder=True)
    return result


@triton.jit
def overwrite_kernel(out, x, flag, KIND: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tile = pass_through(tl.load(x + offsets), flag, KIND, N)
    tl.store(x + offsets, -1.0)
    tl.store(out + offsets, tile)
    tl.store(out + N + offsets, tl.load(x + offsets))


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_does_not_reach_a_tile_that_was_loaded_before(kind):
    x = torch.randn(16, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    out = torch.zeros(32)
    overwrite_kernel[(1,)](out, x, 3, kind, 16)
    assert torch.equal(out[:16], before)
    assert (out[16:] == -1).all()


@triton.jit
def overwrite_by_descriptor_kernel(out, source, x, N: tl.constexpr):
    tile = source.load([0, 0]).reshape(N)
    tl.store(x + tl.arange(0, N), -1.0)
    tl.store(out + tl.arange(0, N), tile)


def test_a_store_does_not_reach_a_tile_of_a_descriptor():
    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    out = torch.zeros(16)
    overwrite_by_descriptor_kernel[(1,)](out, TensorDescriptor.from_tensor(x, [1, 16]), x, 16)
    assert torch.equal(out, before[0])


@triton.jit
def shift_kernel(x, flag, DISTANCE: tl.constexpr, SCALE: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tile = tl.load(x + N + offsets)
    if SCALE:
        tile = tile * flag
    tl.store(x + N + DISTANCE + offsets, tile)


@pytest.mark.parametrize("distance", [-3, -1, 0, 1, 5])
@pytest.mark.parametrize("scale", [False, True])
def test_overlapping_copies_read_everything_first(distance, scale):
    x = torch.randn(48, generator=torch.Generator().manual_seed(0))
    expected = x.clone()
    expected[16 + distance : 32 + distance] = x[16:32] * (2.0 if scale else 1.0)
    shift_kernel[(1,)](x, 2.0, distance, scale, 16)
    assert torch.equal(x, expected)


@triton.jit
def transpose_in_place_kernel(x, N: tl.constexpr):
    place = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(x + place, tl.trans(tl.load(x + place)))


def test_transposition_in_place():
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    expected = x.t().clone()
    transpose_in_place_kernel[(1,)](x, 16)
    assert torch.equal(x, expected)


@triton.jit
def carried_kernel(x, out, rounds, N: tl.constexpr):
    """Each round stores what the round before loaded."""
    offsets = tl.arange(0, N)
    carried = tl.load(x + offsets)
    for index in range(1, rounds):
        following = tl.load(x + index * N + offsets)
        tl.store(x + index * N + offsets, carried)
        tl.store(out + index * N + offsets, carried + following)
        carried = following


def test_loop_carried_tiles_are_not_views_of_memory():
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    before, out = x.clone(), torch.zeros(5, 16)
    carried_kernel[(1,)](x, out, 5, 16)
    assert torch.equal(x[1:], before[:-1]) and torch.equal(x[0], before[0])
    assert torch.equal(out[1:], before[:-1] + before[1:])


@triton.jit
def exchange_kernel(x, flags, N: tl.constexpr):
    """Two programs: both load before either stores, which an atomic between the two makes sure of."""
    program = tl.program_id(0)
    offsets = tl.arange(0, N)
    tile = tl.load(x + program * N + offsets)
    tl.debug_barrier()
    tl.atomic_add(flags, 1)
    while tl.atomic_add(flags, 0) < 2:
        pass
    tl.store(x + (1 - program) * N + offsets, tile * 2)


def test_a_tile_survives_what_another_program_stores():
    x = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    expected = x.flip(0) * 2
    exchange_kernel[(2,)](x, torch.zeros(1, dtype=torch.int32), 16)
    assert torch.equal(x, expected)


@triton.jit
def limits_kernel(out, x, limit, low, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out + offsets, tl.load(x + offsets, offsets <= limit, other=-1))
    tl.store(out + N + offsets, tl.load(x + offsets, (offsets > low) & (offsets < 5), other=-1))
    tl.store(out + 2 * N + offsets, tl.load(x + offsets, (limit > offsets) & (low <= offsets), other=-1))
    tl.store(out + 3 * N + offsets, tl.load(x + offsets, (N - 1 - offsets) < limit, other=-1))
    tl.store(out + 4 * N + offsets, tl.load(x + offsets, offsets * 3 + low >= limit, other=-1))
    tl.store(out + 5 * N + offsets, 7, mask=(offsets - low > 2) & (offsets != 9))


@pytest.mark.parametrize("limit", [-(2**31), -1, 0, 4, 7, 15, 16, 2**31 - 1])
@pytest.mark.parametrize("low", [-(2**31), -2, 0, 3, 15, 2**31 - 1])
def test_masks_that_are_limits(limit, low):
    """Comparisons of an index with a number are turned into ranges: at the ends of int32, too."""
    x = torch.arange(100, 116, dtype=torch.int32)
    out = torch.zeros(6, 16, dtype=torch.int32)
    limits_kernel[(1,)](out, x, limit, low, 16)
    position = torch.arange(16)
    scaled = ((position * 3 + low + 2**31) % 2**32) - 2**31
    shifted = ((position - low + 2**31) % 2**32) - 2**31
    masks = [
        position <= limit,
        (position > low) & (position < 5),
        (position < limit) & (position >= low),
        (15 - position) < limit,
        scaled >= limit,
    ]
    expected = [torch.where(mask, x, -1) for mask in masks] + [torch.where((shifted > 2) & (position != 9), 7, 0).int()]
    assert torch.equal(out, torch.stack(expected))
