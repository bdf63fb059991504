"""Faults of compilers that blocks meet, measured. One of ptxas 12.8 (Triton 3.6 and 3.7 have it): both halves of one product of 64 bits.

With both halves wanted and registers scarce, ptxas 12.8.93 computes ``al * bh + ah * bl`` by ``IMAD.HI.U32``, which gives its upper 32
bits, where the lower ones are to be added: the upper half of ``mad.lo.u64`` becomes ``hi(al * bl + c) + hi(al * bh + ah * bl)``. ptxas
12.9.86 does it by ``IMAD.WIDE.U32`` and is right. Kernels with only one of the halves are right with both.

One of Triton 3.6 and 3.7: a block that is not pure, on a tile whose result is stored in another layout than the block's, runs once in each.
"""

from __future__ import annotations

import numpy as np
from triton.backends.nvidia.compiler import get_ptxas

from tests.gpu.programs import Program
from tests.gpu.ptx_cases import Case, program

_LOWER = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def products() -> Program:
    """The kernel in which ptxas 12.8.93 gets three of four elements of the first output wrong."""
    kinds = ("u64", "u64", "u64")
    return program("compiler", kinds, [Case(f"{name}.u64 $0, $1, $2, $3;", ("u64",), kinds) for name in ("mad.lo", "mad.hi", "sad")])


def faulty(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What the fault makes of ``mad.lo.u64``, for arrays of uint64."""
    with np.errstate(over="ignore"):
        low = (a & _LOWER) * (b & _LOWER) + c
        crossed = (a & _LOWER) * (b >> _HALF) + (a >> _HALF) * (b & _LOWER)
        return (low & _LOWER) | ((low >> _HALF) + (crossed >> _HALF) & _LOWER) << _HALF


def verdict(simulator: dict[str, np.ndarray], gpu: dict[str, np.ndarray], inputs: dict[str, np.ndarray]) -> tuple[str, bool]:
    """What is seen, in words, and whether it is either right or that fault and nothing else."""
    name = next(iter(simulator))
    expected, found = (arrays[name].view(np.uint64) for arrays in (simulator, gpu))
    fault = faulty(*(array.view(np.uint64) for array in inputs.values()))
    right = found == expected
    known = ~right & (found == fault)
    others = all((gpu[one] == simulator[one]).all() for one in simulator if one != name)
    text = f"mad.lo.u64 beside mad.hi.u64: of {found.size} {int(right.sum())} right, {int(known.sum())} with the fault of ptxas 12.8"
    left = int((~right & ~known).sum())
    return text + (f", {left} WRONG OTHERWISE" if left else "") + ("" if others else "; another output WRONG"), others and not left


def twice() -> Program:
    """A block that counts its runs, element by element, and whose result is stored in another layout."""
    text = "red.global.add.u32 [$1], 1; mov.u32 $0, %tid.x;"
    source = (
        "@triton.jit\ndef kernel(words, out):\n    i = tl.arange(0, 512)\n"
        f"    seen = tl.inline_asm_elementwise({text!r}, '=r,l', [words + i], dtype=tl.int32, is_pure=False, pack=1)\n"
        "    tl.store(out + i, seen)\n"
    )
    return Program("twice", source, {}, {"words": np.zeros(512, np.int32), "out": np.zeros(512, np.int32)})


def ptxas_version(capability: int) -> str:
    """Of the assembler that Triton takes."""
    return str(get_ptxas(capability).version)
