"""Every program of every rank arrives at the barrier, so the count is ranks times programs."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def exchange_kernel(inbox, arrived, out, COUNT: tl.constexpr):
    size, program, programs = dl.num_ranks(), tl.program_id(0), tl.num_programs(0)
    offset, after = tl.arange(0, COUNT), (dl.rank() + 1) % size
    tl.store(dl.symm_at(inbox, after) + program * COUNT + offset, offset)
    for peer in range(size):
        dl.notify(arrived, peer, signal=1, sig_op="add", comm_scope="intra_node")
    total = size * programs  # wrong: size * programs -> size
    dl.wait(arrived, 1, "sys", "acquire", waitValue=total, cmp="ge")
    other = (program + 1) % programs
    tl.store(out + other * COUNT + offset, tl.load(inbox + other * COUNT + offset))


def run():
    inbox, arrived = triton_dist.symm_zeros((4 * 64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    exchange_kernel[(4,)](inbox, arrived, torch.zeros(4 * 64, dtype=torch.int32), COUNT=64)
