"""The last block of a tensor is masked."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD104", "tl.store(out"


@triton_dist.jit
def fill_kernel(out, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    on = offset < count  # wrong: < count -> >= 0
    tl.store(out + offset, dl.rank(), mask=on)


def run():
    fill_kernel[(2,)](triton_dist.symm_zeros((100,), torch.int32), 100, BLOCK=64)
