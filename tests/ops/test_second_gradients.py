"""A gradient of a gradient is an error by name wherever it would be wrong, and no call for one gradient is."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError
from triton_dist.layers import TPMLP
from triton_dist.ops import activate, ag_gemm, gemm_ar, gemm_rs, rotary

POSITIONS, FREQUENCIES = torch.arange(4), torch.ones(2)
CALLS = {
    "ag_gemm": ag_gemm,
    "gemm_rs": gemm_rs,
    "gemm_ar": gemm_ar,
    "activate": lambda a, b: activate(a, b[0]),
    "rotary": lambda a, b: rotary(a * b, POSITIONS, FREQUENCIES, rotated=1),
    "TPMLP": lambda a, b: TPMLP(4, 8, sequence_parallel=False)(a),
}


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    return a.requires_grad_(), b.requires_grad_()


@pytest.mark.parametrize("name", [name for name in CALLS if name != "rotary"])
def test_a_penalty_on_a_gradient(name):
    """It depends on the operands, of which the gradient was computed without a graph."""

    def body():
        a, b = operands()
        out = CALLS[name](a, b)
        (grad,) = torch.autograd.grad(out.sum(), a, create_graph=True)
        (out.sum() + grad.pow(2).sum()).backward()

    with pytest.raises(InvalidArgumentError, match="its gradient has no gradient"):
        triton_dist.simulate(body, world_size=2)


@pytest.mark.parametrize("name", CALLS)
def test_a_graph_of_a_gradient_that_nobody_differentiates(name):
    def body():
        a, b = operands()
        CALLS[name](a, b).sum().backward()
        plain = a.grad.clone()
        again, b = operands()
        (grad,) = torch.autograd.grad(CALLS[name](again, b).sum(), again, create_graph=True)
        return name == "TPMLP" or torch.equal(grad.detach(), plain)

    assert triton_dist.simulate(body, world_size=2) == [True] * 2


def test_a_gradient_that_depends_on_the_incoming_one():
    """What torch's once_differentiable would see as well."""

    def body():
        a = operands()[0]
        grad = torch.ones(4, 4, requires_grad=True)
        made = rotary(a, POSITIONS, FREQUENCIES, rotated=1)
        (first,) = torch.autograd.grad(made, a, grad, create_graph=True)
        first.sum().backward()

    with pytest.raises(InvalidArgumentError, match="rotary: its gradient has no gradient"):
        triton_dist.simulate(body, world_size=1)
