"""The last program to come to a counter sums what all programs stored; the counter has to acquire and release."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(part", "tl.load(part")


@triton_dist.jit
def sum_kernel(part, finished, out, COUNT: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    offset = tl.arange(0, COUNT)
    tl.store(part + program * COUNT + offset, offset + program)
    tl.debug_barrier()
    come = tl.atomic_add(finished, 1, sem="acq_rel", scope="gpu")  # wrong: come = tl.atomic_add(finished, 1, sem="relaxed", scope="gpu")
    if come == programs - 1:
        total = tl.zeros((COUNT,), tl.int32)
        for other in range(programs):
            total += tl.load(part + other * COUNT + offset)
        tl.store(out + offset, total)


def run():
    part, out = torch.zeros(4 * 64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    sum_kernel[(4,)](part, torch.zeros(1, dtype=torch.int32), out, COUNT=64)
