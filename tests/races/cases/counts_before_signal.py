"""How many rows a peer has sent is read behind the wait for them, not before."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(counts, after)", "tl.load(counts")


@triton_dist.jit
def dispatch_kernel(counts, rows, ready, out, EARLY: tl.constexpr, COUNT: tl.constexpr):
    after, offset = (dl.rank() + 1) % dl.num_ranks(), tl.arange(0, COUNT)
    tl.store(dl.symm_at(rows, after) + offset, offset)
    tl.store(dl.symm_at(counts, after), 40)
    dl.notify(ready, after, signal=1, sig_op="set", comm_scope="intra_node")
    count = 0
    if EARLY:
        count = tl.load(counts)
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)
    if not EARLY:
        count = tl.load(counts)
    tl.store(out + offset, tl.load(rows + offset, mask=offset < count, other=0))


def run():
    counts, ready = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    rows, out = triton_dist.symm_zeros((64,), torch.int32), torch.zeros(64, dtype=torch.int32)
    dispatch_kernel[(1,)](counts, rows, ready, out, EARLY=False, COUNT=64)  # wrong: False -> True
