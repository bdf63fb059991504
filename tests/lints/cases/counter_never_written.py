"""A counter starts at zero; memory that is allocated empty holds anything."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD106", "dl.notify(count"


@triton_dist.jit
def count_kernel(count):
    for peer in range(dl.num_ranks()):
        dl.notify(count, peer, signal=1, sig_op="add", comm_scope="intra_node")
    dl.wait(count, 1, "sys", "acquire", waitValue=dl.num_ranks(), cmp="ge")


def run():
    count = triton_dist.symm_zeros((1,), torch.int32)  # wrong: symm_zeros -> symm_empty
    count_kernel[(1,)](count)
