"""A loop that waits for each of its blocks asks for no pipeline, since it gets none."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD114", "dl.wait(ready"


@triton_dist.jit
def sum_kernel(inbox, ready, out, BLOCKS: tl.constexpr, COUNT: tl.constexpr):
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    for block in range(BLOCKS):
        tl.store(dl.symm_at(inbox, after) + block * COUNT + offset, offset)
        dl.notify(ready + block, after, signal=1, sig_op="set", comm_scope="intra_node")
    total = tl.zeros((COUNT,), tl.int32)
    for block in tl.range(0, BLOCKS, num_stages=1):  # wrong: num_stages=1 -> num_stages=3
        dl.wait(ready + block, 1, "sys", "acquire", waitValue=1)
        total += tl.load(inbox + block * COUNT + offset)
    tl.store(out + offset, total)


def run():
    inbox, ready = triton_dist.symm_zeros((4 * 64,), torch.int32), triton_dist.symm_zeros((4,), torch.int32)
    sum_kernel[(1,)](inbox, ready, torch.zeros(64, dtype=torch.int32), BLOCKS=4, COUNT=64)
