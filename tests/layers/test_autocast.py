"""``torch.autocast``: layers compute in its dtype as torch's do, operators in the dtype of what they are given."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import triton_dist
from tests.differences import relative_error
from triton_dist.errors import InvalidArgumentError
from triton_dist.layers import TPMLP, TPAttention
from triton_dist.ops import ag_gemm, gemm_ar, gemm_rs

HIDDEN = 16


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(triton_dist.device())


def mlp() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(3)
    gate, up, down = nn.Linear(HIDDEN, 32), nn.Linear(HIDDEN, 32), nn.Linear(32, HIDDEN)

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down = gate, up, down

        def forward(self, x):
            return self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    return Whole(), TPMLP.from_linear(gate=gate, up=up, down=down)


def attention() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(4)
    q, k, v, out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
    rotating = TPAttention.from_linear(q=q, k=k, v=v, out=out, num_heads=4, rope_theta=100.0)
    return rotating, TPAttention.from_linear(q=q, k=k, v=v, out=out, num_heads=4, rope_theta=100.0, dtype=torch.bfloat16)


def body(grad: bool, scattered: bool) -> list[str]:
    """What is wrong of the two layers."""
    kind, rank, size = triton_dist.device().type, triton_dist.rank(), triton_dist.world_size()
    x = drawn(9, 4 * size, HIDDEN)
    mine = x[4 * rank : 4 * rank + 4].clone() if scattered else x.clone()
    wrong = []
    whole, layer = mlp()
    whole, layer = whole.to(x.device), layer.to(x.device)
    with torch.set_grad_enabled(grad), torch.autocast(kind, torch.bfloat16):
        truth = whole(x)[4 * rank : 4 * rank + 4] if scattered else whole(x)
        made = layer(mine.requires_grad_(grad), sequence_parallel=scattered)
        if made.dtype != torch.bfloat16 or relative_error(made, truth) > 3e-2:
            wrong.append(f"mlp {made.dtype} {relative_error(made, truth)}")
        if grad:
            made.float().sum().backward()
    if grad:
        whole(x).sum().backward()
        own = layer.down.weight.grad
        if own.dtype != torch.float32 or relative_error(own, whole.down.weight.grad.chunk(size, 1)[rank]) > 5e-2:
            wrong.append("gradient")
    layer, narrow = (each.to(x.device) for each in attention())
    with torch.no_grad():
        truth = narrow(mine.detach().bfloat16(), sequence_parallel=scattered)
    with torch.set_grad_enabled(grad), torch.autocast(kind, torch.bfloat16):
        made = layer(mine.detach().requires_grad_(grad), sequence_parallel=scattered)
    if made.dtype != torch.bfloat16 or relative_error(made, truth) > 3e-2:
        wrong.append(f"attention {made.dtype} {relative_error(made, truth)}")
    return wrong


@pytest.mark.parametrize("scattered", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_layers_compute_in_its_dtype(world, grad, scattered):
    assert world(body, 2, args=(grad, scattered)) == [[]] * 2


def decoding() -> bool:
    """With a cache of the dtype that the layer's weights have."""
    layer, narrow = attention()
    x = drawn(2, 3, 1, HIDDEN)
    results = []
    for each, kind in ((layer, torch.float32), (narrow, torch.bfloat16)):
        cache, each = each.make_cache(1, 8), each.to(x.device)
        with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=kind == torch.float32):
            results.append([each(x[step : step + 1].to(kind), cache=cache, sequence_parallel=False) for step in range(3)])
    return all(relative_error(first, second) < 3e-2 for first, second in zip(*results, strict=True))


def test_decoding_under_autocast(world):
    assert world(decoding, 2) == [True] * 2


OPERATORS = {
    **{f"ag_gemm {method}": (ag_gemm, method) for method in ("fused", "pipelined", "split")},
    **{f"gemm_rs {method}": (gemm_rs, method) for method in ("pipelined", "split", "small")},
    **{f"gemm_ar {method}": (gemm_ar, method) for method in ("all_reduce", "split", "small")},
}


def operator_body(name: str) -> list[bool]:
    """fp32 stays fp32: with an output of other strides, and in the backward."""
    operator, method = OPERATORS[name]
    kind, size = triton_dist.device().type, triton_dist.world_size()
    a, b = drawn(1 + triton_dist.rank(), 8, 64), drawn(7, 64, 16)
    plain = operator(a, b, method=method)
    memory = torch.empty(plain.shape[0], 32, device=a.device)
    out = memory[:, :16] if operator is ag_gemm else memory.view(-1)[: plain.numel()].view(plain.shape)
    leaves = [tensor.clone().requires_grad_() for tensor in (a, b)]
    again = [tensor.clone().requires_grad_() for tensor in (a, b)]
    operator(*leaves, method=method).sum().backward()
    with torch.autocast(kind, torch.bfloat16):
        right = [relative_error(operator(a, b, method=method, out=out), plain) < 1e-5]
        operator(*again, method=method).sum().backward()
    assert size == 2
    return [*right, *(relative_error(one.grad, two.grad) < 1e-5 for one, two in zip(leaves, again, strict=True))]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_keep_their_dtype(world, name):
    assert world(operator_body, 2, args=(name,)) == [[True] * 3] * 2


def test_another_dtype_without_it_is_named():
    def call():
        return mlp()[1](torch.ones(4, HIDDEN, dtype=torch.bfloat16))

    with pytest.raises(InvalidArgumentError, match="it has to be"):
        triton_dist.simulate(call, world_size=1)
