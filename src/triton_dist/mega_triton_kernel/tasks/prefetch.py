"""Weights that are brought into the L2 cache before a task needs them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ...tools.profiler.language import for_amd
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


@triton.jit
def prefetch_task(task, tile, run, C: tl.constexpr):
    """Tensors: weight. AMD GPUs have no instruction for it."""
    if not for_amd():
        at = tile.to(tl.int64) * (C.LINES * _LINE) + tl.arange(0, C.LINES) * _LINE
        # Lines past the end are the first one once more.
        lines = tensor_of(task, 0, tl.int8) + tl.where(at < C.NBYTES, at, 0)
        tl.inline_asm_elementwise(_PREFETCH, "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1)


def prefetch(weight: torch.Tensor) -> Operation:
    """weight: a matrix. Waits for nothing, and nothing waits for it."""
    check("make_prefetch", "weight", weight, (None, None))
    size = weight.numel() * weight.element_size()
    return Operation("prefetch", prefetch_task, _Prefetch(size, _LINES), (weight,), triton.cdiv(size, _LINES * _LINE.value))
