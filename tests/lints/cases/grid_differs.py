"""Who waits for the programs of a peer waits for as many as the peer has launched."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD117", "dl.wait(ready"


@triton_dist.jit
def push_kernel(ready, senders):
    after = (dl.rank() + 1) % dl.num_ranks()
    dl.notify(ready, after, signal=1, sig_op="add", comm_scope="intra_node")
    expected = senders  # wrong: senders -> tl.num_programs(0)
    if tl.program_id(0) == 0:
        dl.wait(ready, 1, "sys", "acquire", waitValue=expected, cmp="ge")


def run():
    rank, size = triton_dist.rank(), triton_dist.world_size()
    before = 2 + (rank + size - 1) % size
    push_kernel[(2 + rank,)](triton_dist.symm_zeros((1,), torch.int32), before)
