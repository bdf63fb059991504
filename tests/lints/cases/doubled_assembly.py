"""A block of inline PTX that adds to words, and whose result nobody stores."""

import torch
import triton.language as tl

import triton_dist

CODE, LINE = "TD121", "[words + i],"
VERSIONS = ("3.6", "3.7")


@triton_dist.jit
def count_kernel(words, out):
    i = tl.arange(0, 512)
    _seen = tl.inline_asm_elementwise(
        "atom.global.add.u32 $0, [$1], 1;",
        "=r,l",
        [words + i],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out + i, i)  # wrong: tl.store(out + i, _seen)


def run():
    count_kernel[(1,)](torch.zeros(512, dtype=torch.int32), torch.zeros(512, dtype=torch.int32))
