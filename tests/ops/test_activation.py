"""activate against torch in float64: every function, gated and not, with and without bias, forward and backward.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from triton_dist import errors
from triton_dist.ops import activate, activation, repeat

FUNCTIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
}
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def reference(x: torch.Tensor, bias: torch.Tensor | None, function: str, gated: bool) -> torch.Tensor:
    x = x if bias is None else x + bias
    if not gated:
        return FUNCTIONS[function](x)
    gate, up = x.chunk(2, dim=1)
    return FUNCTIONS[function](gate) * up


def body(function: str, gated: bool, biased: bool, dtype: torch.dtype, rows: int = 5, columns: int = 37) -> float:
    """The worst relative error of the result and of all gradients; x is a part of wider rows."""
    generator, device = torch.Generator().manual_seed(3), triton_dist.device()
    width = 2 * columns if gated else columns
    values = [torch.randn(shape, generator=generator).mul(2).to(dtype) for shape in ((rows, width), (width,), (rows, columns))]
    wide = [value.double().requires_grad_() for value in values]
    expected = reference(wide[0], wide[1] if biased else None, function, gated)
    expected.backward(wide[2].detach())
    rows_of_more = torch.zeros(rows, width + 3, dtype=dtype, device=device)
    x = rows_of_more[:, :width].copy_(values[0]).requires_grad_()
    bias = values[1].to(device).requires_grad_() if biased else None
    with torch.no_grad():
        out = activate(x, bias, function=function, gated=gated)
        given = activate(x, bias, function=function, gated=gated, out=torch.full_like(out, float("nan")))
    found = activate(x, bias, function=function, gated=gated)
    found.backward(values[2].to(device))
    pairs = [(out, expected), (given, expected), (found, expected), (x.grad, wide[0].grad)]
    pairs += [(bias.grad, wide[1].grad)] if biased else []
    return max(relative_error(seen, wanted) for seen, wanted in pairs)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("gated", [False, True], ids=["alone", "gated"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_activations_match_torch(world, function, gated, biased, dtype):
    assert world(body, 1, args=(function, gated, biased, dtype))[0] < TOLERANCE[dtype]


def test_activations_of_several_blocks_and_of_nothing(world):
    for rows, columns in ((3, 2500), (2, 3000), (1, 1)):
        assert world(body, 1, args=("silu", True, True, torch.float32, rows, columns))[0] < 2e-6
    assert world(of_nothing, 1) == [((0, 8), (3, 0))]


def of_nothing() -> tuple:
    device = triton_dist.device()
    return tuple(activate(torch.empty(0, 16, device=device)).shape), tuple(activate(torch.empty(3, 0, device=device)).shape)


def test_activations_that_come_again(monkeypatch):
    """What was kept is launched with the new tensors, also where x is the same and the bias is not."""
    monkeypatch.setattr(repeat, "_DEVICES", ("cuda", "cpu"))

    def again() -> bool:
        right = True
        for seed in range(3):
            x, bias = torch.randn(4, 32), torch.randn(32)
            for with_bias in (None, bias, bias + seed):
                expected = reference(x.double(), None if with_bias is None else with_bias.double(), "silu", True)
                right &= torch.allclose(activate(x, with_bias).double(), expected, atol=1e-5)
        return right

    assert triton_dist.simulate(again, 2) == [True, True]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_activations(function, gated):
    x, bias = torch.randn(4, 16), torch.randn(16)
    compiled = torch.compile(lambda x, bias: activate(x, bias, function=function, gated=gated), backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x, bias).double(), reference(x.double(), bias.double(), function, gated), atol=1e-5)
    torch._dynamo.reset()


def test_the_widest_tile_without_waste():
    assert [activation.tile_columns(columns) for columns in (1, 40, 1000, 1024, 2048, 3072, 7168, 14336)] == [
        16, 64, 1024, 1024, 2048, 1024, 1024, 2048,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: activate(torch.randn(4, 4), function="tanh"), "'tanh' is not known; use one of"),
        (lambda: activate(torch.randn(4)), "has to be a matrix"),
        (lambda: activate([1.0]), "has to be a tensor"),
        (lambda: activate(torch.randn(4, 4).double()), "has to be a matrix of one of"),
        (lambda: activate(torch.randn(4, 6).t()), "whose rows are contiguous"),
        (lambda: activate(torch.randn(4, 5)), "an even number"),
        (lambda: activate(torch.randn(4, 4), torch.randn(2)), "bias is (2,)"),
        (lambda: activate(torch.randn(4, 4), torch.randn(4).half()), "it has to be (4,) torch.float32"),
        (lambda: activate(torch.randn(4, 4), out=torch.empty(4, 4)), "it has to be (4, 2)"),
        (lambda: activate(torch.randn(4, 4, requires_grad=True), out=torch.empty(4, 2)), "no gradient with out="),
    ],
)
def test_bad_input_of_activate(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 1)
    assert message in str(caught.value)


def test_activate_needs_a_world():
    with pytest.raises(errors.NotInitializedError, match="simulate"):
        activate(torch.randn(4, 4))


def infinite_body(dtype: torch.dtype, gated: bool) -> list[bool]:
    """relu of infinities, and its gradient there."""
    values = torch.tensor([[torch.inf, -torch.inf, 2.0, -2.0, torch.nan, -0.0, 1e4, -1e4]], dtype=dtype, device=triton_dist.device())
    x = torch.cat([values, torch.ones_like(values)], 1) if gated else values
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        plain = activate(x, function="relu", gated=gated)
    made = activate(leaf, function="relu", gated=gated)
    made.sum().backward()
    truth = torch.relu(values)
    finite = ~values.isnan()
    slopes = torch.where(values > 0, 1.0, 0.0).to(dtype)
    return [
        torch.equal(plain.nan_to_num(7, posinf=torch.inf), truth.nan_to_num(7, posinf=torch.inf)),
        torch.equal(made.detach().nan_to_num(7, posinf=torch.inf), truth.nan_to_num(7, posinf=torch.inf)),
        torch.equal(leaf.grad[:, :8][finite], slopes[finite]),
        not gated or torch.equal(leaf.grad[:, 8:][finite], truth[finite]),
    ]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_relu_of_infinities(world, dtype, gated):
    assert world(infinite_body, 1, args=(dtype, gated)) == [[True] * 4]


def test_an_output_means_the_same_in_a_trace(monkeypatch):
    """torch's copy would fill a larger one several times, and round to another dtype."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    x, out = torch.randn(4, 8), torch.empty(4, 4)
    assert activate(x, out=out) is out and torch.equal(out, activate(x))
    for wrong in (torch.empty(3, 4, 4), torch.empty(4, 4, dtype=torch.float16)):
        with pytest.raises(errors.InvalidArgumentError, match="activate: out is"):
            activate(x, out=wrong)
