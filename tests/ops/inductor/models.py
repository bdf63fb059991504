"""Tensor-parallel functions of torch's functional collectives, as their ranks call them."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.nn.functional import linear, silu

Tensor = torch.Tensor


def gather(x: Tensor, dim: int = 0) -> Tensor:
    return funcol.all_gather_tensor_autograd(x, dim, dist.group.WORLD)


def scatter(x: Tensor, dim: int = 0, how: str = "sum") -> Tensor:
    return funcol.reduce_scatter_tensor_autograd(x, how, dim, dist.group.WORLD)


def reduce(x: Tensor, how: str = "sum") -> Tensor:
    return funcol.all_reduce(x, how, dist.group.WORLD)


def gathered_product(x: Tensor, w: Tensor) -> Tensor:
    return gather(x) @ w


def gathered_linear(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return linear(gather(x), w, bias)


def gathered_sequence(x: Tensor, w: Tensor) -> Tensor:
    return linear(gather(x, 1), w)


def gathered_batch(x: Tensor, w: Tensor) -> Tensor:
    return linear(gather(x, 0), w)


def scattered_product(x: Tensor, w: Tensor) -> Tensor:
    return scatter(x @ w)


def scattered_sequence(x: Tensor, w: Tensor) -> Tensor:
    return scatter(linear(x, w), 1)


def scattered_batch(x: Tensor, w: Tensor) -> Tensor:
    return scatter(linear(x, w), 0)


def averaged_product(x: Tensor, w: Tensor) -> Tensor:
    return scatter(x @ w, 0, "avg")


def reduced_product(x: Tensor, w: Tensor) -> Tensor:
    return reduce(x @ w)


def reduced_sequence(x: Tensor, w: Tensor) -> Tensor:
    return reduce(linear(x, w))


def projections(x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = gather(x)
    return linear(rows, q), linear(rows, k), linear(rows, v)


def residual(x: Tensor, w: Tensor) -> Tensor:
    rows = gather(x)
    return rows + torch.relu(rows @ w)


def block(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    rows = gather(x, 1)
    return x + scatter(linear(silu(linear(rows, gate)) * linear(rows, up), down), 1)


def mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return scatter(torch.relu(gather(x) @ up) @ down)
