"""A rank forwards what it has got from the one before; it waits for the signal before it puts it on."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("putmem_signal_block(data, data", "tl.load(data")


@triton_dist.jit
def ring_kernel(data, flag, out, COUNT: tl.constexpr):
    me, size, place = shmem.my_pe(), shmem.n_pes(), tl.arange(0, COUNT)
    if me > 0:
        if dl.tid(0) == 0:
            shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 1)  # wrong: pass
        dl.__syncthreads()
    if me + 1 < size:
        shmem.putmem_signal_block(data, data, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_SET, me + 1)
    tl.store(out + place, tl.load(data + place))


def run():
    data, flag = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    ring_kernel[(1,)](data, flag, out, COUNT=64)
