"""all_gather against concatenation, on every world size, odd sizes and dtypes, from several schedules; and its twins."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_gather

module = importlib.import_module("triton_dist.ops.collectives.all_gather")
SHAPES = [(1,), (3,), (7, 5), (64, 3), (1000,), (33, 128), (2, 3, 4, 5), (1,), (70, 1024)]


def part_of(rank: int, call: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * call + rank)
    return torch.randint(-100, 100, shape, generator=generator).to(triton_dist.device(), dtype)


def body(dtype: torch.dtype = torch.float32, shapes=SHAPES) -> bool:
    """One rank: calls of changing sizes, back to back; whether all gave what they should."""
    size, outs = triton_dist.world_size(), []
    for call, shape in enumerate(shapes):
        x = part_of(triton_dist.rank(), call, shape, dtype)
        expected = torch.cat([part_of(rank, call, shape, dtype) for rank in range(size)])
        outs.append((all_gather(x, method="one_shot"), expected))
    return all(torch.equal(out.view(torch.uint8), expected.view(torch.uint8)) for out, expected in outs)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint8])
def test_gathers(world, world_size, dtype):
    assert all(world(body, world_size, args=(dtype,), seed=world_size))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("schedule", ["random", "straggler"])
def test_on_every_schedule(seed, schedule):
    assert all(triton_dist.simulate(body, 4, seed=seed, schedule=schedule))


def into_given_memory() -> bool:
    size, device = triton_dist.world_size(), triton_dist.device()
    odd = torch.zeros(1 + 6 * size, dtype=torch.int16, device=device)[1:].view(2 * size, 3)  # aligned to two bytes only
    x = part_of(triton_dist.rank(), 0, (3, 2), torch.int16).t()  # not contiguous
    returned = all_gather(x, out=odd, method="one_shot")
    expected = torch.cat([part_of(rank, 0, (3, 2), torch.int16).t() for rank in range(size)])
    return returned is odd and torch.equal(odd, expected) and all_gather(torch.empty(0, 4, device=device)).shape == (0, 4)


@pytest.mark.parametrize("world_size", [2, 3])
def test_gathers_of_any_alignment(world, world_size):
    assert all(world(into_given_memory, world_size))


def from_odd_memory() -> bool:
    """Each rank's memory begins at another byte, so that the ranks see it as words of different width."""
    rank, size, right = triton_dist.rank(), triton_dist.world_size(), []
    for call, count in enumerate((40, 8192, 65_536, 65_537)):
        out = torch.zeros(size * count + 16, dtype=torch.uint8, device=triton_dist.device())[(0, 1, 4, 2)[rank % 4] :][: size * count]
        all_gather(part_of(rank, call, (count,), torch.uint8), out=out, method="one_shot")
        right.append((out, torch.cat([part_of(peer, call, (count,), torch.uint8) for peer in range(size)])))
    return all(torch.equal(out, expected) for out, expected in right)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_gathers_into_memory_of_other_alignment_on_each_rank(world, world_size):
    assert all(world(from_odd_memory, world_size))


def test_gathers_of_other_alignment_do_not_race():
    assert all(triton_dist.simulate(from_odd_memory, 3, check="race"))


def in_subgroups() -> bool:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank = triton_dist.rank()
    out = all_gather(torch.full((5,), rank, device=triton_dist.device()), group=groups[rank % 2], method="one_shot")
    return out.tolist() == [rank % 2] * 5 + [rank % 2 + 2] * 5


def test_gathers_in_subgroups(world):
    assert all(world(in_subgroups, 4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: all_gather(3), "has to be a tensor"),
        (lambda: all_gather(torch.tensor(3)), "at least one dimension"),
        (lambda: all_gather(torch.ones(3), out=torch.ones(3)), "it has to be (6,)"),
        (lambda: all_gather(torch.ones(3), out=torch.ones(6, dtype=torch.int32)), "it has to be (6,)"),
        (lambda: all_gather(torch.ones(3, 2), out=torch.ones(2, 6).t()), "contiguous"),
        (lambda: all_gather(torch.ones(3), group=3), "process group"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def outcomes(monkeypatch, tmp_path, right: str, wrong: str) -> Iterator[str]:
    twin = twin_of(module, tmp_path, right, wrong)
    monkeypatch.setattr(module, "all_gather_kernel", twin.all_gather_kernel)
    for seed, schedule in [(seed, schedule) for seed in range(8) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(body, 4, args=(torch.int32, [(64,)] * 6), seed=seed, schedule=schedule)
            yield "right" if all(results) else "wrong"
        except errors.TritonDistError as error:
            yield type(error).__name__


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("meet(arrived, peer_arrived, index, size, now, SIZE)", "tl.load(epochs)"),  # nobody waits
        ("now % 2 * capacity", "now % 1 * capacity"),  # one buffer: a peer may still read the call before
        ("end_call(epochs, now)", "end_call(epochs, now - 1)"),  # every call has the same epoch
    ],
)
def test_racy_twins_give_wrong_results_under_some_schedule(monkeypatch, tmp_path, right, wrong):
    assert "wrong" in outcomes(monkeypatch, tmp_path, right, wrong)


def test_a_hanging_twin_is_named(monkeypatch, tmp_path):
    right = "meet(arrived, peer_arrived, index, size, now, SIZE)"
    assert set(outcomes(monkeypatch, tmp_path, right, right.replace("now", "now + index"))) == {"DeadlockError"}
