"""Threads of a simt region exchange values through memory: a block barrier stands between."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("dl.st(scratch", "tl.load(scratch")


@triton_dist.jit
def kernel(scratch, out):
    with dl.simt_exec_region() as (thread, count):
        dl.st(scratch + thread, thread)
        dl.__syncthreads()  # wrong: pass
        dl.st(out + thread, tl.load(scratch + (thread + 1) % count))


def run():
    scratch, out = torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    kernel[(1,)](scratch, out)
