"""The simulator compiles what the CUDA back end compiles: the same TTIR, for kernels with every kind of op."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def pointwise_kernel(out, x, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, inside, other=0.0)
    tl.store(out + offsets, tl.where(value > 0, tl.exp(value), value * 0.5), inside)


@triton.jit
def matmul_kernel(a, b, c, K, BLOCK: tl.constexpr):
    m, k = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in tl.range(0, K, BLOCK, num_stages=3):
        total = tl.dot(tl.load(a + m * K + step + k).to(tl.float16), tl.load(b + (step + m) * BLOCK + k).to(tl.float16), total)
    tl.store(c + m * BLOCK + k, total)


@triton.jit
def lock_kernel(lock, x, count):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(x) > count:
        tl.store(x, tl.load(x) + tl.sum(tl.load(x + tl.arange(0, 16)), 0))
    tl.atomic_xchg(lock, 0)


@triton.jit
def descriptor_kernel(x, rows, columns):
    tile = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [16, 32])
    value = tile.load([tl.program_id(0) * 16, 0])
    tile.store([tl.program_id(0) * 16, 32], value.to(tl.float8e5).to(tl.float32))


CASES = [
    (pointwise_kernel, {"out": "*fp32", "x": "*fp32", "count": "i32"}, {"BLOCK": 64}),
    (matmul_kernel, {"a": "*fp32", "b": "*fp32", "c": "*fp32", "K": "i32"}, {"BLOCK": 32}),
    (lock_kernel, {"lock": "*i32", "x": "*i32", "count": "i32"}, {}),
    (descriptor_kernel, {"x": "*fp32", "rows": "i32", "columns": "i32"}, {}),
]


@pytest.mark.parametrize(("kernel", "signature", "constants"), CASES, ids=lambda item: getattr(item, "__name__", ""))
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_same_ttir_as_for_cuda(kernel, signature, constants, capability):
    source = dict.fromkeys(constants, "constexpr")
    texts = []
    for backend in ("cuda", "sim"):
        target = GPUTarget(backend, capability, 32)
        compiled = triton.compile(
            ASTSource(kernel, {**signature, **source}, {(kernel.arg_names.index(k),): v for k, v in constants.items()}), target=target
        )
        texts.append(re.sub(r"loc\(.*|#loc.*", "", compiled.asm["ttir"]))
    assert texts[0] == texts[1]
    assert "tt.func public" in texts[0]
