"""A consumer resets the word that it has waited for; the producer sets it anew only when it knows of that."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(ready, 0)", "dl.notify(ready")


@triton_dist.jit
def rounds_kernel(inbox, ready, done, out, COUNT: tl.constexpr):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    offset = tl.arange(0, COUNT)
    for number in range(3):
        tl.store(dl.symm_at(inbox, after) + number * COUNT + offset, offset + number)
        dl.notify(ready, after, signal=1, sig_op="set", comm_scope="intra_node")
        dl.wait(ready, 1, "sys", "acquire", waitValue=1)
        tl.store(out + number * COUNT + offset, tl.load(inbox + number * COUNT + offset))
        tl.store(ready, 0)
        dl.notify(done, before, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(done, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")  # wrong: number + 1 -> number


def run():
    inbox = triton_dist.symm_zeros((3 * 64,), torch.int32)
    ready, done = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(3 * 64, dtype=torch.int32, device=triton_dist.device())
    rounds_kernel[(1,)](inbox, ready, done, out, COUNT=64)
