"""Each call counts the arrivals of all ranks; the count that a call waits for has to grow with the number of the call."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD109", "dl.wait(count"


@triton_dist.jit
def call_kernel(count, call):
    size = dl.num_ranks()
    for peer in range(size):
        dl.notify(count, peer, signal=1, sig_op="add", comm_scope="intra_node")
    dl.wait(count, 1, "sys", "acquire", waitValue=call * size, cmp="ge")  # wrong: call * size -> size


def run():
    count = triton_dist.symm_zeros((1,), torch.int32)
    for call in range(1, 4):
        call_kernel[(1,)](count, call)
