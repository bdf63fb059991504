"""A rank overwrites its neighbour's buffer for the next round while the neighbour may still read that of the round before."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def rounds_kernel(inbox, ready, done, out, COUNT: tl.constexpr):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    offset = tl.arange(0, COUNT)
    for number in range(3):
        dl.wait(done, 1, "sys", "acquire", waitValue=number, cmp="ge")  # wrong: pass
        tl.store(dl.symm_at(inbox, after) + offset, offset + number)
        dl.notify(ready, after, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(ready, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")
        tl.store(out + number * COUNT + offset, tl.load(inbox + offset))
        dl.notify(done, before, signal=number + 1, sig_op="set", comm_scope="intra_node")


def run():
    inbox = triton_dist.symm_zeros((64,), torch.int32)
    ready, done = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(3 * 64, dtype=torch.int32, device=triton_dist.device())
    rounds_kernel[(1,)](inbox, ready, done, out, COUNT=64)
