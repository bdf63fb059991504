"""Each round adds one; who waits for equality misses the count if the next round comes first."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD108", "dl.notify(count"


@triton_dist.jit
def rounds_kernel(count):
    size = dl.num_ranks()
    after = (dl.rank() + 1) % size
    for number in range(1, 4):
        dl.notify(count, after, signal=1, sig_op="add", comm_scope="intra_node")
        dl.wait(count, 1, "sys", "acquire", waitValue=number, cmp="ge")  # wrong: cmp="ge" -> cmp="eq"


def run():
    rounds_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32))
