"""Launch helpers for tests of single ops: any function of one to three values, applied to tiles and to scalars."""

from __future__ import annotations

import importlib.metadata

import pytest
import torch
import triton
import triton.language as tl

import triton_dist  # noqa: F401  (its import makes the simulator the active driver)

TRITON = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])


@triton.jit
def apply_to_tiles_kernel(out, x, y, z, count, FUNCTION: tl.constexpr, ARITY: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    a = tl.load(x + offsets, inside)
    if ARITY == 1:
        result = FUNCTION(a)
    elif ARITY == 2:
        result = FUNCTION(a, tl.load(y + offsets, inside))
    else:
        result = FUNCTION(a, tl.load(y + offsets, inside), tl.load(z + offsets, inside))
    tl.store(out + offsets, result, inside)


@triton.jit
def apply_to_scalars_kernel(out, x, y, z, count, FUNCTION: tl.constexpr, ARITY: tl.constexpr):
    for index in range(count):
        a = tl.load(x + index)
        if ARITY == 1:
            result = FUNCTION(a)
        elif ARITY == 2:
            result = FUNCTION(a, tl.load(y + index))
        else:
            result = FUNCTION(a, tl.load(y + index), tl.load(z + index))
        tl.store(out + index, result)


def apply_function(function, out_dtype: torch.dtype, *operands: torch.Tensor, scalars: bool = False) -> torch.Tensor:
    """``function`` of each element, by tiles of 32 elements or scalar by scalar: the two take different paths in the simulator."""
    count = operands[0].numel()
    out = torch.empty(count, dtype=out_dtype)
    x, y, z = (operands + operands[:1] * 2)[:3]
    if scalars:
        apply_to_scalars_kernel[(1,)](out, x, y, z, count, function, len(operands))
    else:
        apply_to_tiles_kernel[(triton.cdiv(count, 32),)](out, x, y, z, count, function, len(operands), 32)
    return out


@pytest.fixture(params=[False, True], ids=["tile", "scalar"])
def elementwise(request):
    """``elementwise(function, out_dtype, *operands)``: the test that takes it runs once on tiles and once on scalars."""
    return lambda function, out_dtype, *operands: apply_function(function, out_dtype, *operands, scalars=request.param)


@pytest.fixture
def triton_version() -> tuple[int, int]:
    """Major and minor version of the installed Triton."""
    return TRITON
