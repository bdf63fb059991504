"""A sender may be as many steps ahead of its receiver as there are slots."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(slots, after)", "tl.load(slots")


@triton_dist.jit
def ring_kernel(slots, ready, read, out, SLOTS: tl.constexpr, AHEAD: tl.constexpr, COUNT: tl.constexpr):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    offset = tl.arange(0, COUNT)
    for step in range(5):
        place = step % SLOTS * COUNT + offset
        dl.wait(read, 1, "sys", "acquire", waitValue=step - AHEAD + 1, cmp="ge")
        tl.store(dl.symm_at(slots, after) + place, offset + step)
        dl.notify(ready, after, signal=step + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(ready, 1, "sys", "acquire", waitValue=step + 1, cmp="ge")
        tl.store(out + offset, tl.load(slots + place))
        dl.notify(read, before, signal=step + 1, sig_op="set", comm_scope="intra_node")


def run():
    slots = triton_dist.symm_zeros((2 * 64,), torch.int32)
    ready, read = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    ring_kernel[(1,)](slots, ready, read, out, SLOTS=2, AHEAD=2, COUNT=64)  # wrong: SLOTS=2 -> SLOTS=1
