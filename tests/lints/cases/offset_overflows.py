"""A row times a stride may not fit into 32 bits."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD115", "tl.store(x"


@triton_dist.jit
def mark_kernel(x, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # wrong: tl.int64 -> tl.int32
    offset = row * stride + tl.arange(0, BLOCK)
    tl.store(x + offset, 1, mask=tl.arange(0, BLOCK) < 16)


def run():
    if triton_dist.rank() == 0:
        stride = 1 << 30
        mark_kernel[(3,)](torch.empty(2 * stride + 64, dtype=torch.int8), stride, BLOCK=32)
