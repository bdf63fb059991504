"""Python functions in place of blocks: for instructions that the simulator does not run."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.errors import InlineAssemblyError, InvalidArgumentError, UnsupportedInstructionError

VIDEO = "vadd2.u32.u32.u32.sat $0, $1, $2, 0;"
PAIR = "vabsdiff4.u32.u32.u32 $0, $2, $2, 0; mov.b32 $1, $2;"
ADD = "red.async.relaxed.cluster.global.add.u32 [$1], $2; mov.u32 $0, 0;"


@triton.jit
def video_kernel(out, x, TEXT: tl.constexpr, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), tl.inline_asm_elementwise(TEXT, "=r,r,r", [value, 3], dtype=tl.int32, is_pure=True, pack=1))


def test_a_twin_runs_in_place_of_a_block():
    x, out = torch.arange(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    with pytest.raises(UnsupportedInstructionError, match=r"test_twins\.py:\d+: .*'vadd2.*inline_asm_twin"):
        video_kernel[(1,)](out, x, VIDEO, 8)

    @triton_dist.inline_asm_twin(f"  {VIDEO}\n")
    def add(a, b):
        assert a.dtype == "int32"
        return a * 10 + b

    video_kernel[(1,)](out, x, VIDEO, 8)
    assert out.tolist() == [10 * value + 3 for value in range(8)]


@triton.jit
def pair_kernel(out, x):
    first, second = tl.inline_asm_elementwise(PAIR_TEXT, "=r,=r,r", [tl.load(x)], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
    tl.store(out, first + second)


PAIR_TEXT = tl.constexpr(PAIR)


def test_several_results():
    @triton_dist.inline_asm_twin(PAIR)
    def pair(a):
        return a + 1, 0xFFFFFFFF

    out = torch.zeros(1, dtype=torch.int32)
    pair_kernel[(1,)](out, torch.tensor([7], dtype=torch.int32))
    assert out.item() == 8 - 1

    @triton_dist.inline_asm_twin(PAIR)
    def too_few(a):
        return a

    with pytest.raises(InvalidArgumentError, match="has 2 results"):
        pair_kernel[(1,)](out, torch.tensor([7], dtype=torch.int32))


@triton.jit
def add_kernel(counters, TEXT: tl.constexpr, BLOCK: tl.constexpr):
    tl.inline_asm_elementwise(TEXT, "=r,l,r", [counters + tl.arange(0, BLOCK), 2], dtype=tl.int32, is_pure=False, pack=1)


def test_each_thread_calls_a_twin_with_pointers():
    @triton_dist.inline_asm_twin(ADD)
    def add(place, value):
        place[0] += value
        return 0

    counters = torch.zeros(16, dtype=torch.int32)
    add_kernel[(1,)](counters, ADD, 16, num_warps=1)
    assert (counters == 4).all()


def test_bad_twins():
    with pytest.raises(InvalidArgumentError, match="give the text"):
        triton_dist.inline_asm_twin("  ")
    with pytest.raises(InvalidArgumentError, match="decorates a function"):
        triton_dist.inline_asm_twin("nop;")(3)


WRONG_TEXTS = {
    "mov.u32 $0, $1": "every instruction ends with one",
    "mov.u32 $0, %r7;": "neither declared",
    "mov.u32 $0, $5;": "no operand",
    "mov.u64 $0, $1;": "32 bits, but",
    "bra nowhere;": "no label 'nowhere'",
    "{ mov.u32 $0, $1;": "never closed",
    "mov.u32 $0, $1; }": "closes no scope",
    "add.u32 $0, $1;": "takes 3 operands, not 2",
    "{ .reg .u32 %a; .reg .u32 %a; }": "declared twice",
    "{ .reg .u31 %a; }": "no type of a register",
    "{ .reg .v2 .u32 %a; mov.v4.u32 %a, 0; }": "moves 4 registers into 4",
    "{ .reg .v2 .u32 %a; mov.u32 $0, %a.z; }": "neither declared",
    "@$1 mov.u32 $0, $1;": "predicate",
    "ld.acquire.global.u32 $0, [$1];": "needs a scope",
    "ld.global.u32 $0, [$1];": "a global address has 64",
    "x: x: mov.u32 $0, $1;": "second time",
    "setp.lt.b32 $0, $1, 1;": r"\.eq and \.ne only",
    "mov.u32 $0, #1;": "no PTX",
    "cvt.s32.f32 $0, $1;": "needs .rni",
}

OUTSIDE = {
    "wgmma.fence.sync.aligned;": "does not have the instruction 'wgmma'",
    "ld.local.u32 $0, [$1];": r"memory \.local is not simulated",
    "exit;": "leave its kernel",
    "cvt.rs.f16x2.f32 $0, $1, $1, $1;": "stochastic",
    "add.u32.quick $0, $1, $1;": r"does not know \.quick",
    "mov.q32 $0, $1;": "no type",
}


@pytest.mark.parametrize("text", WRONG_TEXTS)
def test_what_no_assembler_takes(text):
    x = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(InlineAssemblyError, match=rf"test_twins\.py:\d+: inline assembly, line 1 of the assembly, .*{WRONG_TEXTS[text]}"):
        video_kernel[(1,)](x, x, text, 8)


@pytest.mark.parametrize("text", OUTSIDE)
def test_what_is_outside_the_subset(text):
    x = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(
        UnsupportedInstructionError, match=rf"test_twins\.py:\d+: inline assembly, line 1 of the assembly, .*{OUTSIDE[text]}"
    ):
        video_kernel[(1,)](x, x, text, 8)


@triton.jit
def constraint_kernel(x, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    value = tl.load(x + tl.arange(0, 8))
    tl.inline_asm_elementwise("mov.u32 $0, 1;", CONSTRAINTS, [value], dtype=tl.int32, is_pure=False, pack=PACK)


@pytest.mark.parametrize(
    "constraints, pack, message",
    [
        ("=r", 1, "not enough for an operand"),
        ("=r,r,r", 1, "1 results and 2 operands"),
        ("r,=r", 1, "results come first"),
        ("=z,r", 1, "none of NVPTX's"),
        ("+r,r", 1, "not taken"),
        ("=r,r", 2, "not enough for a result"),
        ("=r,3", 1, "names no result"),
    ],
)
def test_constraints_that_do_not_fit(constraints, pack, message):
    with pytest.raises(InlineAssemblyError, match=message):
        constraint_kernel[(1,)](torch.zeros(8, dtype=torch.int32), constraints, pack)
