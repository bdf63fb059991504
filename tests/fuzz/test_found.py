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
    places = " + ".join(
        f"tl.arange(0, {size})[{', '.join(':' if axis == other else 'None' for other in range(len(shape)))}] * {torch.empty(shape).stride(axis)}"
        for axis, size in enumerate(shape)
    )
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
