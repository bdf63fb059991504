"""A second broadcast overwrites what a rank may still read of the first one."""

import torch
import triton.language as tl

import triton_dist
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("broadcastmem_block", "tl.load(data")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    shmem.broadcastmem_block(shmem.NVSHMEM_TEAM_WORLD, data, out, COUNT * 4, 0)
    tl.store(out + place, tl.load(data + place))
    shmem.sync_all_block()  # wrong: pass
    shmem.broadcastmem_block(shmem.NVSHMEM_TEAM_WORLD, data, out, COUNT * 4, 0)


def run():
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(1,)](data, flag, out, COUNT=64)
