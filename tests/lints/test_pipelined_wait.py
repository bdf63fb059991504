"""What TD114 says of the compiler: a loop with a wait is left alone, its loads behind the wait; without the wait it is pipelined."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_dist.language as dl


@triton.jit
def product_kernel(a, ready, out, rounds, WAITS: tl.constexpr, TILE: tl.constexpr):
    row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in tl.range(0, rounds, num_stages=3):
        if WAITS:
            dl.wait(ready + step, 1, "sys", "acquire", waitValue=1)
        part = tl.load(a + step * TILE * TILE + row * TILE + column)
        total = tl.dot(part, part, total)
    tl.store(out + row * TILE + column, total)


@pytest.mark.parametrize("capability", [90, 100])
def test_a_loop_with_a_wait_is_not_pipelined(capability):
    orders = {}
    for waits in (False, True):
        signature = {"a": "*fp16", "ready": "*i32", "out": "*fp32", "rounds": "i32", "WAITS": "constexpr", "TILE": "constexpr"}
        attributes = {(number,): [["tt.divisibility", 16]] for number in range(3)}
        source = ASTSource(product_kernel, signature=signature, constexprs={"WAITS": waits, "TILE": 64}, attrs=attributes)
        text = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ttgir"]
        orders[waits] = re.findall(r"scf\.for|elementwise_inline_asm|async_copy_global_to_local|tt\.load", text)
    assert orders[False][0] == "async_copy_global_to_local", "the first rounds' loads stand before the loop"
    assert orders[True] == ["scf.for", "elementwise_inline_asm", "tt.load"]
