"""The word that a peer waits for is set by an ordinary store."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("dl.symm_at(flag, after), 1", "dl.wait(")


@triton_dist.jit
def exchange_kernel(inbox, flag, out, COUNT: tl.constexpr):
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, after) + offset, offset + dl.rank())
    tl.debug_barrier()
    tl.atomic_xchg(dl.symm_at(flag, after), 1, sem="release", scope="sys")  # wrong: tl.store(dl.symm_at(flag, after), 1)
    dl.wait(flag, 1, "sys", "acquire", waitValue=1)
    tl.store(out + offset, tl.load(inbox + offset))


def run():
    inbox, flag = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    exchange_kernel[(1,)](inbox, flag, out, COUNT=64)
