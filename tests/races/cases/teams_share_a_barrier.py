"""Pairs of ranks meet in two ways, by words of each way; one counter for both lets a pair pass by the other pair's signal."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, peer)", "tl.load(inbox")


@triton_dist.jit
def pairs_kernel(inbox, arrived, out, WORDS: tl.constexpr, COUNT: tl.constexpr):
    me, size, offset = dl.rank(), dl.num_ranks(), tl.arange(0, COUNT)
    for way in range(2):
        peer = (me + 1 + way * (size - 2)) % size
        tl.store(dl.symm_at(inbox, peer) + way * COUNT + offset, offset)
        dl.notify(arrived + way % WORDS, peer, signal=1, sig_op="add", comm_scope="intra_node")
    for step in range(2):
        way = 1 - step
        dl.wait(arrived + way % WORDS, 1, "sys", "acquire", waitValue=1, cmp="ge")
        tl.store(out + way * COUNT + offset, tl.load(inbox + way * COUNT + offset))


def run():
    inbox, arrived = triton_dist.symm_zeros((2 * 64,), torch.int32), triton_dist.symm_zeros((2,), torch.int32)
    out = torch.zeros(2 * 64, dtype=torch.int32)
    pairs_kernel[(1,)](inbox, arrived, out, WORDS=2, COUNT=64)  # wrong: WORDS=2 -> WORDS=1
