"""Which branch is taken must not depend on an element that was not loaded."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD112", "if state == 1"


@triton_dist.jit
def branch_kernel(states, out, count):
    program = tl.program_id(0)
    state = tl.load(states + program, mask=program < count, other=0)  # wrong: , other=0) -> )
    if state == 1:
        tl.store(out + program, 1)


def run():
    branch_kernel[(4,)](torch.ones(3, dtype=torch.int32), torch.zeros(4, dtype=torch.int32), 3)
