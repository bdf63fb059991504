"""A barrier orders the ranks of its team only."""

import torch
import triton.language as tl

import triton_dist
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("putmem_block", "tl.load(data")


@triton_dist.jit(do_not_specialize=["everyone", "alone"])
def kernel(data, out, everyone, alone, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.putmem_block(data, data + COUNT, COUNT * 4, after)
    shmem.barrier_block(everyone)  # wrong: everyone -> alone
    tl.store(out + place, tl.load(data + place))


def run():
    data = triton_dist.symm_zeros((128,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    alone = triton_dist.make_team([triton_dist.rank()])
    kernel[(1,)](data, out, triton_dist.team_number(), triton_dist.team_number(alone), COUNT=64)
