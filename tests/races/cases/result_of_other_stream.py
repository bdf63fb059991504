"""What one stream computes is used by another one that does not wait for it."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(x", "torch.mul")


@triton_dist.jit
def fill_kernel(x, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(x + offset, offset)


def run():
    main, side = triton_dist.current_stream(), triton_dist.Stream()
    x = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    side.wait_stream(main)
    with triton_dist.stream(side):
        fill_kernel[(1,)](x, COUNT=64)
    main.wait_stream(side)  # wrong: pass
    return x * 2
