"""A load of what a wait tells of depends on the token of that wait."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.sim.check import LintCheck

CODE, LINE, CHECK = "TD113", "tl.load(inbox", LintCheck(tokens=True)


@triton_dist.jit
def exchange_kernel(inbox, ready, own, out, COUNT: tl.constexpr):
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, after) + offset, offset)
    dl.notify(ready, after, signal=1, sig_op="set", comm_scope="intra_node")
    token = dl.wait(ready, 1, "sys", "acquire", waitValue=1)
    inbox = dl.consume_token(inbox, token)  # wrong: pass
    tl.store(out + offset, tl.load(inbox + offset) + tl.load(own + offset))


def run():
    inbox, ready = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    own, out = torch.ones(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    exchange_kernel[(1,)](inbox, ready, own, out, COUNT=64)
