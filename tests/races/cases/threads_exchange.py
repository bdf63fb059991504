"""Threads of one block exchange values through memory: a block barrier stands between writing and reading."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("dl.st(scratch", "tl.load(scratch")


@triton_dist.jit
def rotate_kernel(scratch, out):
    thread, count = dl.tid(0), dl.num_threads()
    dl.st(scratch + thread, thread)
    dl.__syncthreads()  # wrong: pass
    dl.st(out + thread, tl.load(scratch + (thread + 1) % count))


def run():
    scratch, out = torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    rotate_kernel[(1,)](scratch, out)
