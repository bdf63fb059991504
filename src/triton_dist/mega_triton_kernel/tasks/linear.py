"""``out = x @ weight.T``: the projections of a model, for the few rows of a decoding step and for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ..graph import Access, Operation
from ..kernel import tensor_of
from .checks import TRITON_DTYPES, check, nbytes
from .prefetch import prefetch_lines

MOST_FEW_ROWS = 64
"""Up to so many rows all of them are in one tile, and the weights are what takes the time."""


@dataclass(frozen=True)
class _Linear:
    DTYPE: Any
    M: int
    N: int
    K: int
    TILE_M: int
    TILE_N: int
    TILE_K: int
    STAGES: int


@triton.jit
def linear_task(task, tile, C: tl.constexpr):
    """One tile of ``out``, summed in fp32. Tensors: x (M, K), weight (N, K), out (M, N)."""
    tiles_m: tl.constexpr = (C.M + C.TILE_M - 1) // C.TILE_M
    # Down the rows first: tiles side by side in time share their weights.
    row = tile % tiles_m * C.TILE_M + tl.arange(0, C.TILE_M)
    column = tile // tiles_m * C.TILE_N + tl.arange(0, C.TILE_N)
    deep = tl.arange(0, C.TILE_K)
    EVEN: tl.constexpr = C.K % C.TILE_K == 0
    x = tensor_of(task, 0, C.DTYPE) + row[:, None].to(tl.int64) * C.K + deep[None, :]
    weight = tensor_of(task, 1, C.DTYPE) + column[None, :].to(tl.int64) * C.K + deep[:, None]
    rows_inside, columns_inside = row[:, None] < C.M, column[None, :] < C.N
    sums = tl.zeros((C.TILE_M, C.TILE_N), tl.float32)
    for step in tl.range(0, C.K, C.TILE_K, num_stages=C.STAGES):
        if EVEN:
            left = tl.load(x + step, mask=rows_inside, other=0.0)
            right = tl.load(weight + step, mask=columns_inside, other=0.0)
        else:
            left = tl.load(x + step, mask=rows_inside & (deep[None, :] + step < C.K), other=0.0)
            right = tl.load(weight + step, mask=columns_inside & (deep[:, None] + step < C.K), other=0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
    out = tensor_of(task, 2, C.DTYPE) + row[:, None].to(tl.int64) * C.N + column[None, :]
    tl.store(out, sums.to(C.DTYPE), mask=rows_inside & columns_inside)


@triton.jit
def fetch_weight(task, tile, C: tl.constexpr):
    """Asks for the weights of a tile while it still waits for x."""
    NBYTES: tl.constexpr = C.K * (C.DTYPE.primitive_bitwidth // 8)
    LINES: tl.constexpr = 2048
    tiles_m: tl.constexpr = (C.M + C.TILE_M - 1) // C.TILE_M
    first = tile // tiles_m * C.TILE_N
    rows = tl.minimum(C.N - first, C.TILE_N)
    weight = tensor_of(task, 1, tl.int8) + first.to(tl.int64) * NBYTES
    for at in range(0, rows * NBYTES, LINES * 128):
        prefetch_lines(weight + at, rows * NBYTES - at, LINES)


def linear(
    name: str, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, programs: int, *, what: str = "make_linear", ahead: bool = True
) -> Operation:
    """x: (M, K). weight: (N, K). out: (M, N). All of one dtype. ahead: fetch weights before x is complete, where rows are few."""
    check(what, "input", x, (None, None))
    check(what, "weight", weight, (None, x.shape[1]), x.dtype)
    (m, k), n = x.shape, weight.shape[0]
    check(what, "output", out, (m, n), x.dtype)
    tile_m, tile_n, tile_k, stages = tile_shape(m, n, k, x.element_size(), programs)
    tiles_m, tiles_n = triton.cdiv(m, tile_m), triton.cdiv(n, tile_n)
    places = [(tile % tiles_m * tile_m, tile // tiles_m * tile_n) for tile in range(tiles_m * tiles_n)]
    reads = (
        Access.of_boxes(x, k, [(row, row + tile_m, 0, k) for row, _ in places]),
        Access.of_boxes(weight, k, [(column, column + tile_n, 0, k) for _, column in places]),
    )
    writes = (Access.of_boxes(out, n, [(row, row + tile_m, column, column + tile_n) for row, column in places]),)
    constants = _Linear(TRITON_DTYPES[x.dtype], m, n, k, tile_m, tile_n, tile_k, stages)
    return Operation(
        name, linear_task, constants, (x, weight, out), len(places), reads, writes,
        fetch_weight if ahead and m <= MOST_FEW_ROWS else None, nbytes=nbytes(x, weight, out),
    )  # fmt: skip


def tile_shape(m: int, n: int, k: int, itemsize: int, programs: int) -> tuple[int, int, int, int]:
    """Rows, columns and depth of a tile, and steps of its pipeline."""
    most_deep = max(16, triton.next_power_of_2(k))
    if m > MOST_FEW_ROWS:
        return 128, min(128, max(16, triton.next_power_of_2(n))), min(128 // itemsize, most_deep), 3

    def in_a_row(width: int) -> int:
        """Columns that the busiest program computes."""
        return triton.cdiv(triton.cdiv(n, width), programs) * width

    return max(16, triton.next_power_of_2(m)), min((32, 16), key=in_a_row), min(512 // itemsize, most_deep), 4
