"""Two puts add to one word; who waits for the first one only does not know of the second one."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("putmem_signal_block", "tl.load(data + COUNT")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.putmem_signal_block(data, out, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_ADD, after)
    shmem.fence()
    shmem.putmem_signal_block(data + COUNT, out, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_ADD, after)
    if dl.tid(0) == 0:
        shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_GE, 2)  # wrong: GE, 2 -> GE, 1
    dl.__syncthreads()
    tl.store(out + place, tl.load(data + COUNT + place))


def run():
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(1,)](data, flag, out, COUNT=64)
