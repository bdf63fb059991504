"""Each call sets a flag and waits for it; who does not reset it behind the wait does not wait in the second call."""

import torch

import triton_dist
import triton_dist.language as dl
from triton_dist.ops.collectives.barrier import barrier

CODE, LINE = "TD109", "dl.wait(ready"


@triton_dist.jit
def call_kernel(ready):
    after = (dl.rank() + 1) % dl.num_ranks()
    dl.notify(ready, after, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)
    dl.notify(ready, dl.rank(), signal=0, sig_op="set", comm_scope="intra_node")  # wrong: pass


def run():
    ready = triton_dist.symm_zeros((1,), torch.int32)
    for _ in range(3):
        call_kernel[(1,)](ready)
        barrier()
