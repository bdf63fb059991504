"""Ends in the way that its first argument says, on rank 1 only."""

import os
import sys

import torch
import torch.distributed as dist
import triton

import triton_dist.language as dl
from triton_dist.utils import initialize_distributed, nvshmem_create_tensor


@triton.jit
def wait_kernel(signals, index):
    dl.wait(signals + index, 1, "sys", "acquire", waitValue=1)


how = sys.argv[1]
initialize_distributed()
signals = nvshmem_create_tensor((1,), torch.int64)
signals.zero_()
if int(os.environ["RANK"]) == 1:
    if how == "raise":
        raise ValueError("rank 1 has enough")
    if how == "deadlock":
        signals[0] = 1
    if how == "beyond":
        wait_kernel[(1,)](signals, 1)
    if how == "device":
        torch.zeros(1, device="cuda:0")
    if how.lstrip("-").isdigit():
        sys.exit(int(how))
    if how == "text":
        sys.exit("no luck today")
if how == "deadlock":
    wait_kernel[(1,)](signals, 0)
dist.barrier()
torch.cuda.synchronize()
