"""Weights that are brought into the L2 cache before a task needs them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..graph import Operation
from ..kernel import tensor_of
from .checks import check

_LINE = tl.constexpr(128)
"""Bytes that one prefetch brings."""
_LINES = 2048
"""Of a task: 256 KiB."""
_PREFETCH = tl.constexpr("prefetch.global.L2 [$1];\n\tmov.b32 $0, 0;")


@dataclass(frozen=True)
class _Prefetch:
    NBYTES: int
    LINES: int


@tl.core.builtin
def _for_nvidia(_semantic=None):
    """Whether there is a prefetch instruction; the target is part of Triton's cache key."""
    return tl.constexpr(getattr(_semantic.builder.options, "backend_name", "") != "hip")


@triton.jit
def prefetch_lines(first, NBYTES, LINES: tl.constexpr):
    """Asks for the lines that ``NBYTES`` bytes from ``first`` (int8 pointer) lie in, up to ``LINES`` of them; waits for nothing."""
    if _for_nvidia():
        at = tl.arange(0, LINES) * _LINE
        # The lines past the end are asked for as the first one.
        lines = first + tl.where(at < NBYTES, at, 0)
        tl.inline_asm_elementwise(_PREFETCH, "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def prefetch_task(task, tile, C: tl.constexpr):
    """Tensors: weight."""
    first = tile.to(tl.int64) * C.LINES * _LINE
    prefetch_lines(tensor_of(task, 0, tl.int8) + first, C.NBYTES - first, C.LINES)


def prefetch(weight: torch.Tensor) -> Operation:
    """weight: a matrix. Waits for nothing, and nothing waits for it."""
    check("make_prefetch", "weight", weight, (None, None))
    size = weight.numel() * weight.element_size()
    return Operation("prefetch", prefetch_task, _Prefetch(size, _LINES), (weight,), triton.cdiv(size, _LINES * _LINE.value))
