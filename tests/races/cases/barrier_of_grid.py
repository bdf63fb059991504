"""A barrier of all programs counts one arrival for each; it is over when all have come, not when the first has."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(part", "tl.load(part")


@triton_dist.jit
def two_phases_kernel(part, arrived, out, COUNT: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    offset = tl.arange(0, COUNT)
    tl.store(part + program * COUNT + offset, offset + program)
    dl.notify(arrived, dl.rank(), signal=1, sig_op="add", comm_scope="gpu")
    dl.wait(arrived, 1, "gpu", "acquire", waitValue=programs, cmp="ge")  # wrong: waitValue=programs -> waitValue=1
    tl.store(out + program * COUNT + offset, tl.load(part + (program + 1) % programs * COUNT + offset))


def run():
    part, out = torch.zeros(4 * 64, dtype=torch.int32), torch.zeros(4 * 64, dtype=torch.int32)
    arrived = triton_dist.symm_zeros((1,), torch.int32)
    two_phases_kernel[(4,)](part, arrived, out, COUNT=64)
