"""What the assembler refuses is InlineAssemblyError; what it takes and the simulator has not is UnsupportedInstructionError."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from tests.sim.ptx.assembler import takes
from tests.sim.ptx.test_page import REGISTERS
from triton_dist.errors import InlineAssemblyError, UnsupportedInstructionError
from triton_dist.sim.ptx.block import translate

ILLEGAL = [
    "ret 5;", "bra 5;", "mov.b32 %r0, %r1;;", "; mov.b32 %r0, %r1;", "{ ; }", "mov. b32 %r0, %r1;", "mov . b32 %r0, %r1;",
    "ld.shared ::cta.u32 %r0, [%r1];", "ld.global.u32 %r0, [5];", "st.global.u32 [5], %r0;", "ld.shared.u32 %r0, [16];",
    "ld.u32 %r0, [5+4];", "ld.global.u32 %r0, [%d0-4];", "ld.global.u32 %r0, [%d0+1.0];", "ld.global.u32 %r0, [4+%d0];",
    "ld.global.f16 %h0, [%d0];", "ld.global.bf16 %h0, [%d0];", "st.global.f16 [%d0], %h0;", "ld.shared.v2.f16 {%h0, %h1}, [%r0];",
    "ldu.global.f16 %h0, [%d0];", "mov.u32 %r0, {%h0, %h1};", "mov.u64 %d0, {%r0, %r1};", "mov.f32 %r0, {%h0, %h1};",
    "mov.u32 {%h0, %h1}, %r0;", "mov.u32 %r0, %tid;", "mov.v2.u32 {%r0, %r1}, %tid;", "mov.u32 %r0, %bogus;", "mov.u32 %r0, %tid.q;",
    "add.u32 %r0, %r1, %tid.x;", "mov.u32 %r0, (%r1);", "mov.u32 %r0, 1+%r1;", "L: L: mov.u32 %r0, 5;", ".bogus 5;", ".file 1 \"a.c\"",
    ".maxntid 5;", ".shared .b32 t[];", ".shared .b32 t[2+2];", ".shared .b32 t = 5;", ".reg .b32 r<2+2>;", "mov.u32 %r0, 'a';",
    "add.u16x2 %r0, %r1, 5;",
]  # fmt: skip
LEGAL = [
    "mov .b32 %r0, %r1;", "add.sat .s32 %r0, %r1, 1;", "ld .global .u32 %r0, [ %d0 + 4 ];", "ld.global.u32 %r0, [%d0+-4];",
    "ld.global.u32 %r0, [%d0+4*2];", "ld.global.u32 %r0, [%d0+4-8];", "ld.global.u32 %r0, [%d0+0xffffffffffffffff];",
    "@ ! %p0 mov.u32 %r0, 1;", "mov.v4.u32 {%r0, %r1, %r2, _}, %tid;", ".reg .v4 .b32 t; mov.v4.b32 t, %nctaid; mov.u32 %r0, t.w;",
    "mov.u32 %r0, %cluster_ctaid.x;", "mov.u32 %r0, %nclusterid.z;", "mov.u32 %r0, %tid.w;", "bra $$L; $$L: mov.u32 %r0, 1;",
    "L: { L: mov.u32 %r0, 1; }", "ret.uni;", ".loc 1 2 3\nmov.b32 %r0, %r1;", ".pragma \"nounroll\"; mov.b32 %r0, %r1;",
    ".shared .align 8 .b32 t[4][4]; st.shared.b32 [t+60], %r0;", ".shared .b32 t[4]; mov.u32 %r0, t+8;",
    ".shared .b32 t[4]; mov.u32 %r0, t;",
    ".shared .b32 t; mapa.shared::cluster.u32 %r0, t, 0; getctarank.shared::cluster.u32 %r1, t;",
]  # fmt: skip
ELSEWHERE = [
    "mov.u32 %r0, %envreg0;", "mov.u32 %r0, %envreg31;", "mov.u32 %r0, %pm0;", "mov.u64 %d0, %pm7_64;", "mov.u32 %r0, %dynamic_smem_size;",
    "mov.u32 %r0, %total_smem_size;", "mov.u32 %r0, %aggr_smem_size;", "mov.u32 %r0, %reserved_smem_offset_begin;",
    "mov.u64 %d0, %current_graph_exec;", "mov.pred %p0, %is_explicit_cluster;", ".local .b32 t; st.local.b32 [t], %r0;",
    ".const .u32 t = 3;", ".global .b32 t;", ".param .b32 t;", ".shared .v2 .b32 t;", "mov.u32 %r0, %r1+1;", "exit;", "brkpt;",
    "t: .branchtargets A, B; A: B: mov.b32 %r0, %r1;",
]  # fmt: skip


@pytest.mark.parametrize("text", ILLEGAL)
def test_what_the_assembler_refuses(text, tmp_path):
    assert not takes(f"{{ {REGISTERS} {text} }}", tmp_path)
    with pytest.raises(InlineAssemblyError, match="of the assembly"):
        translate(f"{{ {REGISTERS} {text} }}", "=r")


@pytest.mark.parametrize("text", LEGAL)
def test_what_it_takes(text, tmp_path):
    assert takes(f"{{ {REGISTERS} {text.replace('$$', '$')} }}", tmp_path)
    translate(f"{{ {REGISTERS} {text} }}", "=r")


@pytest.mark.parametrize("text", ELSEWHERE)
def test_what_it_takes_and_the_simulator_has_not(text, tmp_path):
    assert takes(f"{{ {REGISTERS} {text} }}", tmp_path)
    with pytest.raises(UnsupportedInstructionError, match="docs/inline_ptx.md"):
        translate(f"{{ {REGISTERS} {text} }}", "=r")


def test_letters_and_digits_are_those_of_ascii():
    for text in ("mov.u32 $0, \u0665;", "mov.u32 $0, \u00e9;", "mov.u32 \u00e9, 5;", "mov.u32 $\u0660, 5;", "mov.u32 $0, \x01;"):
        with pytest.raises(InlineAssemblyError):
            translate(text, "=r")


@triton.jit
def labelled_kernel(values, results, SIZE: tl.constexpr, TEXT: tl.constexpr, COPIES: tl.constexpr, PURE: tl.constexpr, PACK: tl.constexpr):
    places = tl.arange(0, SIZE)
    value = tl.load(values + places)
    for copy in tl.static_range(COPIES):
        value = tl.inline_asm_elementwise(TEXT, "=r,r", [value + copy], dtype=tl.int32, is_pure=PURE, pack=PACK)
    tl.store(results + places, value)


@triton.jit
def labelled_scalar_kernel(values, results, TEXT: tl.constexpr, COPIES: tl.constexpr):
    value = tl.load(values)
    for copy in tl.static_range(COPIES):
        value = tl.inline_asm_elementwise(TEXT, "=r,r", [value + copy], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(results, value)


def run(kernel, *arguments):
    def main():
        values = torch.arange(1024, dtype=torch.int32)
        kernel[(1,)](values, torch.empty_like(values), *arguments)
        triton_dist.synchronize()

    triton_dist.simulate(main, 1)


OPEN = "bra L; L: mov.b32 $0, $1;"
CLOSED = "{ bra L; L: mov.b32 $0, $1; }"
UNIQUE = "bra L${:uid}; L${:uid}: mov.b32 $0, $1;"


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("size, copies, refused", [(128, 1, ""), (512, 1, "4 copies"), (128, 2, "has the same label"), (32, 1, "")])
def test_labels_outside_of_braces(size, copies, refused, pure):
    if not refused:
        run(labelled_kernel, size, OPEN, copies, pure, 1)
    else:
        with pytest.raises(InlineAssemblyError, match=f"'L' stands outside of braces.*{refused}.*put the block in '{{ }}'"):
            run(labelled_kernel, size, OPEN, copies, pure, 1)
    for text in (CLOSED, UNIQUE):
        run(labelled_kernel, size, text, copies, pure, 1)


def test_labels_of_blocks_of_scalars():
    run(labelled_scalar_kernel, OPEN, 1)
    run(labelled_scalar_kernel, CLOSED, 3)
    with pytest.raises(InlineAssemblyError, match="has the same label"):
        run(labelled_scalar_kernel, OPEN, 2)
