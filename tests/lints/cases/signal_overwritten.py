"""A producer sets the number of each round; the consumer of a round has to have seen it before the next one is set."""

import torch

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD107", "dl.notify(ready"


@triton_dist.jit
def rounds_kernel(ready, done):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    for number in range(1, 4):
        dl.notify(ready, after, signal=number, sig_op="set", comm_scope="intra_node")
        dl.wait(ready, 1, "sys", "acquire", waitValue=number)
        dl.notify(done, before, signal=number, sig_op="set", comm_scope="intra_node")
        dl.wait(done, 1, "sys", "acquire", waitValue=number, cmp="ge")  # wrong: pass


def run():
    ready, done = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    rounds_kernel[(1,)](ready, done)
