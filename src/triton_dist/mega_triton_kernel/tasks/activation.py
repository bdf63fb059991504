"""The gated activation between the two projections of an MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError
from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation
from ..kernel import tensor_of
from .checks import check, nbytes, width_of_blocks


@dataclass(frozen=True)
class _SiluMulUp:
    DTYPE: Any
    COLUMNS: int
    BLOCK: int


@triton.jit
def silu_times(gate, up):
    """``silu(gate) * up`` in fp32."""
    gate = gate.to(tl.float32)
    return gate * tl.sigmoid(gate) * up.to(tl.float32)


@triton.jit
def silu_mul_up_task(task, tile, run, C: tl.constexpr):
    """``out = silu(gate) * up`` for one block of a row of ``gate | up``, in fp32, rounded once. Tensors: gate_up, out."""
    blocks: tl.constexpr = (C.COLUMNS + C.BLOCK - 1) // C.BLOCK
    row = (tile // blocks).to(tl.int64)
    column = tile % blocks * C.BLOCK + tl.arange(0, C.BLOCK)
    inside = column < C.COLUMNS
    here = tensor_of(task, 0, C.DTYPE) + row * 2 * C.COLUMNS + column
    gate = tl.load(here, mask=inside, other=0.0)
    up = tl.load(here + C.COLUMNS, mask=inside, other=0.0)
    tl.store(tensor_of(task, 1, C.DTYPE) + row * C.COLUMNS + column, silu_times(gate, up).to(C.DTYPE), mask=inside)


def silu_mul_up(gate_up: torch.Tensor, out: torch.Tensor, programs: int) -> Operation:
    """gate_up: (rows, 2 * columns), gates first. out: (rows, columns), of its dtype."""
    check("make_silu_mul_up", "fc1_out", gate_up, (None, None))
    rows, columns = gate_up.shape[0], gate_up.shape[1] // 2
    if gate_up.shape[1] % 2:
        raise InvalidArgumentError(
            f"make_silu_mul_up: fc1_out has {gate_up.shape[1]} columns; gates and what they multiply are as many, so pass an even number"
        )
    check("make_silu_mul_up", "act_out", out, (rows, columns), gate_up.dtype)
    block = width_of_blocks(columns, max(1, programs // rows), 128, 2048)
    boxes = [(row, row + 1, column, min(columns, column + block)) for row in range(rows) for column in range(0, columns, block)]
    ups = [(row, end, first + columns, last + columns) for row, end, first, last in boxes]
    reads = (Access.of_boxes(gate_up, 2 * columns, boxes), Access.of_boxes(gate_up, 2 * columns, ups))
    constants = _SiluMulUp(TRITON_DTYPES[out.dtype], columns, block)
    writes = (Access.of_boxes(out, columns, boxes),)
    return Operation(
        "silu_mul_up", silu_mul_up_task, constants, (gate_up, out), len(boxes), reads, writes, nbytes=nbytes(gate_up, out), interleaved=True
    )
