"""Tiles go to other ranks by one descriptor over all heaps; each rank adds up what it got once all have told it."""

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_dist
import triton_dist.language as dl
from triton_dist.runtime.address_map import STRIDE

RACING = ("everywhere.store(", "tl.load(slots")


@triton_dist.jit
def scatter_kernel(everywhere, arrived, SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    for distance in range(SIZE):
        owner = (dl.rank() + 1 + distance) % SIZE
        everywhere.store([owner, 0, 0], tl.zeros((1, ROWS, COLUMNS), tl.float32) + owner)
        dl.notify(arrived, owner, signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def add_kernel(slots, arrived, out, SIZE: tl.constexpr, COUNT: tl.constexpr):
    dl.wait(arrived, 1, "sys", "acquire", waitValue=SIZE, cmp="ge")  # wrong: pass
    total = tl.zeros((COUNT,), tl.float32)
    for source in range(SIZE):
        total += tl.load(slots + source * COUNT + tl.arange(0, COUNT))
    tl.store(out + tl.arange(0, COUNT), total)


def run():
    rank, size = triton_dist.rank(), triton_dist.world_size()
    slots, arrived = triton_dist.symm_zeros((size, 16, 32)), triton_dist.symm_zeros((1,), torch.int32)
    first = triton_dist.symm_peer(slots, 0)[rank]
    everywhere = TensorDescriptor(first, [size, 16, 32], [STRIDE // 4, 32, 1], [1, 16, 32])
    out = torch.zeros(16 * 32)
    scatter_kernel[(1,)](everywhere, arrived, SIZE=size, ROWS=16, COLUMNS=32)
    add_kernel[(1,)](slots, arrived, out, SIZE=size, COUNT=16 * 32)
