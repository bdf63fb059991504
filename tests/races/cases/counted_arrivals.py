"""Every rank adds to a word behind its part; all parts are there when all ranks have added."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(parts, peer)", "tl.load(parts")
SEEDS = 8


@triton_dist.jit
def gather_kernel(parts, arrived, out, COUNT: tl.constexpr):
    rank, size = dl.rank(), dl.num_ranks()
    offset = tl.arange(0, COUNT)
    for peer in range(size):
        tl.store(dl.symm_at(parts, peer) + rank * COUNT + offset, offset + rank)
        dl.notify(arrived, peer, signal=1, sig_op="add", comm_scope="intra_node")
    dl.wait(arrived, 1, "sys", "acquire", waitValue=size, cmp="ge")  # wrong: waitValue=size -> waitValue=size - 1
    for peer in range(size):
        tl.store(out + peer * COUNT + offset, tl.load(parts + peer * COUNT + offset))


def run():
    size = triton_dist.world_size()
    parts, arrived = triton_dist.symm_zeros((64 * size,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64 * size, dtype=torch.int32, device=triton_dist.device())
    gather_kernel[(1,)](parts, arrived, out, COUNT=64)
