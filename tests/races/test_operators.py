"""Shipped operators and examples are silent under all checks, called again and again, whatever the schedule."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

import triton_dist
from triton_dist import simulate
from triton_dist.ops import ag_gemm, all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.ops.gemm.plan import OWN_METHODS

pytestmark = pytest.mark.filterwarnings("error::triton_dist.errors.MisuseWarning")
EXAMPLES = Path(__file__).parents[2] / "examples"


def gather_twice(rows: int) -> None:
    for call in range(2):
        x = torch.full((rows, 3), float(10 * call + triton_dist.rank()))
        out = all_gather(x)
        assert [row[0] for row in out[::rows].tolist()] == [10.0 * call + peer for peer in range(triton_dist.world_size())]


def exchange_twice(rows: int) -> None:
    """The other collectives, on one stream in turn; each keeps its own memory."""
    size, rank = triton_dist.world_size(), triton_dist.rank()
    for call in range(2):
        x = torch.full((size * rows, 3), float(10 * call + rank))
        total = float(size * 10 * call + size * (size - 1) // 2)
        assert reduce_scatter(x)[-1].tolist() == [total] * 3
        assert [all_reduce(x, method=method)[-1, 0].item() for method in ("one_shot", "two_shot")] == [total] * 2
        assert all_to_all(x)[::rows, 0].tolist() == [10.0 * call + peer for peer in range(size)]
        out, received = all_to_all(x, torch.arange(size), capacity=size * size)
        assert received.tolist() == [rank] * size
        assert out[: size * rank : max(rank, 1), 0].tolist() == ([10.0 * call + peer for peer in range(size)] if rank else [])
        assert broadcast(x, size - 1)[0, 0].item() == 10.0 * call + size - 1


def multiply_twice(method: str) -> None:
    a, b = torch.ones(70, 32), torch.ones(32, 40)
    for _ in range(2):
        assert ag_gemm(a, b, method=method).sum().item() == triton_dist.world_size() * 70 * 40 * 32


def barriers() -> None:
    word = triton_dist.symm_zeros((1,), torch.float32)
    for _ in range(3):
        word.add_(1)
        barrier()
        assert triton_dist.symm_peer(word, 0).clone().item() >= 1
        barrier()


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("schedule", ["random", "straggler"])
def test_all_gather(world_size, schedule):
    simulate(gather_twice, world_size, args=(50,), check="all", schedule=schedule, seed=world_size)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", ["random", "straggler"])
def test_the_other_collectives(world_size, schedule):
    simulate(exchange_twice, world_size, args=(50,), check="all", schedule=schedule, seed=world_size)


@pytest.mark.parametrize("method", OWN_METHODS)
@pytest.mark.parametrize("world_size", [2, 4])
def test_ag_gemm(method, world_size):
    for seed in range(2):
        simulate(multiply_twice, world_size, args=(method,), check="all", seed=seed)


@pytest.mark.parametrize("world_size", [1, 3])
def test_barrier(world_size):
    simulate(barriers, world_size, check="all")


def test_the_tutorial(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    tutorial = importlib.import_module("01_producer_consumer")
    for rank, out in enumerate(simulate(tutorial.run, 3, check="all")):
        assert torch.equal(out, tutorial.expected(rank, 3))
