"""Barriers of two streams need words of their own, or one stream passes by the other one's signals (as in pytorch/pytorch issue 188005)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def exchange_kernel(inbox, arrived, out, COUNT: tl.constexpr):
    size = dl.num_ranks()
    offset, after = tl.arange(0, COUNT), (dl.rank() + 1) % size
    tl.store(dl.symm_at(inbox, after) + offset, offset)
    for peer in range(size):
        dl.notify(arrived, peer, signal=1, sig_op="add", comm_scope="intra_node")
    dl.wait(arrived, 1, "sys", "acquire", waitValue=size, cmp="ge")
    tl.store(out + offset, tl.load(inbox + offset))


def run():
    inbox, arrived = triton_dist.symm_zeros((2, 64), torch.int32), triton_dist.symm_zeros((2,), torch.int32)
    out, side = torch.zeros(2, 64, dtype=torch.int32), triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    words = [arrived, arrived[1:]]  # wrong: arrived[1:] -> arrived
    exchange_kernel[(1,)](inbox[0], words[0], out[0], COUNT=64)
    with triton_dist.stream(side):
        exchange_kernel[(1,)](inbox[1], words[1], out[1], COUNT=64)
    triton_dist.current_stream().wait_stream(side)
