"""A transformer block over several ranks: attention by heads, the MLP by its features, each rank with its part of the tokens in between.

Run it on simulated ranks with ``python examples/06_tensor_parallel.py``, or with one process a rank, on GPUs or without any, by
``torchrun --nproc-per-node 4 examples/06_tensor_parallel.py``. Two steps of training are compared with the same block on one device,
then the block continues a sequence token by token.
"""

from __future__ import annotations

import copy
import math
import os

import torch
from torch import nn

import triton_dist
from triton_dist.layers import TPMLP, TPAttention

HIDDEN, INNER, HEADS, KV_HEADS = 32, 64, 8, 4
TOKENS = 12
"""Of the whole sequence; the number of ranks divides it."""


class FullBlock(nn.Module):
    """The block on one device. Parts of the names are those of ``TPAttention.load_full_state`` and ``TPMLP.load_full_state``."""

    def __init__(self) -> None:
        super().__init__()
        size = HIDDEN // HEADS
        columns = {"q": HEADS * size, "k": KV_HEADS * size, "v": KV_HEADS * size, "o": HIDDEN}
        self.attention = nn.ModuleDict({f"{name}_proj": nn.Linear(HIDDEN, count, bias=False) for name, count in columns.items()})
        self.mlp = nn.ModuleDict({f"{name}_proj": nn.Linear(HIDDEN, INNER, bias=False) for name in ("gate", "up")})
        self.mlp["down_proj"] = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (tokens, HIDDEN)."""
        q, k, v = (self.attention[f"{name}_proj"](x).view(1, len(x), -1, HIDDEN // HEADS).transpose(1, 2) for name in "qkv")
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.attention["o_proj"](context.transpose(1, 2).reshape(len(x), HIDDEN))
        return x + self.mlp["down_proj"](nn.functional.silu(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x))


class Block(nn.Module):
    """The same over all ranks."""

    def __init__(self, full: FullBlock) -> None:
        super().__init__()
        self.attention = TPAttention(HIDDEN, HEADS, KV_HEADS)
        self.mlp = TPMLP(HIDDEN, INNER)
        self.attention.load_full_state(full.attention.state_dict())
        self.mlp.load_full_state(full.mlp.state_dict())

    def forward(self, x: torch.Tensor, **options) -> torch.Tensor:
        """x: this rank's tokens."""
        form = options.get("sequence_parallel")
        x = x + self.attention(x, **options)
        return x + self.mlp(x, sequence_parallel=form)


def run() -> tuple[float, float]:
    """One rank's host function; returns the largest relative errors of the trained weights, and of the tokens that were decoded."""
    rank, world_size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    generator = torch.Generator().manual_seed(0)
    full = FullBlock()
    for parameter in full.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5
    x, target = (torch.randn(TOKENS, HIDDEN, generator=generator) for _ in range(2))
    block, reference = Block(full), copy.deepcopy(full).double()

    own = slice(rank * TOKENS // world_size, (rank + 1) * TOKENS // world_size)
    for model, rows in ((reference, slice(None)), (block, own)):
        like = next(model.parameters())
        inputs, wanted = x[rows].to(like), target[rows].to(like)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            ((model(inputs) - wanted).square().sum() / x.numel()).backward()
            optimizer.step()
    trained = {**block.attention.full_state(), **block.mlp.full_state()}
    expected = {**reference.attention.state_dict(), **reference.mlp.state_dict()}
    weights = max(relative_error(trained[name].cpu(), value) for name, value in expected.items())

    with torch.no_grad():
        cache = block.attention.make_cache(1, TOKENS)
        half = TOKENS // 2 // world_size * world_size
        block(x[:half].chunk(world_size)[rank].to(device), cache=cache)
        tokens = [block(token[None].to(device), cache=cache, sequence_parallel=False) for token in x[half:]]
        wanted = reference(x.double())[half:]
    return weights, relative_error(torch.cat(tokens).cpu(), wanted)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Infinite where something is NaN, which ``max`` of several errors would lose."""
    return ((found - expected).abs().nan_to_num(nan=math.inf).max() / expected.abs().max()).item()


def main() -> None:
    if "RANK" in os.environ:  # torchrun has started this process, one of several
        triton_dist.initialize()
        errors = {triton_dist.rank(): run()}
        triton_dist.finalize()
    else:
        errors = dict(enumerate(triton_dist.simulate(run, world_size=4)))
    for rank, (weights, tokens) in errors.items():
        print(f"rank {rank}: relative error of the trained weights {weights:.1e}, of the decoded tokens {tokens:.1e}")
        assert max(weights, tokens) < 1e-3


if __name__ == "__main__":
    main()
