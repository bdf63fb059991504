"""One thread releases what its block has stored: a block barrier stands before."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD103", "tl.load(inbox"


@triton_dist.jit
def exchange_kernel(inbox, ready, out, COUNT: tl.constexpr):
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, after) + offset, offset)
    tl.debug_barrier()  # wrong: pass
    tl.atomic_xchg(dl.symm_at(ready, after), 1, sem="release", scope="sys")
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)
    tl.store(out + offset, tl.load(inbox + offset))


def run():
    inbox, ready = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    exchange_kernel[(1,)](inbox, ready, torch.zeros(64, dtype=torch.int32), COUNT=64)
