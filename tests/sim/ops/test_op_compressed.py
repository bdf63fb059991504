"""Tiles that do not vary along some axis are kept small inside the simulator: no op may give another result for that."""
# ruff: noqa: SIM108  (kernels branch on purpose: another form compiles to another op)

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

LAYOUTS = ["full", "rows", "columns", "uniform"]
M, N = 8, 16


@triton.jit
def tile_like(LAYOUT: tl.constexpr, row, column):
    """An int32 tile that varies along both axes, down the rows only, along the columns only, or not at all."""
    if LAYOUT == "full":
        result = row * 5 + column * 3
    elif LAYOUT == "rows":
        result = (row * 5).broadcast_to(row.shape[0], column.shape[1])
    elif LAYOUT == "columns":
        result = (column * 3).broadcast_to(row.shape[0], column.shape[1])
    else:
        result = tl.full((row.shape[0], column.shape[1]), 21, tl.int32)
    return result


def reference_tile(layout: str) -> np.ndarray:
    row, column = np.arange(M, dtype=np.int32)[:, None], np.arange(N, dtype=np.int32)[None, :]
    parts = {"full": row * 5 + column * 3, "rows": row * 5, "columns": column * 3, "uniform": np.int32(21)}
    return np.broadcast_to(parts[layout], (M, N)).copy()


