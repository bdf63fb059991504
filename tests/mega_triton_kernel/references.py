"""What the tasks compute, by torch in float64, and inputs for them."""

from __future__ import annotations

import torch

import triton_dist

TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest error of a result, in units of the largest element of what is expected."""


class Random:
    """Tensors of normal numbers on this rank's device, the same for the same seed. dtype: of those that say no other."""

    def __init__(self, seed: int, dtype: torch.dtype = torch.float32) -> None:
        self.generator, self.dtype = torch.Generator().manual_seed(seed), dtype

    def __call__(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=self.generator) * scale).to(self.dtype).to(triton_dist.device())

    def permutation(self, count: int) -> torch.Tensor:
        return torch.randperm(count, generator=self.generator).int().to(triton_dist.device())


def nan_like(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """An output that shows where nothing was written."""
    return torch.full(shape, float("nan"), dtype=like.dtype, device=like.device)


def wide(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """In float64 on the host."""
    return [tensor.double().cpu() for tensor in tensors]


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x, weight = wide(x, weight)
    return x @ weight.T


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x, weight = wide(x, weight)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def silu_mul_up(x: torch.Tensor) -> torch.Tensor:
    gate, up = wide(x)[0].chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, soft_cap: float = 0.0, causal: bool = False
) -> torch.Tensor:
    """q: (batch, length, heads, head_dim); k, v: (batch, keys, kv_heads, head_dim)."""
    q, k, v = (tensor.permute(0, 2, 1, 3) for tensor in wide(q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if causal:
        length, keys = scores.shape[-2:]
        scores = scores.masked_fill(torch.arange(keys) > torch.arange(length)[:, None] + keys - length, float("-inf"))
    return (scores.softmax(-1) @ v).permute(0, 2, 1, 3)


def angles(positions: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, fp32 (positions, dim), on this rank's device."""
    angle = torch.outer(torch.arange(positions).float(), 100.0 ** (-torch.arange(0, dim, 2) / dim)).repeat(1, 2)
    return angle.cos().to(triton_dist.device()), angle.sin().to(triton_dist.device())


def rotary(x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: float64 (batch, length, heads, dim) on the host. positions: (batch, length)."""
    cos, sin = (table[positions][..., None, : x.shape[-1] // 2] for table in wide(cos, sin))
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
