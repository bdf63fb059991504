"""Only program 0 waits for the peer; the others learn of it by a barrier of the grid (as in ROCm/rocm-systems pull request 8936)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def reduce_kernel(inbox, ready, gate, out, COUNT: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    offset, after = program * COUNT + tl.arange(0, COUNT), (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(inbox, after) + offset, offset)
    dl.notify(ready, after, signal=1, sig_op="add", comm_scope="intra_node")
    if program == 0:
        dl.wait(ready, 1, "sys", "acquire", waitValue=programs, cmp="ge")
        dl.notify(gate, dl.rank(), signal=1, sig_op="set", comm_scope="gpu")
    dl.wait(gate, 1, "gpu", "acquire", waitValue=1, cmp="ge")  # wrong: pass
    tl.store(out + offset, tl.load(inbox + offset) * 2)


def run():
    inbox = triton_dist.symm_zeros((4 * 64,), torch.int32)
    ready, gate = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    reduce_kernel[(4,)](inbox, ready, gate, torch.zeros(4 * 64, dtype=torch.int32), COUNT=64)
