"""The host looks at a tensor that another stream than the current one still writes."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(x", "its host, torch.Tensor.tolist")


@triton_dist.jit
def fill_kernel(x, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(x + offset, offset)


def run():
    side = triton_dist.Stream()
    x = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    side.wait_stream(triton_dist.current_stream())
    with triton_dist.stream(side):
        fill_kernel[(1,)](x, COUNT=64)
    side.synchronize()  # wrong: pass
    return x.tolist()
