"""A block of inline PTX that writes a result before it has read all operands says so."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD120", "[a, b],"


@triton_dist.jit
def fibonacci_kernel(out, count):
    a, b = 1, 1
    for _ in range(count):
        a, b = tl.inline_asm_elementwise(
            "mov.b32 $0, $3; add.u32 $1, $2, $3;",
            "=&r,=r,r,r",  # wrong: =&r -> =r
            [a, b],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    tl.store(out, b)


def run():
    fibonacci_kernel[(1,)](torch.zeros(1, dtype=torch.int32), 10)
