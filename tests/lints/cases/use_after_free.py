"""A symmetric tensor is freed when the kernels that use it have been waited for."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD105", "tl.store(out"


@triton_dist.jit
def fill_kernel(out, COUNT: tl.constexpr):
    tl.store(out + tl.arange(0, COUNT), dl.rank())


def run():
    out = triton_dist.symm_zeros((64,), torch.int32)
    fill_kernel[(1,)](out, COUNT=64)
    triton_dist.synchronize()  # wrong: pass
    triton_dist.symm_free(out)