@triton.jit
def access_kernel(
    memory, out, POINTER: tl.constexpr, MASK: tl.constexpr, VALUE: tl.constexpr, KIND: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    pointer = memory + tile_like(POINTER, row, column)
    if MASK == "row-limit":
        mask = (row < 5).broadcast_to(M, N)
    elif MASK == "column-limit":
        mask = ((column >= 3) & (column < 11)).broadcast_to(M, N)
    elif MASK == "limits":
        mask = (row >= 2) & (column <= 12)
    elif MASK == "never":
        mask = (row < 0).broadcast_to(M, N)
    else:
        mask = tile_like(MASK, row, column) % 7 != 5
    value = tile_like(VALUE, row, column)
    place = row * N + column
    if KIND == "load":
        tl.store(out + place, tl.load(pointer, mask, other=value))
    elif KIND == "atomic":
        tl.store(out + place, tl.atomic_max(pointer, value, mask))
    else:
        tl.store(pointer, value, mask)


def reference_mask(mask: str) -> np.ndarray:
    row, column = np.arange(M)[:, None], np.arange(N)[None, :]
    limits = {
        "row-limit": row < 5,
        "column-limit": (column >= 3) & (column < 11),
        "limits": (row >= 2) & (column <= 12),
        "never": row < 0,
    }
    return np.broadcast_to(limits[mask], (M, N)) if mask in limits else reference_tile(mask) % 7 != 5


MASKS = [*LAYOUTS, "row-limit", "column-limit", "limits", "never"]


@pytest.mark.parametrize(("pointer", "mask", "value"), list(itertools.product(LAYOUTS, MASKS, LAYOUTS)))
def test_accesses_with_every_mix_of_layouts(pointer, mask, value):
    index, on, values = reference_tile(pointer), reference_mask(mask), reference_tile(value)
    memory = torch.arange(1000, 1100, dtype=torch.int32)
    out = torch.zeros(M, N, dtype=torch.int32)

    access_kernel[(1,)](memory, out, pointer, mask, value, "load", M, N)
    assert np.array_equal(out.numpy(), np.where(on, memory.numpy()[index], values))

    target = torch.zeros(100, dtype=torch.int32)
    access_kernel[(1,)](target, out, pointer, mask, value, "atomic", M, N)
    expected = np.zeros(100, np.int32)
    np.maximum.at(expected, index[on], values[on])
    assert np.array_equal(target.numpy(), expected)

    target = torch.full((100,), -1, dtype=torch.int32)
    access_kernel[(1,)](target, out, pointer, mask, value, "store", M, N)
    written = target.numpy()
    for place in range(100):
        candidates = values[on & (index == place)]
        assert written[place] in candidates if candidates.size else written[place] == -1


@triton.jit
def biggest(a, b):
    return tl.maximum(a, b)


@triton.jit
def pair_sum(a, b, c, d):
    return a + c, b + d + 1


@triton.jit
def halves(a):
    if a > 20:
        result = a // 2
    else:
        result = a
    return result


@triton.jit
def apply(x, OP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """One op on an (M, N) tile, brought back to a tile of M * N values."""
    other = tl.arange(0, M)[:, None] * 2 + tl.arange(0, N)[None, :]
    if OP == "sum0":
        result = (tl.sum(x, 0)[None, :] + other).reshape(M * N)
    elif OP == "sum1":
        result = (tl.sum(x, 1)[:, None] + other).reshape(M * N)
    elif OP == "sum":
        result = (tl.sum(x) + other).reshape(M * N)
    elif OP == "max":
        result = (tl.max(x, 1, keep_dims=True) + other).reshape(M * N)
    elif OP == "argmax":
        result = (tl.argmax(x, 1)[:, None] + other).reshape(M * N)
    elif OP == "reduce":
        result = (tl.reduce(x, 0, biggest)[None, :] + other).reshape(M * N)
    elif OP == "reduce-pair":
        a, b = tl.reduce((x, x * 2), 1, pair_sum)
        result = ((a - b)[:, None] + other).reshape(M * N)
    elif OP == "cumsum0":
        result = tl.cumsum(x, 0).reshape(M * N)
    elif OP == "cumsum1":
        result = tl.cumsum(x, 1, reverse=True).reshape(M * N)
    elif OP == "scan-pair":
        a, b = tl.associative_scan((x, x * 2), 0, pair_sum)
        result = (a - b).reshape(M * N)
    elif OP == "reshape":
        result = x.reshape(M * N)
    elif OP == "trans":
        result = tl.trans(x).reshape(M * N)
    elif OP == "permute":
        result = x.reshape(2, M // 2, N).permute(2, 0, 1).reshape(M * N)
    elif OP == "join-split":
        a, b = tl.join(x, x + 1).split()
        result = (a * 2 + b).reshape(M * N)
    elif OP == "interleave":
        result = tl.interleave(x, other).reshape(2, M * N).sum(0)
    elif OP == "cat":
        result = tl.cat(x.reshape(M * N), x.reshape(M * N), can_reorder=True).reshape(2, M * N).sum(0)
    elif OP == "sort":
        result = tl.sort(x).reshape(M * N)
    elif OP == "topk":
        result = (tl.topk(x, 2).sum(1)[:, None] + other).reshape(M * N)
    elif OP == "flip":
        result = tl.flip(x, 1).reshape(M * N)
    elif OP == "gather":
        result = tl.gather(x, other % M, 0).reshape(M * N)
    elif OP == "gather-index":
        result = tl.gather(other, x % M, 0).reshape(M * N)
    elif OP == "histogram":
        result = tl.histogram(x.reshape(M * N), M * N)
    elif OP == "histogram-mask":
        result = tl.histogram(x.reshape(M * N), M * N, mask=(x > 10).reshape(M * N))
    elif OP == "map":
        result = tl.map_elementwise(halves, x).reshape(M * N)
    elif OP == "where":
        result = tl.where(x > 20, x, other).reshape(M * N)
    elif OP == "where-value":
        result = tl.where(other > 20, x, 5).reshape(M * N)
    elif OP == "clamp":
        result = tl.clamp(x.to(tl.float32), 10.0, 20.0).to(tl.int32).reshape(M * N)
    elif OP == "convert":
        result = x.to(tl.float32).to(tl.float8e5).to(tl.float32).to(tl.int32).reshape(M * N)
    elif OP == "bitcast":
        result = x.to(tl.float32).to(tl.int32, bitcast=True).reshape(M * N)
    elif OP == "divide":
        result = ((x + 1) // (other % 3)).reshape(M * N)
    elif OP == "shift":
        result = ((1 << x) ^ (other >> x)).reshape(M * N)
    elif OP == "math":
        result = (tl.sqrt(x.to(tl.float32)) * 1000).to(tl.int32).reshape(M * N)
    elif OP == "dot":
        a = tl.join(x, x).reshape(2 * M, N).to(tl.float16)
        result = (tl.dot(a, tl.trans(a)).sum(1).to(tl.int32)[:, None] + tl.arange(0, N // 2)[None, :]).reshape(M * N)
    elif OP == "pointer":
        result = (x.to(tl.int64) + tl.zeros((M, N), tl.int64)).to(tl.int32).reshape(M * N)
    elif OP == "loop":
        total = x
        for index in range(3):
            total = tl.where(index == 1, total * 2, total + x)
        result = total.reshape(M * N)
    elif OP == "random":
        result = tl.randint(3, x).reshape(M * N)
    return result


OPS = [
    "sum0",
    "sum1",
    "sum",
    "max",
    "argmax",
    "reduce",
    "reduce-pair",
    "cumsum0",
    "cumsum1",
    "scan-pair",
    "reshape",
    "trans",
    "permute",
    "join-split",
    "interleave",
    "cat",
    "sort",
    "topk",
    "flip",
    "gather",
    "gather-index",
    "histogram",
    "histogram-mask",
    "map",
    "where",
    "where-value",
    "clamp",
    "convert",
    "bitcast",
    "divide",
    "shift",
    "math",
    "dot",
    "pointer",
    "loop",
    "random",
]


@triton.jit
def compare_kernel(compressed, loaded, source, OP: tl.constexpr, LAYOUT: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    flat = tl.arange(0, M * N)
    tl.store(compressed + flat, apply(tile_like(LAYOUT, row, column), OP, M, N))
    tl.store(loaded + flat, apply(tl.load(source + row * N + column), OP, M, N))


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("op", OPS)
def test_an_op_gives_the_same_for_a_small_tile_as_for_a_whole_one(op, layout):
    source = torch.from_numpy(reference_tile(layout))
    compressed, loaded = torch.zeros(M * N, dtype=torch.int32), torch.ones(M * N, dtype=torch.int32)
    compare_kernel[(1,)](compressed, loaded, source, op, layout, M, N)
    assert torch.equal(compressed, loaded)
