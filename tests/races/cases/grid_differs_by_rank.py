"""Ranks launch grids of different sizes; who counts arrivals counts the programs of the sender, not its own."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def push_kernel(inbox, ready, senders, out, COUNT: tl.constexpr):
    program = tl.program_id(0)
    offset, after = tl.arange(0, COUNT), (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(inbox, after) + program * COUNT + offset, offset)
    dl.notify(ready, after, signal=1, sig_op="add", comm_scope="intra_node")
    expected = senders  # wrong: senders -> tl.num_programs(0)
    if program == 0:
        dl.wait(ready, 1, "sys", "acquire", waitValue=expected, cmp="ge")
        for other in range(senders):
            tl.store(out + other * COUNT + offset, tl.load(inbox + other * COUNT + offset))


def run():
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, ready = triton_dist.symm_zeros((4 * 64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    programs = [2 if peer % 2 else 3 for peer in range(size)]
    before = programs[(rank + size - 1) % size]
    push_kernel[(programs[rank],)](inbox, ready, before, torch.zeros(4 * 64, dtype=torch.int32), COUNT=64)
