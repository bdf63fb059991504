"""A consumer gives the slot back when it has read it, not when it has seen that it is full."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(slot, after)", "tl.load(slot")


@triton_dist.jit
def stream_kernel(slot, full, free, out, EARLY: tl.constexpr, COUNT: tl.constexpr):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    offset = tl.arange(0, COUNT)
    for number in range(1, 4):
        dl.wait(free, 1, "sys", "acquire", waitValue=number - 1, cmp="ge")
        tl.store(dl.symm_at(slot, after) + offset, offset + number)
        dl.notify(full, after, signal=number, sig_op="set", comm_scope="intra_node")
        dl.wait(full, 1, "sys", "acquire", waitValue=number, cmp="ge")
        if EARLY:
            dl.notify(free, before, signal=number, sig_op="set", comm_scope="intra_node")
        tl.store(out + offset, tl.load(slot + offset))
        if not EARLY:
            dl.notify(free, before, signal=number, sig_op="set", comm_scope="intra_node")


def run():
    slot = triton_dist.symm_zeros((64,), torch.int32)
    full, free = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    stream_kernel[(1,)](slot, full, free, torch.zeros(64, dtype=torch.int32), EARLY=False, COUNT=64)  # wrong: False -> True
