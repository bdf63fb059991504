"""One thread puts what the block has stored: the block has to meet before."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("tl.store(data", "putmem_signal(")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    tl.store(data + COUNT + place, place)
    dl.__syncthreads()  # wrong: pass
    if dl.tid(0) == 0:
        shmem.putmem_signal(data, data + COUNT, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_SET, after)
        shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 1)
    dl.__syncthreads()
    tl.store(out + place, tl.load(data + place))


def run():
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(1,)](data, flag, out, COUNT=64)
