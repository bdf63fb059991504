"""The kernels of activate and rotary as GPUs get them: 16 bytes at a time, and a sine that is good far from 0, too."""

from __future__ import annotations

import re

import pytest
from triton import compile as compile_kernel

from tests.primitives.compile_targets import source_of, target_of
from triton_dist.ops.activation import activate_kernel, activation_gradient_kernel
from triton_dist.ops.rotation import rotary_kernel


def compiled(kernel, types: dict[str, str], constants: dict[str, object], aligned: tuple[str, ...], arch: int = 90) -> str:
    return compile_kernel(source_of(kernel, types, constants, aligned), target=target_of(arch), options={"num_warps": 4}).asm["ptx"]


def bits(ptx: str, direction: str) -> list[int]:
    """Of each plain access of a thread to global memory."""
    return [int(vector or 1) * int(width) for vector, width in re.findall(rf"{direction}\.global(?:\.v([248]))?\.b(\d+)", ptx)]


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("function", ["silu", "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("back", [False, True])
def test_activations_go_16_bytes_at_a_time(back, function, biased, arch):
    types = dict.fromkeys(("x", "bias", *(("grad",) if back else ()), "out"), "*bf16") | dict.fromkeys(
        ("row_stride", "columns", "blocks"), "i32"
    )
    constants = {"FUNCTION": function, "GATED": True, "BIASED": biased, "TILE": 2048}
    aligned = (*(name for name in types if name != "blocks"),)
    ptx = compiled(activation_gradient_kernel if back else activate_kernel, types, constants, aligned, arch)
    loads, stores = bits(ptx, "ld"), bits(ptx, "st")
    # 2048 elements of 128 threads are two accesses of 16 bytes.
    assert len(loads) == 2 * (2 + 2 * biased + back) and set(loads) == {128}, loads
    assert len(stores) == 2 * (2 if back else 1) and set(stores) == {128}, stores


@pytest.mark.parametrize("dim", [64, 128])
def test_rotations_are_loaded_in_wide_accesses(dim):
    types = {"x": "*bf16", "bias": "*bf16", "positions": "*i64", "frequencies": "*fp32", "out": "*bf16"}
    types |= dict.fromkeys(("columns", "batch", "heads", "rotated", "blocks"), "i32")
    constants = {"BACK": False, "BIASED": False, "DIM": dim, "HALF": dim // 2, "TILE": 1024 * 2 // dim}
    ptx = compiled(rotary_kernel, types, constants, ("x", "bias", "positions", "frequencies", "out", "columns"))
    assert bits(ptx, "st") == [128] * 2, bits(ptx, "st")
    assert "sin.approx" not in ptx and "cos.approx" not in ptx
