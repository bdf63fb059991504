"""A product over a masked tile needs zeros where the tile ends."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD112", "tl.store(out"


@triton_dist.jit
def product_kernel(a, b, out, depth, TILE: tl.constexpr):
    row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    left = tl.load(a + row * depth + column, mask=column < depth, other=0)  # wrong: , other=0) -> )
    right = tl.load(b + row * TILE + column, mask=row < depth, other=0)
    tl.store(out + row * TILE + column, tl.dot(left, right))


def run():
    product_kernel[(1,)](torch.ones(16, 10), torch.ones(10, 16), torch.zeros(16, 16), 10, TILE=16)
