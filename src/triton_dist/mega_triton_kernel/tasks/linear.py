"""``out = x @ weight.T``: the projections of a model, for the few rows of a decoding step and for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError
from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation, near
from ..kernel import tensor_of
from ..machine import Machine
from .activation import silu_mul_up_task, silu_times
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
def _sums(task, row, column, columns_inside, C: tl.constexpr):
    """fp32 (TILE_M, TILE_N): rows of x times rows of weight, which are columns of the product. Tensors: x (M, K), weight (N, K)."""
    deep = tl.arange(0, C.TILE_K)
    EVEN: tl.constexpr = C.K % C.TILE_K == 0
    x = tensor_of(task, 0, C.DTYPE) + row[:, None].to(tl.int64) * C.K + deep[None, :]
    weight = tensor_of(task, 1, C.DTYPE) + column[None, :].to(tl.int64) * C.K + deep[:, None]
    rows_inside = row[:, None] < C.M
    # With few rows of x the weights stand on the left: rows enough for the matrix units, which take them from shared memory themselves.
    sums = tl.zeros((C.TILE_N, C.TILE_M) if C.FEW else (C.TILE_M, C.TILE_N), tl.float32)
    for step in tl.range(0, C.K, C.TILE_K, num_stages=C.STAGES):
        if EVEN:
            left = tl.load(x + step, mask=rows_inside, other=0.0)
            right = tl.load(weight + step, mask=columns_inside[None, :], other=0.0)
        else:
            left = tl.load(x + step, mask=rows_inside & (deep[None, :] + step < C.K), other=0.0)
            right = tl.load(weight + step, mask=columns_inside[None, :] & (deep[:, None] + step < C.K), other=0.0)
        sums = tl.dot(right.T, left.T, sums, input_precision="ieee") if C.FEW else tl.dot(left, right, sums, input_precision="ieee")
    return sums.T if C.FEW else sums


@triton.jit
def _place(tile, C: tl.constexpr):
    """The rows of a tile, and its first column. Down the rows first: tiles side by side in time share their weights."""
    tiles_m: tl.constexpr = (C.M + C.TILE_M - 1) // C.TILE_M
    return tile % tiles_m * C.TILE_M + tl.arange(0, C.TILE_M), tile // tiles_m * C.COLUMNS


@triton.jit
def linear_task(task, tile, run, C: tl.constexpr):
    """One tile of ``out``, summed in fp32. Tensors: x (M, K), weight (N, K), out (M, N)."""
    row, first = _place(tile, C)
    column = first + tl.arange(0, C.TILE_N)
    inside = column < tl.minimum(first + C.COLUMNS, C.N)
    result = _sums(task, row, column, inside, C)
    out = tensor_of(task, 2, C.DTYPE) + row[:, None].to(tl.int64) * C.N + column[None, :]
    tl.store(out, result.to(C.DTYPE), mask=(row[:, None] < C.M) & inside[None, :])


@triton.jit
def linear_silu_mul_up_task(task, tile, run, C: tl.constexpr):
    """A tile of ``wide = x @ weight.T``, gates and as many of what they multiply, and of ``act``, computed of ``wide`` as it is stored.

    Tensors: x (M, K), weight (N, K), wide (M, N), act (M, N // 2). COLUMNS: of act.
    """
    half: tl.constexpr = C.TILE_N // 2
    row, first = _place(tile, C)
    member = tl.arange(0, C.TILE_N)
    column = first + member % half + member // half * (C.N // 2)
    inside = (member % half < C.COLUMNS) & (first + member % half < C.N // 2)
    result = _sums(task, row, column, inside, C).to(C.DTYPE)
    rows_inside = row[:, None] < C.M
    wide = tensor_of(task, 2, C.DTYPE) + row[:, None].to(tl.int64) * C.N + column[None, :]
    tl.store(wide, result, mask=rows_inside & inside[None, :])
    gate, up = tl.split(tl.permute(tl.reshape(result, (C.TILE_M, 2, half)), (0, 2, 1)))
    member = tl.arange(0, half)
    inside = (member < C.COLUMNS) & (first + member < C.N // 2)
    act = tensor_of(task, 3, C.DTYPE) + row[:, None].to(tl.int64) * (C.N // 2) + (first + member)[None, :]
    tl.store(act, silu_times(gate, up).to(C.DTYPE), mask=rows_inside & inside[None, :])


def linear(
    name: str, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, machine: Machine, *, what: str = "make_linear"
) -> Operation:
    """x: (M, K). weight: (N, K). out: (M, N). All of one dtype."""
    check(what, "input", x, (None, None))
    check(what, "weight", weight, (None, x.shape[1]), x.dtype)
    (m, k), n = x.shape, weight.shape[0]
    check(what, "output", out, (m, n), x.dtype)
    for operand, tensor in (("input", x), ("weight", weight)):
        # Were it left to the tiles, it would depend on how many there are.
        if near(Access.of_all(out, 1), Access.of_all(tensor, 1)):
            raise InvalidArgumentError(f"{what}: output shares memory with {operand}: give it one that shares no memory with its operands")
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


def with_silu_mul_up(product: Operation, activation: Operation, machine: Machine) -> Operation | None:
    """Both in one, with the same results, which saves a wait; None where the second does not follow from the first, or rows are many."""
    if product.body is not linear_task or activation.body is not silu_mul_up_task or not product.constants.FEW:
        return None
    (x, weight, wide), (gate_up, act) = product.tensors, activation.tensors
    m, n, k = product.constants.M, product.constants.N, product.constants.K
    same = (gate_up.data_ptr(), tuple(gate_up.shape), gate_up.dtype) == (wide.data_ptr(), (m, n), wide.dtype)
    # What one task stores to one place twice has no order.
    if not same or near(Access.of_all(wide, 1), Access.of_all(act, 1)):
        return None
    columns, tile_m, half, tile_k, stages = tile_shape(m, n // 2, k, x.element_size(), machine, halves=2)
    firsts = range(0, n // 2, columns)
    gates = [(column, min(n // 2, column + columns)) for column in firsts]
    ups = [(column + n // 2, end + n // 2) for column, end in gates]
    reads = (
        Access.of_all(x, len(gates)),
        *(Access.of_boxes(weight, k, [(column, end, 0, k) for column, end in part]) for part in (gates, ups)),
    )
    writes = (
        *(Access.of_boxes(wide, n, [(0, m, column, end) for column, end in part]) for part in (gates, ups)),
        Access.of_boxes(act, n // 2, [(0, m, column, end) for column, end in gates]),
    )
    constants = _Linear(product.constants.DTYPE, m, n, k, columns, tile_m, 2 * half, tile_k, stages, True)
    return Operation(
        f"{product.name}_{activation.name}", linear_silu_mul_up_task, constants, (x, weight, wide, act), len(gates), reads, writes,
        nbytes=product.nbytes + activation.nbytes,
    )  # fmt: skip


def tile_shape(m: int, n: int, k: int, itemsize: int, machine: Machine, *, halves: int = 1) -> tuple[int, int, int, int, int]:
    """Columns of a tile; rows, columns and depth of the block it is computed in; steps of its pipeline.

    halves: blocks of so many columns that a tile has of few rows, in one: all of them have to fit.
    """
    if m > MOST_FEW_ROWS:
        tile_n = min(128, max(16, triton.next_power_of_2(n)))
        columns, tile_m, steps, step_bytes = tile_n, 128, 3, 128
    else:
        turns = triton.cdiv(triton.cdiv(n, machine.programs), _MOST_COLUMNS // halves)
        columns = triton.cdiv(n, machine.programs * turns)
        tile_m, tile_n = max(16, triton.next_power_of_2(m)), max(16, triton.next_power_of_2(columns))
        steps, step_bytes = _STEPS, _STEP_BYTES
    rows = tile_m + tile_n * halves
    # Half the depth rather than fewer than two steps.
    while step_bytes > 64 and 2 * rows * step_bytes > machine.shared:
        step_bytes //= 2
    tile_k = min(step_bytes // itemsize, max(16, triton.next_power_of_2(k)))
    return columns, tile_m, tile_n, tile_k, steps_of(machine, 0, rows * step_bytes, steps)
