"""The last program resets the counter by which it knows to be the last, or in the next call the first one takes itself for it."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(part", "tl.load(part")


@triton_dist.jit
def split_k_kernel(part, finished, out, COUNT: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    offset = tl.arange(0, COUNT)
    tl.store(part + program * COUNT + offset, offset + program)
    tl.debug_barrier()
    come = tl.atomic_add(finished, 1, sem="acq_rel", scope="gpu")
    if come >= programs - 1:
        total = tl.zeros((COUNT,), tl.int32)
        for other in range(programs):
            total += tl.load(part + other * COUNT + offset)
        tl.store(out + program * COUNT + offset, total)
        tl.store(finished, 0)  # wrong: pass


def run():
    part, out = torch.zeros(4 * 64, dtype=torch.int32), torch.zeros(4 * 64, dtype=torch.int32)
    finished = torch.zeros(1, dtype=torch.int32)
    for _ in range(2):
        split_k_kernel[(4,)](part, finished, out, COUNT=64)
