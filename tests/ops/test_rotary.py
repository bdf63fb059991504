"""rotary against complex numbers in float64, forward and backward, in place and not, near and far from position 0.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from triton_dist import errors
from triton_dist.ops import repeat, rotary

TOLERANCE = {torch.float32: 3e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
THETA = 1e4


def frequencies_of(dim: int) -> torch.Tensor:
    return torch.pow(THETA, -torch.arange(0, dim, 2) / dim)


def reference(x: torch.Tensor, positions: torch.Tensor, dim: int, rotated: int, bias: torch.Tensor | None) -> torch.Tensor:
    """x: (rows, columns), fp64. The angles are the float32 ones, which are what far positions are rotated by."""
    rows = x if bias is None else x + bias
    angles = (positions.float()[:, None] * frequencies_of(dim)).double().repeat_interleave(len(x) // len(positions), 0)[:, None]
    heads = rows.unflatten(1, (-1, dim))
    turned = torch.complex(heads[:, :rotated, : dim // 2], heads[:, :rotated, dim // 2 :]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([torch.cat([turned.real, turned.imag], -1), heads[:, rotated:]], 1).flatten(1)


def body(dim: int, heads: int, rotated: int, biased: bool, dtype: torch.dtype, tokens: int = 5, batch: int = 3, first: int = 0) -> float:
    """The worst relative error of results, in place and not, and of all gradients."""
    generator, device = torch.Generator().manual_seed(3), triton_dist.device()
    positions, columns = torch.arange(first, first + tokens), heads * dim
    shapes = ((tokens * batch, columns), (columns,), (tokens * batch, columns))
    x, bias, grad = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    wide = [tensor.double().requires_grad_() for tensor in (x, bias)]
    expected = reference(wide[0], positions, dim, rotated, wide[1] if biased else None)
    expected.backward(grad.double())
    options = {"positions": positions.to(device), "frequencies": frequencies_of(dim).to(device), "rotated": rotated}
    own = bias.to(device).requires_grad_() if biased else None
    leaf = x.to(device).requires_grad_()
    with torch.no_grad():
        out, here = rotary(leaf, bias=own, **options), x.to(device, copy=True)
        assert rotary(here, bias=own, out=here, **options) is here
    found = rotary(leaf, bias=own, **options)
    found.backward(grad.to(device))
    pairs = [(out, expected), (here, expected), (found, expected), (leaf.grad, wide[0].grad)] + (
        [(own.grad, wide[1].grad)] if biased else []
    )
    return max(relative_error(seen, wanted) for seen, wanted in pairs)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize(("dim", "heads", "rotated"), [(2, 3, 3), (6, 5, 4), (64, 20, 17), (128, 3, 0)])
def test_rotations_match_complex_numbers(world, dim, heads, rotated, biased, dtype):
    assert world(body, 1, args=(dim, heads, rotated, biased, dtype))[0] < TOLERANCE[dtype]


@pytest.mark.parametrize("first", [1000, 100_000])
def test_rotations_far_from_the_beginning(world, first):
    """Angles of many turns are as near to the reference as those near 0, but for the rounding of so large an angle."""
    assert world(body, 1, args=(64, 4, 3, False, torch.float32), kwargs={"first": first})[0] < 2e-5


def test_rotations_that_come_again(monkeypatch):
    """What was kept is launched with the new tensors, in place and not."""
    monkeypatch.setattr(repeat, "_DEVICES", ("cuda", "cpu"))

    def again() -> bool:
        right, frequencies = True, frequencies_of(8)
        for call in range(4):
            x, positions = torch.randn(6, 24), torch.arange(call, call + 3)
            expected = reference(x.double(), positions, 8, 2, None)
            right &= torch.allclose(rotary(x, positions, frequencies, rotated=2).double(), expected, atol=1e-5)
            right &= torch.allclose(rotary(x, positions, frequencies, rotated=2, out=x).double(), expected, atol=1e-5)
        return right

    assert triton_dist.simulate(again, 2) == [True, True]


def test_nothing_to_rotate(world):
    assert world(of_nothing, 1) == [(0, 8)]


def of_nothing() -> tuple[int, ...]:
    device = triton_dist.device()
    return tuple(rotary(torch.empty(0, 8, device=device), torch.arange(0, device=device), frequencies_of(8).to(device), rotated=1).shape)


def called(**others) -> torch.Tensor:
    given = {"x": torch.randn(6, 16), "positions": torch.arange(3), "frequencies": frequencies_of(8), "rotated": 1}
    return rotary(**{**given, **others})


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"x": torch.randn(6)}, "has to be a contiguous matrix"),
        ({"x": torch.randn(16, 6).t()}, "has to be a contiguous matrix"),
        ({"x": torch.randn(6, 16).double()}, "of one of"),
        ({"x": [1.0]}, "has to be a tensor"),
        ({"frequencies": torch.ones(4).double()}, "one fp32 a pair"),
        ({"positions": torch.arange(4)}, "share the 6 rows of x evenly"),
        ({"positions": torch.arange(3).int()}, "they have to be int64"),
        ({"positions": torch.zeros(0, dtype=torch.int64)}, "they have to be int64"),
        ({"rotated": 3}, "heads of 8, 3 of them to rotate"),
        ({"x": torch.randn(6, 12)}, "12 columns, which are not heads of 8"),
        ({"bias": torch.ones(8)}, "bias is (8,)"),
        ({"out": torch.empty(6, 8)}, "it has to be (6, 16)"),
        ({"x": torch.randn(6, 16, requires_grad=True), "out": torch.empty(6, 16)}, "no gradient with out="),
    ],
)
def test_bad_input_of_rotary(others, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(called, 1, kwargs=others)
    assert message in str(caught.value)
