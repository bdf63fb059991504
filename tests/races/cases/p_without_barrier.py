"""Single elements that each thread puts are there behind a barrier of the ranks."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("shmem.p(", "tl.load(data")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    if dl.tid(0) < COUNT:
        shmem.p(data + dl.tid(0), dl.tid(0), after)
    dl.__syncthreads()
    if dl.tid(0) == 0:
        shmem.barrier_all()  # wrong: shmem.quiet()
    dl.__syncthreads()
    tl.store(out + place, tl.load(data + place))


def run():
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(1,)](data, flag, out, COUNT=64)
