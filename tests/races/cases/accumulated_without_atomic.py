"""Several ranks add to one tile: by atomics, since a load and a store lose what comes between."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(pointer", "tl.load(pointer")


@triton_dist.jit
def load_and_add(pointer, value):
    tl.store(pointer, tl.load(pointer) + value)


@triton_dist.jit
def reduce_kernel(total, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.atomic_add(dl.symm_at(total, 0) + offset, 1, sem="relaxed", scope="sys")  # wrong: load_and_add(dl.symm_at(total, 0) + offset, 1)


def run():
    reduce_kernel[(1,)](triton_dist.symm_zeros((64,), torch.int32), COUNT=64)
