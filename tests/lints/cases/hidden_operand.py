"""A block of inline PTX has a register whose name is none of the compiler's."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD119", "[x],"


@triton_dist.jit
def double_kernel(values):
    x = tl.load(values)
    x = tl.inline_asm_elementwise(
        "{ .reg .b32 %a; mov.b32 %a, $1; add.u32 $0, %a, $1; }",  # wrong: "{ .reg .b32 %r1; mov.b32 %r1, $1; add.u32 $0, %r1, $1; }",
        "=r,r",
        [x],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(values, x)


def run():
    double_kernel[(1,)](torch.ones(1, dtype=torch.int32))
