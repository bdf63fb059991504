"""One thread signals by a store of its own; notify is a call of the whole block."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD111", "dl.notify(ready"


@triton_dist.jit
def signal_kernel(ready):
    after = (dl.rank() + 1) % dl.num_ranks()
    there = dl.symm_at(ready, after)
    if dl.tid(0) == 0:
        dl.st(there, 1, scope="sys", semantic="release")  # wrong: dl.notify(ready, after)
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)


def run():
    signal_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32))
