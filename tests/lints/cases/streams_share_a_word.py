"""Two streams exchange signals at the same time; each needs words of its own."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD110", "dl.wait(ready"


@triton_dist.jit
def exchange_kernel(ready, number):
    after = (dl.rank() + 1) % dl.num_ranks()
    dl.notify(ready, after, signal=1, sig_op="add", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=1, cmp="ge")


def run():
    ready, side = triton_dist.symm_zeros((2,), torch.int32), triton_dist.Stream()
    exchange_kernel[(1,)](ready, 0)
    with triton_dist.stream(side):
        exchange_kernel[(1,)](ready[1:], 1)  # wrong: ready[1:] -> ready
