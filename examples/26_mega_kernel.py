"""A decoding step of two layers over several ranks, in one kernel: attention over pages, the MLP, and their sums over the ranks.

Run it on simulated ranks with ``python examples/26_mega_kernel.py``, or with one process a rank, on GPUs or without any, by
``torchrun --nproc-per-node 2 examples/26_mega_kernel.py``. Three steps are compared with torch, token by token.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import triton_dist
from triton_dist.mega_triton_kernel import ModelBuilder

HIDDEN, INNER, HEADS, DIM = 48, 96, 4, 16
SEQUENCES, PAGE, PAGES = 3, 4, 6
"""PAGES: of each sequence."""
DTYPE = torch.float32


@dataclass
class Layer:
    """Weights of all ranks together, from which each takes its part."""

    norm: torch.Tensor
    qkv: torch.Tensor
    """(3, heads, DIM, HIDDEN), as many heads of k and v as of q."""
    out: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor

    @classmethod
    def random(cls, seed: int) -> Layer:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int, depth: int = 1) -> torch.Tensor:
            return torch.randn(shape, generator=generator, dtype=DTYPE) / depth**0.5

        return cls(
            normal(HIDDEN), normal(3, HEADS, DIM, HIDDEN, depth=HIDDEN), normal(HIDDEN, HEADS * DIM, depth=HIDDEN), normal(HIDDEN),
            normal(2, INNER, HIDDEN, depth=HIDDEN), normal(HIDDEN, INNER, depth=INNER),
        )  # fmt: skip


def step(made: ModelBuilder, layers: list[Layer], x: torch.Tensor, kv_lens: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """Makes the operations of one step, of this rank's heads and features; returns where the result will be."""
    rank, ranks, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    heads, inner = HEADS // ranks, INNER // ranks
    mine = slice(rank * heads, (rank + 1) * heads)
    angle = torch.outer(torch.arange(PAGE * PAGES), 100.0 ** (-torch.arange(0, DIM, 2) / DIM)).repeat(1, 2)
    cos, sin, ones = angle.cos().to(device), angle.sin().to(device), torch.ones(DIM, dtype=DTYPE, device=device)

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=DTYPE, device=device)

    def own(weight: torch.Tensor) -> torch.Tensor:
        return weight.contiguous().to(device)

    for number, layer in enumerate(layers):
        normed, qkv = torch.empty_like(x), empty(SEQUENCES, 1, 3 * heads, DIM)
        made.make_rms_norm(x, own(layer.norm), normed, layer_id=number)
        made.make_qkv_proj(normed, own(layer.qkv[:, mine].reshape(-1, HIDDEN)), qkv.view(SEQUENCES, -1), number)
        query, attended = empty(SEQUENCES, 1, heads, DIM), empty(SEQUENCES, 1, heads, DIM)
        keys, values = (torch.zeros(SEQUENCES * PAGES, PAGE, heads, DIM, dtype=DTYPE, device=device) for _ in range(2))
        made.make_qk_norm_rope_update_kvcache(
            qkv, keys, values, tables, kv_lens, ones, ones, cos, sin, query, skip_q_norm=True, skip_k_norm=True, layer_id=number
        )
        made.make_flash_decode(query, keys, values, tables, kv_lens, attended, layer_id=number)
        # Each rank has a part of the sum; the all-reduce runs between the tiles of the products around it.
        part, total = made.create_symm_tensor((SEQUENCES, HIDDEN), DTYPE), empty(SEQUENCES, HIDDEN)
        made.make_o_proj(attended.view(SEQUENCES, -1), own(layer.out[:, rank * heads * DIM : (rank + 1) * heads * DIM]), part, number)
        made.make_allreduce(part, total, layer_id=number)
        middle, wide, active = torch.empty_like(x), empty(SEQUENCES, 2 * inner), empty(SEQUENCES, inner)
        made.make_add(x, total, middle, number)
        made.make_rms_norm(middle, own(layer.mlp_norm), normed, layer_id=number)
        made.make_fc1(normed, own(layer.gate_up[:, rank * inner : (rank + 1) * inner].reshape(-1, HIDDEN)), wide, number)
        made.make_silu_mul_up(wide, active, number)
        part, total = made.create_symm_tensor((SEQUENCES, HIDDEN), DTYPE), empty(SEQUENCES, HIDDEN)
        made.make_fc2(active, own(layer.down[:, rank * inner : (rank + 1) * inner]), part, number)
        made.make_allreduce(part, total, layer_id=number)
        x_next = torch.empty_like(x)
        made.make_add(middle, total, x_next, number)
        x = x_next
    return x


def expected(layers: list[Layer], tokens: torch.Tensor) -> torch.Tensor:
    """The last token's features by torch, in float64. tokens: (SEQUENCES, length, HIDDEN), all so far."""
    x, length = tokens.double(), tokens.shape[1]
    angle = torch.outer(torch.arange(length), 100.0 ** (-torch.arange(0, DIM, 2) / DIM)).repeat(1, 2).double()

    def turned(heads: torch.Tensor) -> torch.Tensor:
        first, second = heads.chunk(2, -1)
        return heads * angle.cos() + torch.cat((-second, first), -1) * angle.sin()

    for layer in layers:
        normed = F.rms_norm(x, (HIDDEN,), layer.norm.double(), 1e-6)
        q, k, v = torch.einsum("bth,nkdh->nbktd", normed, layer.qkv.double())
        attended = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + attended.transpose(1, 2).flatten(2) @ layer.out.double().T
        gate, up = torch.einsum("bth,nih->nbti", F.rms_norm(x, (HIDDEN,), layer.mlp_norm.double(), 1e-6), layer.gate_up.double())
        x = x + F.silu(gate) * up @ layer.down.double().T
    return x[:, -1]


def run() -> float:
    """One rank's host function: the largest error of three steps."""
    rank, ranks, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    layers = [Layer.random(seed) for seed in range(2)]
    made = ModelBuilder(rank, ranks, ranks, num_sms=8)
    x = torch.empty(SEQUENCES, HIDDEN, dtype=DTYPE, device=device)
    kv_lens = torch.zeros(SEQUENCES, dtype=torch.int32, device=device)
    tables = torch.arange(SEQUENCES * PAGES, dtype=torch.int32, device=device).view(PAGES, SEQUENCES).T.contiguous()
    result = step(made, layers, x, kv_lens, tables)
    made.compile()
    tokens = torch.randn(SEQUENCES, 3, HIDDEN, generator=torch.Generator().manual_seed(9), dtype=DTYPE)
    worst = 0.0
    for length in range(1, 4):
        kv_lens += 1
        x.copy_(tokens[:, length - 1])
        made.run()
        difference = (result.double().cpu() - expected(layers, tokens[:, :length])).abs()
        worst = max(worst, float(difference.nan_to_num(nan=math.inf).max()))
    made.finalize()
    return worst


def main() -> None:
    if "RANK" in os.environ:  # torchrun has started this process, one of several
        triton_dist.initialize()
        errors = {triton_dist.rank(): run()}
        triton_dist.finalize()
    else:
        errors = dict(enumerate(triton_dist.simulate(run, world_size=2, check="race")))
    for rank, error in errors.items():
        print(f"rank {rank}: three tokens through two layers, the largest error is {error:.1e}")
        assert error < 1e-4


if __name__ == "__main__":
    main()
