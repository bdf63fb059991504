"""``out = x @ weight.T``: the projections of a model, for the few rows of a decoding step and for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation
from ..kernel import tensor_of
from ..machine import Machine
from .checks import check, nbytes, steps_of

MOST_FEW_ROWS = 64
"""Up to so many rows all of them are in one tile, and the weights are what takes the time."""

_MOST_COLUMNS, _STEP_BYTES, _STEPS = 64, 512, 5
"""Of a tile of few rows: columns, bytes of a row that a step of its pipeline loads, and how many steps go on at the same time."""


@dataclass(frozen=True)
class _Linear:
    DTYPE: Any
    M: int
    N: int
    K: int
    COLUMNS: int
    """Of a tile, which is computed in a block of TILE_N: so many that all programs have as many."""
    TILE_M: int
    TILE_N: int
    TILE_K: int
    STAGES: int
    FEW: bool


@triton.jit
def linear_task(task, tile, run, C: tl.constexpr):
    """One tile of ``out``, summed in fp32. Tensors: x (M, K), weight (N, K), out (M, N)."""
    tiles_m: tl.constexpr = (C.M + C.TILE_M - 1) // C.TILE_M
    # Down the rows first: tiles side by side in time share their weights.
    first = tile // tiles_m * C.COLUMNS
    row = tile % tiles_m * C.TILE_M + tl.arange(0, C.TILE_M)
    column = first + tl.arange(0, C.TILE_N)
    deep = tl.arange(0, C.TILE_K)
    EVEN: tl.constexpr = C.K % C.TILE_K == 0
    x = tensor_of(task, 0, C.DTYPE) + row[:, None].to(tl.int64) * C.K + deep[None, :]
    weight = tensor_of(task, 1, C.DTYPE) + column[None, :].to(tl.int64) * C.K + deep[:, None]
    rows_inside, columns_inside = row[:, None] < C.M, column[None, :] < tl.minimum(first + C.COLUMNS, C.N)
    # With few rows of x the weights stand on the left: rows enough for the matrix units, which take them from shared memory themselves.
    sums = tl.zeros((C.TILE_N, C.TILE_M) if C.FEW else (C.TILE_M, C.TILE_N), tl.float32)
    for step in tl.range(0, C.K, C.TILE_K, num_stages=C.STAGES):
        if EVEN:
            left = tl.load(x + step, mask=rows_inside, other=0.0)
            right = tl.load(weight + step, mask=columns_inside, other=0.0)
        else:
            left = tl.load(x + step, mask=rows_inside & (deep[None, :] + step < C.K), other=0.0)
            right = tl.load(weight + step, mask=columns_inside & (deep[:, None] + step < C.K), other=0.0)
        sums = tl.dot(right.T, left.T, sums, input_precision="ieee") if C.FEW else tl.dot(left, right, sums, input_precision="ieee")
    result = sums.T if C.FEW else sums
    out = tensor_of(task, 2, C.DTYPE) + row[:, None].to(tl.int64) * C.N + column[None, :]
    tl.store(out, result.to(C.DTYPE), mask=rows_inside & columns_inside)


def linear(
    name: str, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, machine: Machine, *, what: str = "make_linear"
) -> Operation:
    """x: (M, K). weight: (N, K). out: (M, N). All of one dtype."""
    check(what, "input", x, (None, None))
    check(what, "weight", weight, (None, x.shape[1]), x.dtype)
    (m, k), n = x.shape, weight.shape[0]
    check(what, "output", out, (m, n), x.dtype)
    columns, tile_m, tile_n, tile_k, stages = tile_shape(m, n, k, x.element_size(), machine)
    tiles_m, tiles_n = triton.cdiv(m, tile_m), triton.cdiv(n, columns)
    places = [(tile % tiles_m * tile_m, tile // tiles_m * columns) for tile in range(tiles_m * tiles_n)]
    reads = (
        Access.of_boxes(x, k, [(row, row + tile_m, 0, k) for row, _ in places]),
        Access.of_boxes(weight, k, [(column, column + columns, 0, k) for _, column in places]),
    )
    writes = (Access.of_boxes(out, n, [(row, row + tile_m, column, column + columns) for row, column in places]),)
    constants = _Linear(TRITON_DTYPES[x.dtype], m, n, k, columns, tile_m, tile_n, tile_k, stages, m <= MOST_FEW_ROWS)
    return Operation(name, linear_task, constants, (x, weight, out), len(places), reads, writes, nbytes=nbytes(x, weight, out))


def tile_shape(m: int, n: int, k: int, itemsize: int, machine: Machine) -> tuple[int, int, int, int, int]:
    """Columns of a tile; rows, columns and depth of the block it is computed in; steps of its pipeline."""
    if m > MOST_FEW_ROWS:
        tile_n = min(128, max(16, triton.next_power_of_2(n)))
        columns, tile_m, steps, step_bytes = tile_n, 128, 3, 128
    else:
        turns = triton.cdiv(triton.cdiv(n, machine.programs), _MOST_COLUMNS)
        columns = triton.cdiv(n, machine.programs * turns)
        tile_m, tile_n = max(16, triton.next_power_of_2(m)), max(16, triton.next_power_of_2(columns))
        steps, step_bytes = _STEPS, _STEP_BYTES
    rows = tile_m + tile_n
    # Half the depth rather than fewer than two steps.
    while step_bytes > 64 and 2 * rows * step_bytes > machine.shared:
        step_bytes //= 2
    tile_k = min(step_bytes // itemsize, max(16, triton.next_power_of_2(k)))
    return columns, tile_m, tile_n, tile_k, steps_of(machine, 0, rows * step_bytes, steps)
