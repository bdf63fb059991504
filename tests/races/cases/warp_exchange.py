"""Threads of one warp exchange values through memory: __syncwarp stands between; a shuffle orders no memory."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.cuda import language_extra as cuda

RACING = ("dl.st(scratch", "tl.load(scratch")


@triton_dist.jit
def kernel(scratch, out):
    thread = dl.tid(0)
    dl.st(scratch + thread, thread)
    cuda.__syncwarp()  # wrong: cuda.__shfl_sync_i32(0xFFFFFFFF, thread, 0)
    dl.st(out + thread, tl.load(scratch + (thread // 32 * 32 + (thread + 1) % 32)))


def run():
    scratch, out = torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    kernel[(1,)](scratch, out)
