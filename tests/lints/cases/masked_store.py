"""What a load leaves out is not stored either."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD112", "tl.store(out"


@triton_dist.jit
def scale_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    value = tl.load(x + offset, mask=offset < count)
    above = (value > 0) & (offset < count)
    tl.store(out + offset, tl.where(above, value * 2, 0))
    tl.store(out + BLOCK + offset, value * 2, mask=offset < count)  # wrong: offset < count -> offset < BLOCK


def run():
    scale_kernel[(1,)](torch.ones(100), torch.zeros(256), 100, BLOCK=128)
