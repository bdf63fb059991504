"""A sum over a masked load needs to be told what the elements are that are left out."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD112", "tl.store(out"


@triton_dist.jit
def sum_kernel(x, out, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, count, BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        total += tl.load(x + offset, mask=offset < count, other=0)  # wrong: , other=0) -> )
    tl.store(out, tl.sum(total))


def run():
    sum_kernel[(1,)](torch.ones(100), torch.zeros(1), 100, BLOCK=64)
