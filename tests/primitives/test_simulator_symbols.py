"""What the simulator sees of each primitive: symbol, operands, result, purity."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives.lowering import TARGETS, target_of
from triton_dist.primitives.table import PRIMITIVES, Result

TYPES = {"words": "*i64", "data": "*fp32", "n": "i32"}


@triton.jit
def every_primitive_kernel(words, data, n):
    lanes = tl.arange(0, 32)
    token = dl.wait_ge(words, n, "sys", "acquire", waitValue=n)
    value = dl.consume_token(tl.load(dl.symm_at(data + lanes, 2)), token)
    tl.store(dl.consume_token(dl.symm_at(data, dl.rank()), token) + lanes, value)
    dl.notify(words, n, comm_scope="intra_node")
    dl.notify(words, dl.num_ranks() - 1, signal=2, sig_op="add")
    if dl.tid(0) == 0:
        seen = dl.ld(words, "sys", "acquire")
        dl.st(data, seen, sem="release", scope="sys")
        old = dl.atomic_add(words, 1, "gpu", "acq_rel")
        dl.atomic_cas(words, old, seen)
    dl.fence_cta()
    dl.fence_gpu()
    dl.fence_sys()
    dl.__syncthreads()


EXPECTED = {
    "td.wait;cmp=ge;scope=sys;sem=acquire": ("(!tt.ptr<i64>, i32, i64) -> i32", False),
    "td.symm_at": ("(!tt.ptr<f32>, i32) -> !tt.ptr<f32>", True),
    "td.consume_token": ("(!tt.ptr<f32>, i32) -> !tt.ptr<f32>", False),
    "td.notify;op=set;scope=intra_node": ("(!tt.ptr<i64>, i32, i64) -> i32", False),
    "td.notify;op=add;scope=inter_node": ("(!tt.ptr<i64>, i32, i64) -> i32", False),
    "td.rank": ("() -> i32", True),
    "td.num_ranks": ("() -> i32", True),
    "td.tid;axis=0": ("() -> i32", True),
    "td.ld;scope=sys;sem=acquire": ("(!tt.ptr<i64>) -> i64", False),
    "td.st;scope=sys;sem=release": ("(!tt.ptr<f32>, f32) -> i32", False),
    "td.atomic_add;scope=gpu;sem=acq_rel": ("(!tt.ptr<i64>, i64) -> i64", False),
    "td.atomic_cas;scope=gpu;sem=relaxed": ("(!tt.ptr<i64>, i64, i64) -> i64", False),
    "td.fence;scope=cta": ("() -> i32", False),
    "td.fence;scope=gpu": ("() -> i32", False),
    "td.fence;scope=sys": ("() -> i32", False),
}


def operations(text):
    """(symbol, purity, signature) of each opaque operation."""
    pattern = r"tt\.extern_elementwise .*?pure = (\w+), symbol = \"([^\"]+)\"\}.*? : (\(.*?\) -> [^\n]*?)(?: loc|\n)"
    return [(symbol, pure == "true", signature.strip()) for pure, symbol, signature in re.findall(pattern, text)]


def test_symbols_operands_and_purity(simulated):
    found = operations(simulated(every_primitive_kernel, TYPES))
    assert {symbol for symbol, _, _ in found} == set(EXPECTED)
    for symbol, (signature, pure) in EXPECTED.items():
        assert (symbol, pure, signature) in found


def test_a_tensor_of_pointers_and_its_rank_have_one_shape(simulated):
    found = operations(simulated(every_primitive_kernel, TYPES))
    assert ("td.symm_at", True, "(tensor<32x!tt.ptr<f32>>, tensor<32xi32>) -> tensor<32x!tt.ptr<f32>>") in found
    assert ("td.consume_token", False, "(tensor<32xf32>, tensor<32xi32>) -> tensor<32xf32>") in found


def test_a_wait_ends_in_a_block_barrier(simulated):
    text = simulated(every_primitive_kernel, TYPES)
    wait = text[text.index("td.wait") :]
    assert re.search(r"(ttg|gpu)\.barrier", wait[: wait.index("tt.return")])


def test_nothing_of_a_gpu_is_emitted(simulated):
    assert "inline_asm" not in simulated(every_primitive_kernel, TYPES)


@pytest.mark.parametrize("target", TARGETS)
def test_every_row_has_a_lowering_on_every_target(target):
    rows = {name for name, row in PRIMITIVES.items() if row.result is not Result.CONSTEXPR}
    assert set(TARGETS[target]) == rows


def test_an_unknown_backend_is_named():
    class Options:
        backend_name = "metal"

    with pytest.raises(PrimitiveArgumentError, match="no lowering for the Triton backend 'metal'; it has: cuda, hip, sim"):
        target_of(Options())
