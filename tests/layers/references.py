"""Full layers in torch, and how far a split layer is from them."""

from __future__ import annotations

import torch
from torch import nn

from tests.differences import relative_error

FUNCTIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
}


def leaf(seed: int, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Random numbers on the CPU, the same on every rank for a seed."""
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def projections(sizes: dict[str, tuple[int, int]], biased: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Full weights and biases by name. sizes: (out, in) features."""
    state = {f"{name}.weight": leaf(200 + i, *size, dtype=dtype, scale=0.3) for i, (name, size) in enumerate(sizes.items())}
    biases = {f"{name}.bias": leaf(300 + i, size[0], dtype=dtype) for i, (name, size) in enumerate(sizes.items())}
    return state | (biases if biased else {})


def mlp_state(hidden: int, intermediate: int, gated: bool, biased: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    sizes = {"gate_proj": (intermediate, hidden)} if gated else {}
    return projections(sizes | {"up_proj": (intermediate, hidden), "down_proj": (hidden, intermediate)}, biased, dtype)


def linear(x: torch.Tensor, state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    return torch.nn.functional.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def mlp_reference(x: torch.Tensor, state: dict[str, torch.Tensor], activation: str, gated: bool) -> torch.Tensor:
    up = linear(x, state, "up_proj")
    inner = FUNCTIONS[activation](linear(x, state, "gate_proj")) * up if gated else FUNCTIONS[activation](up)
    return linear(inner, state, "down_proj")


def gradient_error(layer: nn.Module, expected: dict[str, torch.Tensor]) -> float:
    """The worst relative error of the layer's gradients; expected: those of the full weights, of which each rank has its part."""
    found = {name: parameter.grad.detach().cpu().double() for name, parameter in layer.named_parameters()}
    values = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    worst = 0.0
    # A layer that is given the full gradients as weights has its part of each where its own gradient has to be.
    layer.load_full_state(expected)
    for name, parameter in layer.named_parameters():
        worst = max(worst, relative_error(found[name], parameter.detach().cpu().double()))
        parameter.data.copy_(values[name])
    return worst


def attention_state(hidden: int, heads: int, kv_heads: int, head_dim: int, biased: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    columns = {name: (count * head_dim, hidden) for name, count in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads))}
    return projections(columns | {"o_proj": (hidden, heads * head_dim)}, biased, dtype)


def rotated(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """As complex numbers. x: (tokens, batch, heads, head_dim)."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] * theta ** (-torch.arange(half).double() / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None, None]
    return torch.cat([turned.real, turned.imag], dim=-1)


def attention_reference(
    x: torch.Tensor, state: dict[str, torch.Tensor], head_dim: int, causal: bool, theta: float | None, positions: torch.Tensor | None = None
) -> torch.Tensor:
    """x: (tokens, hidden) or (tokens, batch, hidden), fp64. Written out, without torch's attention."""
    tokens = x.shape[0]
    q, k, v = (
        linear(x, state, name).view(tokens, x.shape[1] if x.dim() == 3 else 1, -1, head_dim) for name in ("q_proj", "k_proj", "v_proj")
    )
    if theta is not None:
        where = torch.arange(tokens) if positions is None else positions
        q, k = rotated(q, where, theta), rotated(k, where, theta)
    k, v = (heads.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for heads in (k, v))
    scores = torch.einsum("sbhd,tbhd->bhst", q, k) / head_dim**0.5
    if causal:
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
    context = torch.einsum("bhst,tbhd->sbhd", scores.softmax(-1), v)
    return linear(context.reshape(*x.shape[:-1], -1), state, "o_proj")
