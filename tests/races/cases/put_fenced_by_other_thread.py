"""A thread's fence does not deliver what another thread has put, unless they have met."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("putmem(data", "tl.load(data")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    if dl.tid(0) == 37:
        shmem.putmem(data, data + COUNT, COUNT * 4, after)
    dl.__syncthreads()  # wrong: pass
    if dl.tid(0) == 0:
        shmem.fence()
        shmem.signal_op(flag, 1, shmem.NVSHMEM_SIGNAL_ADD, after)
        shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_NE, 0)
    dl.__syncthreads()
    tl.store(out + place, tl.load(data + place))


def run():
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(1,)](data, flag, out, COUNT=64)
