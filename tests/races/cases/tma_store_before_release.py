"""A tile is stored by TMA, and the release of a stock atomic behind it does not wait until it has arrived."""

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_dist
import triton_dist.language as dl

TRITON_BEFORE = (3, 9)
RACING = ("desc.store(", "desc.load(")


@triton_dist.jit
def swap_kernel(desc, flags, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    program, other = tl.program_id(0), 1 - tl.program_id(0)
    desc.store([program * ROWS, 0], tl.zeros((ROWS, COLUMNS), tl.float32) + program)
    dl.fence_gpu()  # wrong: pass
    tl.debug_barrier()
    tl.atomic_xchg(flags + program, 1, sem="release", scope="gpu")
    dl.wait(flags + other, 1, "gpu", "acquire", waitValue=1)
    tile = desc.load([other * ROWS, 0])
    offset = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + program * ROWS * COLUMNS + offset, tile)


def run():
    x, out = torch.zeros(32, 32), torch.zeros(32, 32)
    flags = triton_dist.symm_zeros((2,), torch.int32)
    swap_kernel[(2,)](TensorDescriptor.from_tensor(x, [16, 32]), flags, out, ROWS=16, COLUMNS=32)
