"""An epoch that wraps to a small number is fulfilled by the signal of an old call."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def call_kernel(inbox, ready, done, epoch, last, out, COUNT: tl.constexpr):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    offset = tl.arange(0, COUNT)
    dl.wait(done, 1, "sys", "acquire", waitValue=last, cmp="ge")
    tl.store(dl.symm_at(inbox, after) + offset, offset + epoch)
    dl.notify(ready, after, signal=epoch, sig_op="set", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=epoch, cmp="ge")
    tl.store(out + offset, tl.load(inbox + offset))
    dl.notify(done, before, signal=epoch, sig_op="set", comm_scope="intra_node")


def run():
    inbox = triton_dist.symm_zeros((64,), torch.int32)
    ready, done = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out, last = torch.zeros(64, dtype=torch.int32), 0
    for call in range(4):
        epoch = call + 1  # wrong: call + 1 -> call % 2 + 1
        call_kernel[(1,)](inbox, ready, done, epoch, last, out, COUNT=64)
        last = epoch
