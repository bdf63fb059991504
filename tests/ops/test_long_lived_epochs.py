"""Collectives that count their calls go on being right after so many calls that 32 bits have come round."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from triton_dist.ops import all_gather, all_reduce, all_to_all, barrier, broadcast, reduce_scatter
from triton_dist.ops.collectives.places import PlacedSpace
from triton_dist.ops.collectives.staging import Staging
from triton_dist.runtime.world import require_world

EPOCHS = (2**27 - 3, 2**28 - 3, 2**31 - 3, 2**32 - 3)
"""The first two: signs and ends of what a word has for a number beside a place."""


def pretend(epoch: int) -> None:
    """As if every collective had been called ``epoch`` times on this stream. An even step for those that count two a call."""
    epoch -= epoch % 2
    for (what, *_), space in require_world("a test").workspaces.items():
        if isinstance(space, PlacedSpace):
            space.places.fill_(torch.tensor(epoch) << 36)  # what has no room is dropped
            space.done.fill_(epoch)
            space.epochs.fill_(epoch)
        elif isinstance(space, Staging) or what == "barrier":  # others count nothing: a world may be older than this test
            arrived, counter = (space.arrived, space.epochs) if isinstance(space, Staging) else space[:2]
            arrived.fill_(epoch)
            counter.fill_(epoch)
    triton_dist.synchronize()


def body(epoch: int) -> list[list[int]]:
    rank, size, device, seen = triton_dist.rank(), triton_dist.world_size(), triton_dist.device(), []
    word, memory = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((64,), torch.int32)
    staged = {"method": "one_shot"}

    def call(number: int) -> None:
        x = torch.full((50,), 10 * number + rank, dtype=torch.int32, device=device)
        seen.append(
            [*all_gather(x, **staged)[::50].tolist(), *(all_reduce(x, method=method)[7].item() for method in ("one_shot", "two_shot"))]
        )
        parts = torch.full((size * 50,), 10 * number + rank, dtype=torch.int32, device=device)
        seen[-1] += [*all_to_all(parts, **staged)[::50].tolist(), reduce_scatter(parts, **staged)[7].item()]
        seen[-1] += [broadcast(x.clone(), size - 1, **staged)[7].item()]
        placed = memory[: 16 * (number % 3 + 1)].fill_(10 * number + rank)
        seen[-1].append(all_reduce(placed, out=placed, method="two_shot")[7].item())
        word.fill_(number)
        barrier()
        seen[-1].append(triton_dist.symm_peer(word, 0).clone().item())
        barrier()

    call(0)
    triton_dist.synchronize()
    barrier()
    triton_dist.synchronize()
    pretend(epoch)
    triton_dist.symm_zeros((1,), torch.int32)  # the hosts meet
    for number in range(1, 7):
        call(number)
    return seen


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_counters_come_round(world, world_size, epoch):
    expected = []
    for number in range(7):
        parts = [10 * number + rank for rank in range(world_size)]
        expected.append([*parts, sum(parts), sum(parts), *parts, sum(parts), parts[-1], sum(parts), number])
    assert world(body, world_size, args=(epoch,)) == [expected] * world_size


@pytest.mark.parametrize("seed", range(3))
def test_no_data_race_when_they_do(seed):
    triton_dist.simulate(body, 3, args=(EPOCHS[0],), seed=seed, check="race")
