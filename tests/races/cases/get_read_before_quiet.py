"""What a non-blocking get brings is there after quiet; a fence does not complete it."""

import torch
import triton.language as tl

import triton_dist
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("getmem_nbi_block", "tl.load(data")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.getmem_nbi_block(data, data + COUNT, COUNT * 4, after)
    shmem.quiet()  # wrong: shmem.fence()
    tl.store(out + place, tl.load(data + place))


def run():
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(1,)](data, flag, out, COUNT=64)
