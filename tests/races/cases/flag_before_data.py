"""A signal is set when the first part of the data is stored, not the last one."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def exchange_kernel(inbox, flag, out, COUNT: tl.constexpr):
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    for part in range(2):
        tl.store(dl.symm_at(inbox, after) + part * COUNT + offset, offset)
        if part == 1:  # wrong: if part == 0:
            dl.notify(flag, after, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(flag, 1, "sys", "acquire", waitValue=1)
    tl.store(out + offset, tl.load(inbox + COUNT + offset))


def run():
    inbox, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    exchange_kernel[(1,)](inbox, flag, out, COUNT=64)
