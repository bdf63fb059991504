"""Programs add to one tile: by atomics, not by a load and a store."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(out + offset", "out + offset")


@triton_dist.jit
def add_kernel(out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.atomic_add(out + offset, offset, sem="relaxed")  # wrong: tl.store(out + offset, tl.load(out + offset) + offset)


def run():
    out = torch.zeros(256, dtype=torch.int32, device=triton_dist.device())
    add_kernel[(4,)](out, COUNT=256)
