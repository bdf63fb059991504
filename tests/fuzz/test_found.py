"""What the fuzzer found, as small kernels."""

from __future__ import annotations

import pytest
import torch

from tests.fuzz.case import HEADER
from tests.gpu.programs import simulated
from tests.kernel_text import load_module

UNIFORM = {
    "shift": "x >> (x & 7)",
    "unsigned shift": "x.to(tl.uint32) >> 3",
    "left shift": "x << 2",
    "quotient": "x // (x | 1)",
    "remainder": "x % (x | 1)",
    "choice": "tl.where(x > 0, x, x + 1)",
    "bits": "x.to(tl.float32).to(tl.int32, bitcast=True)",
    "float remainder": "(x.to(tl.float32) % 3.0).to(tl.int32)",
    "fma": "tl.fma(x.to(tl.float32), x.to(tl.float32), x.to(tl.float32)).to(tl.int32)",
    "conversion": "x.to(tl.float32).to(tl.int8).to(tl.int32)",
}
SHAPED = {
    "expand": ("tl.expand_dims(y, 1)", (4, 1, 8)),
    "permute": ("tl.permute(y, [1, 0])", (8, 4)),
    "reshape": ("tl.reshape(y, [2, 16])", (2, 16)),
    "join": ("tl.join(y, y)", (4, 8, 2)),
    "flip": ("tl.flip(y, 1)", (4, 8)),
    "gather": ("tl.gather(y, tl.zeros([4, 8], tl.int32), 1)", (4, 8)),
    "sum": ("tl.sum(y, 1)", (4,)),
    "cumsum": ("tl.cumsum(y, 0)", (4, 8)),
    "sort": ("tl.sort(y)", (4, 8)),
}


@pytest.mark.parametrize("shaped", SHAPED)
@pytest.mark.parametrize("uniform", UNIFORM)
def test_a_tile_that_is_the_same_everywhere_has_a_shape(uniform, shaped):
    """A load that is masked off everywhere gives one number for the tile; ops on it must not lose that it stands for a whole tile."""
    text, shape = SHAPED[shaped]
    axes = ["[" + ", ".join(":" if axis == other else "None" for other in range(len(shape))) + "]" for axis in range(len(shape))]
    places = " + ".join(f"tl.arange(0, {size}){axes[axis]} * {torch.empty(shape).stride(axis)}" for axis, size in enumerate(shape))
    source = f"""@triton.jit
def kernel(x_ptr, out):
    off = (tl.arange(0, 4)[:, None] < 0) & (tl.arange(0, 8)[None, :] >= 0)
    x = tl.load(x_ptr + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :], off, other=1)
    y = {UNIFORM[uniform]}
    tl.store(out + {places}, {text})
"""
    one = {"left shift": 4, "unsigned shift": 0, "quotient": 1, "remainder": 0, "shift": 0, "bits": 0x3F800000, "fma": 2}.get(uniform, 1)
    y = torch.full((4, 8), one, dtype=torch.int64)
    expected = {"sum": y.sum(1), "cumsum": y.cumsum(0)}.get(shaped, torch.full(shape, one))
    out = torch.zeros(shape, dtype=torch.int64)
    with simulated():
        load_module(HEADER + source).kernel[(1,)](torch.zeros(32, dtype=torch.int32), out)
    wrapped = (expected + 2**31) % 2**32 - 2**31  # sums are of 32 bits
    assert torch.equal(out, wrapped)


SIGNALING = {torch.float16: 0x7C01, torch.bfloat16: 0x7F81, torch.float32: 0x7F800001, torch.float64: 0x7FF0000000000001}


@pytest.mark.parametrize("dtype", SIGNALING, ids=str)
@pytest.mark.parametrize("count", [4, 16, 128])
def test_a_signaling_nan_is_no_number_for_max_and_min(dtype, count):
    """Only NaN payloads from random bits are signaling; numpy then gives NaN, or forgets what came before."""
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    x = -torch.arange(count, dtype=dtype)
    x.view(word)[count // 2] = SIGNALING[dtype]
    y = torch.ones(count, dtype=dtype)
    source = f"""@triton.jit
def kernel(x_ptr, y_ptr, out, most):
    i = tl.arange(0, {count})
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out + i, tl.minimum(x, y))
    tl.store(most, tl.min(x, 0))
    tl.store(most + 1, tl.max(x, 0))
"""
    out, most = torch.zeros(count, dtype=dtype), torch.zeros(2, dtype=dtype)
    with simulated():
        load_module(HEADER + source).kernel[(1,)](x, y, out, most)
    expected = -torch.arange(count, dtype=dtype)
    expected[count // 2] = 1
    assert torch.equal(out, expected)
    assert most.tolist() == [1 - count, 0]
