"""The rank that a kernel is told is not one that it is compiled for."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD116", "def signal_kernel"


@triton_dist.jit(do_not_specialize=["rank"])  # wrong: (do_not_specialize=["rank"]) -> ()
def signal_kernel(ready, rank):
    after = (rank + 1) % dl.num_ranks()
    dl.notify(ready, after, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)


def run():
    signal_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32), triton_dist.rank())
