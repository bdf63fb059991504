"""One CPU process of the test of ``triton-dist attach``: rank 1 waits in a kernel for a word that rank 0 sets when it is told to."""

from __future__ import annotations

import sys

import torch

import triton_dist
import triton_dist.language as dl


@triton_dist.jit
def patient_kernel(flags):
    dl.wait(flags, 1, "sys", "acquire", 7)


@triton_dist.jit
def tell_kernel(flags):
    dl.notify(flags, 1, 7, "set", "intra_node")


triton_dist.initialize(heap_size=16 << 20)
flags = triton_dist.symm_zeros(4, torch.int32, name="flags")
if triton_dist.rank() == 0:
    print("ready", flush=True)
    sys.stdin.readline()
    tell_kernel[(1,)](flags)
else:
    patient_kernel[(1,)](flags)
    print("ready", flush=True)
triton_dist.synchronize()
triton_dist.finalize()
