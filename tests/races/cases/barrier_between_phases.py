"""A kernel reads what the peers' kernels before it wrote; a barrier of the streams stands between."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops.collectives.barrier import barrier

RACING = ("tl.store(part", "tl.load(dl.symm_at(part")


@triton_dist.jit
def write_kernel(part, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(part + offset, offset + dl.rank())


@triton_dist.jit
def read_kernel(part, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    after = (dl.rank() + 1) % dl.num_ranks()
    tl.store(out + offset, tl.load(dl.symm_at(part, after) + offset))


def run():
    part, out = triton_dist.symm_zeros((64,), torch.int32), torch.zeros(64, dtype=torch.int32)
    write_kernel[(1,)](part, COUNT=64)
    barrier()  # wrong: pass
    read_kernel[(1,)](part, out, COUNT=64)
