"""A rank zeroes its signal word on the stream; no peer may signal before (as in pytorch/pytorch pull request 196546)."""

import torch
import triton.language as tl

import triton_dist
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.ops.collectives.barrier import barrier

RACING = ("torch.zero", "putmem_signal_block")


@triton_dist.jit
def put_kernel(data, flag, out, COUNT: tl.constexpr):
    after = (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.putmem_signal_block(data, out, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_SET, after)


def run():
    data, flag = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_empty((1,), torch.int64)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    flag.zero_()
    barrier()  # wrong: pass
    put_kernel[(1,)](data, flag, out, COUNT=64)
