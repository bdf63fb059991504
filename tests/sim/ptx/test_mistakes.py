"""Blocks whose operands may lie in other registers than it seems: which are named, and that the compiler does give such registers."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.sim.ptx.block import translate
from triton_dist.sim.ptx.mistakes import find_mistakes


def codes(text: str, constraints: str, repeated: bool = True) -> list[str]:
    return [mistake.code for mistake in find_mistakes(translate(text, constraints), repeated)]


@pytest.mark.parametrize(
    ("text", "constraints"),
    [
        ("{ .reg .b32 %r1; mov.b32 %r1, 1; add.u32 $0, $1, %r1; }", "=r,r"),
        ("{ .reg .b32 %r<2>; mov.b32 %r0, $1; mov.b32 $0, %r0; }", "=r,r"),
        ("{ .reg .b64 %rd7; mov.b64 %rd7, $1; mov.b64 $0, %rd7; }", "=l,l"),
        ("{ .reg .b16 %rs1; mov.b16 %rs1, $1; mov.b16 $0, %rs1; }", "=h,h"),
        ("{ .reg .b32 %r3; { .reg .b32 %x; mov.b32 $0, 1; } }", "=f"),
    ],
)
def test_names_of_the_compiler(text, constraints):
    assert codes(text, constraints) == ["TD119"]


@pytest.mark.parametrize(
    ("text", "constraints"),
    [
        ("{ .reg .b32 %r0; mov.b32 %r0, $1; mov.b32 $0, %r0; }", "=r,r"),
        ("{ .reg .b32 %r<1>; mov.b32 %r0, $1; mov.b32 $0, %r0; }", "=r,r"),
        ("{ .reg .b32 %r1; cvt.u32.u64 %r1, $1; cvt.u64.u32 $0, %r1; }", "=l,l"),
        ("{ .reg .pred %p1; setp.eq.u32 %p1, $1, 0; selp.u32 $0, 1, 2, %p1; }", "=r,r"),
        ("{ .reg .b32 %tmp1, %r1a; mov.b32 %tmp1, $1; mov.b32 $0, %tmp1; }", "=r,r"),
        ("{ { .reg .b32 %r1; mov.b32 %r1, 3; } mov.b32 $0, $1; }", "=r,r"),
    ],
)
def test_names_that_are_not(text, constraints):
    assert codes(text, constraints) == []


@pytest.mark.parametrize(
    ("text", "constraints"),
    [
        ("add.u32 $0, $2, $3; mul.lo.u32 $1, $2, $3;", "=r,=r,r,r"),
        ("mov.u32 $0, 0; add.u32 $0, $0, $1;", "=r,f"),
        ("ld.global.u64 $0, [$1]; st.global.u64 [$1], 0;", "=l,l"),
        ("again: ld.global.u64 $0, [$1]; { .reg .pred %q; setp.eq.u64 %q, $0, 0; @%q bra again; }", "=l,l"),
        ("{ .reg .pred %q; setp.eq.u32 %q, $1, 0; @%q mov.u32 $0, 7; mov.u32 $0, $1; }", "=r,r"),
        ("ld.global.v2.u64 {$0, $1}, [$2]; atom.global.add.u64 $0, [$2], 1;", "=l,=l,l"),
    ],
)
def test_operands_read_late(text, constraints):
    assert codes(text, constraints) == ["TD120"]
    assert codes(text, constraints, repeated=False) == []
    assert codes(text, re.sub("=", "=&", constraints)) == []


@pytest.mark.parametrize(
    ("text", "constraints"),
    [
        ("mul.hi.u32 $0, $2, $3; mov.u32 $1, 0;", "=r,=r,r,r"),
        ("add.u32 $0, $1, $1;", "=r,r"),
        ("mov.u32 $0, 0; add.u32 $0, $0, $1;", "=r,0"),
        ("mov.u32 $0, 0; st.global.u32 [$1], $0;", "=r,l"),
        ("{ .reg .pred %q; setp.eq.u32 %q, $1, 0; @%q mov.u32 $0, 7; @!%q mov.u32 $0, $1; }", "=r,r"),
        ("st.global.u64 [$1], $2; mov.u64 $0, 0;", "=l,l,l"),
        ("bra over; back: mov.u32 $0, 1; ret; over: add.u32 $0, $1, 1; bra back;", "=r,r"),
    ],
)
def test_operands_read_in_time(text, constraints):
    assert codes(text, constraints) == []


@triton.jit
def repeated_kernel(words, count, CONSTRAINTS: tl.constexpr, TEXT: tl.constexpr):
    a, b = tl.load(words), tl.load(words + 1)
    for _ in range(count):
        a, b = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [a, b], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
    tl.store(words, a)
    tl.store(words + 1, b)


def assembly(constraints: str, text: str) -> str:
    constants = {"CONSTRAINTS": constraints, "TEXT": text}
    types = {"words": "*i32", "count": "i32", "CONSTRAINTS": "constexpr", "TEXT": "constexpr"}
    ptx = triton.compile(ASTSource(repeated_kernel, types, constants), target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    return next(line for line in ptx.splitlines() if "mul.lo.u32" in line)


def test_the_compiler_shares_registers_in_a_loop():
    """Why TD120 is there: if this fails, the compiler has become careful."""
    text = "add.u32 $0, $2, $3; mul.lo.u32 $1, $2, $3;"
    shared = re.findall(r"%r\d+", assembly("=r,=r,r,r", text))
    assert shared[0] in shared[4:]
    apart = re.findall(r"%r\d+", assembly("=&r,=r,r,r", text))
    assert apart[0] not in apart[4:]


def test_the_compiler_uses_names_of_the_block():
    """Why TD119 is there."""
    line = assembly("=&r,=&r,r,r", "{ .reg .b32 %r<9>; mov.u32 %r1, $2; mul.lo.u32 $0, %r1, $3; mov.u32 $1, %r1; }")
    declared = {f"%r{number}" for number in range(9)}
    assert set(re.findall(r"%r\d+", line.partition(">;")[2].replace("%r1,", ""))) & declared
