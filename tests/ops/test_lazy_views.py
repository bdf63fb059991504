"""Lazily negated and conjugated views, whose memory does not hold what they read as: operators read their values, and write none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError
from triton_dist.ops import (
    activate,
    ag_gemm,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gemm_ar,
    gemm_rs,
    reduce_scatter,
    rotary,
)
from triton_dist.ops.gemm.epilogues import Epilogue

COLLECTIVES = {"all_reduce": all_reduce, "all_gather": all_gather, "reduce_scatter": reduce_scatter, "all_to_all": all_to_all}


def negated(values: torch.Tensor) -> torch.Tensor:
    """A view that reads as ``values``."""
    return torch._neg_view(-values)


def collective_body() -> list[str]:
    """Which calls were wrong."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    values = [torch.arange(1.0, 1 + 8 * size, device=device) * (1 + other) for other in range(size)]
    part = slice(8 * rank, 8 * rank + 8)
    truths = {
        "all_reduce": sum(values),
        "all_gather": torch.cat(values),
        "reduce_scatter": sum(values)[part],
        "all_to_all": torch.cat([value[part] for value in values]),
    }
    wrong = []
    for name, operator in COLLECTIVES.items():
        for method in ("auto", "ll", "one_shot"):
            for _ in range(2):  # the second time from what was kept
                plain = operator(values[rank], out=torch.empty_like(truths[name]), method=method)
                lazy = operator(negated(values[rank]), out=torch.empty_like(truths[name]), method=method)
                if not torch.equal(plain, truths[name]) or not torch.equal(lazy, truths[name]):
                    wrong.append(f"{name} {method}")
    for source in range(size):
        x = negated(values[rank].clone())
        if not torch.equal(broadcast(x, src=source), values[source]):
            wrong.append("broadcast")
    return wrong


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_collectives_read_what_a_view_says(world, world_size):
    assert world(collective_body, world_size) == [[]] * world_size


def product_body() -> list[str]:
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    generator = torch.Generator().manual_seed(3)
    everyone = torch.randint(-4, 4, (size, 16 * size, 16), generator=generator).to(device, torch.float32)
    b, bias = torch.randint(-4, 4, (16, 16), generator=generator).to(device, torch.float32), torch.arange(16.0, device=device)
    mine, total = everyone[rank], everyone.sum(0) @ b + bias
    rows = slice(16 * rank, 16 * rank + 16)
    wrong = []
    for _ in range(3):  # on GPUs the third one is replayed
        for made, truth in (
            (gemm_rs(negated(mine), negated(b), bias=negated(bias)), total[rows]),
            (gemm_ar(negated(mine), negated(b), bias=negated(bias)), total),
            (ag_gemm(negated(mine[:16].contiguous()), negated(b)), torch.cat([one[:16] for one in everyone]) @ b),
            (activate(negated(mine), negated(bias), function="relu", gated=False), torch.relu(mine + bias)),
        ):
            if not torch.equal(made, truth):
                wrong.append(str(tuple(truth.shape)))
    same = torch.zeros(1, dtype=torch.int64, device=device)
    turned = rotary(negated(mine), same.expand(len(mine)).contiguous(), torch.zeros(8, device=device), rotated=1, bias=negated(bias))
    return wrong if torch.equal(turned, mine + bias) else [*wrong, "rotary"]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_products_read_what_a_view_says(world, world_size):
    assert world(product_body, world_size) == [[]] * world_size


def refused_body() -> list[str]:
    size = triton_dist.world_size()
    x, b = torch.ones(16 * size, 16, device=triton_dist.device()), torch.ones(16, 16, device=triton_dist.device())
    view = torch._neg_view
    calls = {
        **{name: lambda call=call: call(x, out=view(torch.empty_like(call(x)))) for name, call in COLLECTIVES.items()},
        "broadcast": lambda: broadcast(x, out=view(torch.empty_like(x))),
        "ag_gemm": lambda: ag_gemm(x, b, out=view(ag_gemm(x, b))),
        "gemm_rs": lambda: gemm_rs(x, b, out=view(gemm_rs(x, b))),
        "gemm_ar": lambda: gemm_ar(x, b, out=view(gemm_ar(x, b))),
        "activate": lambda: activate(x, function="relu", gated=False, out=view(torch.empty_like(x))),
        "rotary": lambda: rotary(
            x, torch.zeros(len(x), dtype=torch.int64, device=x.device), b[0, :8].contiguous(), rotated=1, out=view(torch.empty_like(x))
        ),
        "epilogue": lambda: gemm_ar(x, b, epilogue=Epilogue(scaled, (view(b),))),
    }
    taken = []
    for name, call in calls.items():
        try:
            call()
            taken.append(name)
        except InvalidArgumentError as error:
            if "view" not in str(error):
                taken.append(str(error))
    return taken


@triton_dist.jit
def scaled(tile, scale):
    return tile * 2


@pytest.mark.parametrize("world_size", [1, 2])
def test_no_operator_writes_to_a_view(world, world_size):
    assert world(refused_body, world_size) == [[]] * world_size


def moving_body(dtype: torch.dtype) -> bool:
    """Conjugated numbers go over the links as they read."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    values = [torch.complex(torch.ones(6), torch.arange(6.0) + other).to(triton_dist.device(), dtype) for other in range(size)]
    gathered = all_gather(values[rank].conj())
    given = values[rank].conj().clone() if rank else values[rank].conj()
    return torch.equal(gathered, torch.cat(values).conj()) and torch.equal(broadcast(given), values[0].conj())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugated_numbers(world, dtype):
    assert world(moving_body, 3, args=(dtype,)) == [True] * 3


def symmetric_body(lazily: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
    """Copies, and views of a peer's memory."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    x = triton_dist.symm_zeros((2, 4), torch.complex64)
    x.fill_(1 + rank + 2j)
    barrier()
    peer = (rank + 1) % size
    theirs = torch.full_like(x, 1 + peer + 2j)
    seen = {"peer": triton_dist.symm_peer(lazily(x), peer), "peer, in part": triton_dist.symm_peer(lazily(x)[1:, ::2], peer)}
    truth = {"peer": lazily(theirs), "peer, in part": lazily(theirs)[1:, ::2]}
    for name in ("copied from", "copied to", "copied from and to"):
        target = torch.zeros_like(x)
        truth[name] = theirs if name.endswith("from and to") else lazily(theirs)
        source = triton_dist.symm_peer(x, peer)
        triton_dist.copy_async(lazily(target) if name.endswith("to") else target, lazily(source) if "from" in name else source)
        seen[name] = target
    triton_dist.synchronize()
    wrong = [name for name in truth if not torch.equal(seen[name], truth[name])]
    barrier()
    return wrong


@pytest.mark.parametrize("lazily", [torch.conj, torch._neg_view, torch.resolve_conj])
def test_symmetric_memory_is_read_as_a_view_says(world, lazily):
    assert world(symmetric_body, 2, args=(lazily,)) == [[]] * 2
