"""Two slots take turns so that a signal of one round says that the round before is over; with one slot it does not."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, peer)", "tl.load(inbox")


@triton_dist.jit
def rounds_kernel(inbox, ready, out, COUNT: tl.constexpr):
    rank, size = dl.rank(), dl.num_ranks()
    offset = tl.arange(0, COUNT)
    for number in range(3):
        slot = number % 2 * COUNT * size  # wrong: slot = number % 1 * COUNT * size
        for peer in range(size):
            tl.store(dl.symm_at(inbox, peer) + slot + rank * COUNT + offset, offset + number)
            dl.notify(ready + rank, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(ready, size, "sys", "acquire", waitValue=number + 1, cmp="ge")
        for peer in range(size):
            tl.store(out + peer * COUNT + offset, tl.load(inbox + slot + peer * COUNT + offset))


def run():
    size = triton_dist.world_size()
    inbox, ready = triton_dist.symm_zeros((2 * 64 * size,), torch.int32), triton_dist.symm_zeros((size,), torch.int32)
    out = torch.zeros(64 * size, dtype=torch.int32, device=triton_dist.device())
    rounds_kernel[(1,)](inbox, ready, out, COUNT=64)
