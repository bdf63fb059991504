"""Each program has rows of its own; a step that is smaller than the tile makes neighbours write the same rows."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(out", "tl.store(out")


@triton_dist.jit
def fill_kernel(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    first = tl.program_id(0) * ROWS  # wrong: first = tl.program_id(0) * (ROWS - 1)
    offset = (first + tl.arange(0, ROWS))[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + offset, offset)


def run():
    out = torch.zeros(4 * 16, 32, dtype=torch.int32, device=triton_dist.device())
    fill_kernel[(4,)](out, ROWS=16, COLUMNS=32)
