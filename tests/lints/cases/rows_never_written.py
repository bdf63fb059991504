"""What is read of a buffer is what peers have written to it."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD106", "tl.load(inbox"


@triton_dist.jit
def exchange_kernel(inbox, ready, out, SENT: tl.constexpr, COUNT: tl.constexpr):
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, after) + offset, offset, mask=offset < SENT)
    dl.notify(ready, after, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)
    received = tl.load(inbox + offset, mask=offset < SENT, other=0)  # wrong: offset < SENT -> offset < COUNT
    tl.store(out + offset, received)


def run():
    inbox, ready = triton_dist.symm_empty((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    exchange_kernel[(1,)](inbox, ready, torch.zeros(64, dtype=torch.int32), SENT=40, COUNT=64)
