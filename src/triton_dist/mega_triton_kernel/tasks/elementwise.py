"""Sums of two tensors: the residual connections of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation
from ..kernel import tensor_of
from .checks import check, nbytes, width_of_blocks


@dataclass(frozen=True)
class _Add:
    DTYPE: Any
    ELEMENTS: int
    BLOCK: int


@triton.jit
def add_task(task, tile, run, C: tl.constexpr):
    """``out = lhs + rhs``, added in fp32 and rounded once. Tensors: lhs, rhs, out."""
    at = tile.to(tl.int64) * C.BLOCK + tl.arange(0, C.BLOCK)
    inside = at < C.ELEMENTS
    lhs = tl.load(tensor_of(task, 0, C.DTYPE) + at, mask=inside, other=0.0).to(tl.float32)
    rhs = tl.load(tensor_of(task, 1, C.DTYPE) + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(tensor_of(task, 2, C.DTYPE) + at, (lhs + rhs).to(C.DTYPE), mask=inside)


def add(lhs: torch.Tensor, rhs: torch.Tensor, out: torch.Tensor, programs: int) -> Operation:
    """lhs, rhs, out: of one shape and dtype, contiguous; out may be lhs or rhs."""
    check("make_add", "lhs", lhs, (None,) * lhs.dim() if isinstance(lhs, torch.Tensor) else ())
    check("make_add", "rhs", rhs, lhs.shape, lhs.dtype)
    check("make_add", "output", out, lhs.shape, lhs.dtype)
    elements = lhs.numel()
    block = width_of_blocks(elements, programs, 256, 2048)
    tiles = triton.cdiv(elements, block)
    boxes = [(0, 1, tile * block, (tile + 1) * block) for tile in range(tiles)]
    reads = (Access.of_boxes(lhs, elements, boxes), Access.of_boxes(rhs, elements, boxes))
    constants = _Add(TRITON_DTYPES[lhs.dtype], elements, block)
    return Operation(
        "add",
        add_task,
        constants,
        (lhs, rhs, out),
        tiles,
        reads,
        (Access.of_boxes(out, elements, boxes),),
        nbytes=nbytes(lhs, rhs, out),
        interleaved=True,
    )
