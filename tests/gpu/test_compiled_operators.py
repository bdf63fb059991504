"""torch.compile of a tensor-parallel MLP on GPUs: what Inductor makes of it gives what eager calls give, forward and backward."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from triton_dist.ops import ag_gemm, gemm_ar, gemm_rs

ROWS, HIDDEN, INNER = 64, 128, 256


def scattered(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return gemm_rs(torch.nn.functional.silu(ag_gemm(x, up.t())), down.t())


def whole(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return gemm_ar(torch.nn.functional.silu(x @ up.t()), down.t())


def compiled_and_eager(name: str) -> float:
    """The largest relative difference of the result and of the gradients of this rank."""
    block = {"scattered": scattered, "whole": whole}[name]
    generator = torch.Generator().manual_seed(triton_dist.rank())
    shapes = [(ROWS, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)]
    tensors = [torch.randn(shape, generator=generator).to(triton_dist.device(), torch.bfloat16) / 8 for shape in shapes]
    found = []
    for function in (block, torch.compile(block, fullgraph=True)):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        out = function(*leaves)
        out.float().square().mean().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    pairs = zip(*found, strict=True)
    return max(relative_error(compiled, eager) for eager, compiled in pairs)


@pytest.mark.parametrize("name", ["scattered", "whole"])
def test_a_compiled_block_gives_what_the_eager_one_gives(world, name):
    assert max(world(compiled_and_eager, 2, args=(name,), timeout=300)) < 3e-2
