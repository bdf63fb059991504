"""Which instruction, semantic, scope and width each primitive becomes."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from compile_targets import AMD, NVIDIA

import triton_dist.language as dl
from triton_dist.primitives.table import PRIMITIVES
from triton_dist.runtime import context_layout

WIDTHS = {"i8": 8, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64, "bf16": 16, "fp16": 16, "fp32": 32, "fp64": 64}


@triton.jit
def load_store_kernel(ptr, out, SCOPE: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    value = dl.ld(ptr, SCOPE, LOAD)
    dl.st(out, value, SCOPE, STORE)


@triton.jit
def atomic_kernel(ptr, out, SCOPE: tl.constexpr, SEMANTIC: tl.constexpr):
    old = dl.atomic_add(ptr, 3, SCOPE, SEMANTIC)
    other = dl.atomic_cas(ptr, old, 5, SCOPE, SEMANTIC)
    dl.st(out, other)


@triton.jit
def wait_kernel(words, value, out, SCOPE: tl.constexpr, SEMANTIC: tl.constexpr, CMP: tl.constexpr, COUNT: tl.constexpr):
    dl.wait(words, COUNT, SCOPE, SEMANTIC, waitValue=value, cmp=CMP)
    tl.store(out, 1)


@triton.jit
def notify_kernel(word, value, OPERATION: tl.constexpr, SCOPE: tl.constexpr):
    dl.notify(word, 1, signal=value, sig_op=OPERATION, comm_scope=SCOPE)


@triton.jit
def identity_kernel(out):
    tl.store(out, dl.rank() * dl.num_ranks())


@triton.jit
def thread_kernel(out):
    dl.fence_cta()
    dl.fence_gpu()
    dl.fence_sys()
    dl.__syncthreads()
    dl.st(out, dl.tid(0) + dl.tid(1) + dl.num_threads() * 1000 + dl.num_warps() * 100 + dl.threads_per_warp())


def assembly(texts):
    """The instructions, without comments and debug information."""
    text = texts["ptx"] if "ptx" in texts else texts["amdgcn"]
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith((".loc", ";", ".b8", "//")))


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
@pytest.mark.parametrize("load, store", [("relaxed", "relaxed"), ("acquire", "release")])
def test_ld_and_st(compiled, arch, scope, load, store):
    text = assembly(compiled(load_store_kernel, arch, {"ptr": "*i32", "out": "*i32"}, {"SCOPE": scope, "LOAD": load, "STORE": store}))
    assert f"ld.{load}.{scope}.global.b32" in text
    assert f"st.{store}.{scope}.global.b32" in text
    with_tma = arch >= 90 and load == "acquire"
    assert ("fence.proxy.async;" in text) == with_tma
    assert ("cp.async.bulk.wait_group 0;" in text) == with_tma


@pytest.mark.parametrize("dtype", WIDTHS)
def test_ld_and_st_widths(compiled, dtype):
    constants = {"SCOPE": "gpu", "LOAD": "relaxed", "STORE": "relaxed"}
    text = assembly(compiled(load_store_kernel, 90, {"ptr": f"*{dtype}", "out": f"*{dtype}"}, constants))
    assert f"ld.relaxed.gpu.global.b{WIDTHS[dtype]} " in text
    assert f"st.relaxed.gpu.global.b{WIDTHS[dtype]} " in text


@pytest.mark.parametrize("dtype, bits", [("i32", 32), ("u32", 32), ("i64", 64), ("u64", 64)])
@pytest.mark.parametrize("scope, semantic", [("cta", "relaxed"), ("gpu", "acq_rel"), ("sys", "acquire"), ("sys", "release")])
def test_atomics(compiled, dtype, bits, scope, semantic):
    types = {"ptr": f"*{dtype}", "out": f"*{dtype}"}
    text = assembly(compiled(atomic_kernel, 90, types, {"SCOPE": scope, "SEMANTIC": semantic}))
    assert f"atom.{semantic}.{scope}.global.add.u{bits} " in text
    assert f"atom.{semantic}.{scope}.global.cas.b{bits} " in text


AGAIN = {
    "eq": "setp.ne.b{0}",
    "ne": "setp.eq.b{0}",
    "gt": "setp.le.s{0}",
    "ge": "setp.lt.s{0}",
    "lt": "setp.ge.s{0}",
    "le": "setp.gt.s{0}",
}


@pytest.mark.parametrize("cmp", AGAIN)
@pytest.mark.parametrize("dtype, bits", [("i32", 32), ("u64", 64)])
@pytest.mark.parametrize("count", [1, 40])
def test_wait_compares(compiled, cmp, dtype, bits, count):
    constants = {"SCOPE": "sys", "SEMANTIC": "acquire", "CMP": cmp, "COUNT": count}
    text = assembly(compiled(wait_kernel, 90, {"words": f"*{dtype}", "value": dtype, "out": "*i32"}, constants))
    poll = text[text.index("\nPOLL") : text.index("bra POLL")]
    assert f"ld.acquire.sys.global.b{bits}" in poll
    assert AGAIN[cmp].format(bits) in poll
    if cmp not in ("eq", "ne"):
        assert f"sub.s{bits}" in poll, "ordered compares look at the difference, which survives wrap-around"


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("scope, semantic", [("gpu", "acquire"), ("sys", "acquire"), ("cta", "relaxed")])
@pytest.mark.parametrize("count", [1, 2, 33])
def test_wait(compiled, arch, scope, semantic, count):
    constants = {"SCOPE": scope, "SEMANTIC": semantic, "CMP": "eq", "COUNT": count}
    text = assembly(compiled(wait_kernel, arch, {"words": "*i32", "value": "i32", "out": "*i32"}, constants))
    assert text.count(f"ld.{semantic}.{scope}.global.b32") == 1
    wait_then_barrier = text[text.index("bra POLL") :]
    assert "bar.sync" in wait_then_barrier
    before_barrier = wait_then_barrier[: wait_then_barrier.index("bar.sync")]
    assert ("fence.proxy.async" in before_barrier) == (arch >= 90 and semantic == "acquire")
    assert "%tid.x" not in text[: text.index("bra POLL")], "no thread may be left out of polling"
    if count > 1:
        assert "mov.u32 %index, %laneid" in text
        assert "add.s32 %index, %index, 32" in text
        assert "bar.warp.sync" in before_barrier


@pytest.mark.parametrize(
    "arch, dtype, bits", [(80, "i64", 64), (90, "i32", 32), (90, "u32", 32), (90, "i64", 64), (90, "u64", 64), (100, "i64", 64)]
)
@pytest.mark.parametrize("operation, instruction", [("set", "exch.b"), ("add", "add.u")])
@pytest.mark.parametrize("comm_scope, scope", [("gpu", "gpu"), ("intra_node", "sys"), ("inter_node", "sys")])
def test_notify(compiled, arch, dtype, bits, operation, instruction, comm_scope, scope):
    constants = {"OPERATION": operation, "SCOPE": comm_scope}
    text = assembly(compiled(notify_kernel, arch, {"word": f"*{dtype}", "value": dtype}, constants))
    found = [line for line in text.splitlines() if re.search(r"(atom|red)\.global", line)]
    assert len(found) == 1
    assert "release" in found[0]
    assert f".{instruction}{bits}" in found[0]
    assert f".{scope}." in found[0]
    assert found[0].lstrip().startswith("@"), "one thread writes"
    before = text[: text.index(found[0])]
    assert "bar.sync" in before
    assert ("shr.u64" in before) == (comm_scope != "gpu"), "only comm_scope gpu writes the local word"


@pytest.mark.parametrize("arch", NVIDIA)
def test_rank_is_a_load_from_the_context_page(compiled, arch):
    text = assembly(compiled(identity_kernel, arch, {"out": "*i32"}))
    assert text.count("ld.global.nc.b32") == 2
    assert f"{context_layout.word_address(context_layout.RANK):#x}" in text
    assert f"{context_layout.word_address(context_layout.NUM_RANKS):#x}" in text


@pytest.mark.parametrize("arch", NVIDIA)
def test_threads_and_fences(compiled, arch):
    text = assembly(compiled(thread_kernel, arch, {"out": "*i32"}, num_warps=2))
    for expected in ("fence.acq_rel.cta", "fence.acq_rel.gpu", "fence.acq_rel.sys", "bar.sync", "%tid.x", "%tid.y"):
        assert expected in text
    assert str(64 * 1000 + 2 * 100 + 32) in text


def test_every_primitive_is_documented():
    for name, row in PRIMITIVES.items():
        assert row.doc.endswith("."), name
        assert row.order and row.effect


class TestAmd:
    """The same primitives on CDNA3."""

    @pytest.mark.parametrize("scope, bits", [("cta", "sc0"), ("gpu", "sc1"), ("sys", "sc0 sc1")])
    def test_ld_and_st(self, compiled, scope, bits):
        constants = {"SCOPE": scope, "LOAD": "acquire", "STORE": "release"}
        text = assembly(compiled(load_store_kernel, AMD, {"ptr": "*i64", "out": "*i64"}, constants))
        lines = [" ".join(line.split()) for line in text.splitlines()]
        assert any(line.startswith("global_load_dwordx2") and line.endswith(f"off {bits}") for line in lines)
        assert any(line.startswith("global_store_dwordx2") and line.endswith(f"off {bits}") for line in lines)
        assert f"buffer_inv {bits}" in lines
        assert (f"buffer_wbl2 {bits}" in lines) == (scope != "cta")

    @pytest.mark.parametrize("dtype", WIDTHS)
    def test_ld_and_st_widths(self, compiled, dtype):
        constants = {"SCOPE": "gpu", "LOAD": "relaxed", "STORE": "relaxed"}
        text = assembly(compiled(load_store_kernel, AMD, {"ptr": f"*{dtype}", "out": f"*{dtype}"}, constants))
        load = {8: "ubyte", 16: "ushort", 32: "dword", 64: "dwordx2"}[WIDTHS[dtype]]
        assert f"global_load_{load} " in text

    @pytest.mark.parametrize("dtype, suffix", [("i32", ""), ("u64", "_x2")])
    def test_atomics(self, compiled, dtype, suffix):
        text = assembly(compiled(atomic_kernel, AMD, {"ptr": f"*{dtype}", "out": f"*{dtype}"}, {"SCOPE": "sys", "SEMANTIC": "acq_rel"}))
        assert f"global_atomic_add{suffix} " in text
        assert f"global_atomic_cmpswap{suffix} " in text

    @pytest.mark.parametrize("cmp", AGAIN)
    def test_wait(self, compiled, cmp):
        constants = {"SCOPE": "sys", "SEMANTIC": "acquire", "CMP": cmp, "COUNT": 3}
        text = assembly(compiled(wait_kernel, AMD, {"words": "*i32", "value": "i32", "out": "*i32"}, constants))
        assert "buffer_inv sc0 sc1" in text, "acquire at system scope"
        assert "s_barrier" in text

    @pytest.mark.parametrize("operation, instruction", [("set", "swap"), ("add", "add")])
    def test_notify(self, compiled, operation, instruction):
        text = assembly(compiled(notify_kernel, AMD, {"word": "*i64", "value": "i64"}, {"OPERATION": operation, "SCOPE": "intra_node"}))
        assert f"global_atomic_{instruction}_x2" in text
        assert "buffer_wbl2 sc0 sc1" in text, "release at system scope"

    def test_threads_and_identity(self, compiled):
        text = assembly(compiled(thread_kernel, AMD, {"out": "*i32"}))
        assert "buffer_inv sc0 sc1" in text
        assert f"{256 * 1000 + 4 * 100 + 64:#x}" in text, "64 threads a warp"
        assert "s_load_dword" in assembly(compiled(identity_kernel, AMD, {"out": "*i32"}))
