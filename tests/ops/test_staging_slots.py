"""Calls of one collective with different dtypes share its staging memory: in the same two slots, which Triton knows to be aligned."""

from __future__ import annotations

import importlib

import pytest
import torch
import triton.language as tl

import triton_dist
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from triton_dist.ops.collectives.plans import Plan
from triton_dist.ops.collectives.words import dense, word_of
from triton_dist.ops.team import Team, find_team

all_reduce_module = importlib.import_module("triton_dist.ops.collectives.all_reduce")
COLLECTIVES = "triton_dist.ops.collectives."
LAUNCHES = {
    "all_gather": ("all_gather", "gather_launch"),
    "all_reduce one_shot": ("all_reduce", "one_shot_launch"),
    "all_reduce two_shot": ("all_reduce", "two_shot_launch"),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter_launch"),
    "all_to_all": ("all_to_all", "equal_launch"),
    "broadcast": ("broadcast", "broadcast_launch"),
}
CALLS = [
    (torch.int8, 80), (torch.float32, 2), (torch.float64, 6), (torch.bfloat16, 10), (torch.int8, 3302), (torch.float64, 14),
    (torch.float16, 50),
]  # fmt: skip


def launch_of(collective: str, x: torch.Tensor, team: Team):
    module, name = LAUNCHES[collective]
    make, size = getattr(importlib.import_module(COLLECTIVES + module), name), team.size
    rows = {"all_gather": size * x.numel(), "reduce_scatter": x.numel() // size}.get(collective, x.numel())
    out = torch.empty(rows, dtype=x.dtype)
    if collective == "broadcast":
        return make(x, out, 0, team, None)
    plan = (Plan("one_shot"),) if "all_reduce" in collective else ()
    return make(x, out, team, None, *((tl.float32, "sum") if "reduce" in collective else ()), *plan)


def slots(collective: str) -> list[tuple[int, int, int]]:
    """Of each call: where its staging memory begins, elements of a slot, and bytes of an element."""
    team, seen = find_team(None, "a test"), []
    for dtype, count in CALLS:
        launch = launch_of(collective, torch.zeros(count, dtype=dtype), team)
        arguments = dict(zip(launch.kernel.arg_names, launch.arguments, strict=False))
        seen.append((arguments["staging"].data_ptr(), arguments["capacity"], arguments["staging"].element_size()))
    return seen


@pytest.mark.parametrize("collective", LAUNCHES)
def test_slots_are_whole_lines_and_the_same_for_every_dtype(collective):
    """A count that is a multiple of 16 is known to be one: what is loaded behind it, over the links, goes 16 bytes at a time."""
    bytes_of_slots: dict[int, set[int]] = {}
    for place, capacity, width in triton_dist.simulate(slots, 2, args=(collective,))[0]:
        assert capacity % 16 == 0 and place % 16 == 0
        bytes_of_slots.setdefault(place, set()).add(capacity * width)
    assert len(bytes_of_slots) > 1, "the memory has grown between the calls"
    assert all(len(sizes) == 1 for sizes in bytes_of_slots.values())


def calls_of_mixed_dtypes() -> bool:
    rank, size, device, right = triton_dist.rank(), triton_dist.world_size(), triton_dist.device(), []
    for dtype, count in CALLS * 2:
        x = torch.full((size * count,), rank + 1, device=device).to(dtype)
        total = size * (size + 1) // 2
        sums = [all_reduce(x, method="one_shot"), all_reduce(x, method="two_shot"), reduce_scatter(x, method="one_shot")]
        parts = torch.arange(1, size + 1, device=device).repeat_interleave(count)
        right += [(out, torch.full_like(out, total)) for out in sums] + [
            (all_to_all(x, method="one_shot"), parts.to(dtype)),
            (all_gather(x[:count], method="one_shot"), parts.to(dtype)),
        ]
        right.append((broadcast(x, size - 1, method="one_shot"), torch.full_like(x, size)))
    return all(torch.equal(out, expected) for out, expected in right)


@pytest.mark.parametrize("world_size", [2, 3])
def test_calls_of_mixed_dtypes(world, world_size):
    assert all(world(calls_of_mixed_dtypes, world_size))


@pytest.mark.parametrize("seed", range(2))
def test_calls_of_mixed_dtypes_do_not_race(seed):
    assert all(triton_dist.simulate(calls_of_mixed_dtypes, 3, seed=seed, check="race"))


def calls_by_grids_of_many_sizes(run_plan) -> list[bool]:
    """The pieces of a program move with the number of programs, and those that a grid leaves out have to count the call, too."""
    team, rank, right = find_team(None, "a test"), triton_dist.rank(), []
    for number, programs in enumerate((4, 1, 4, 2, 3, 1, 1, 4)):
        x = torch.full((64,), number + rank, dtype=torch.float32, device=triton_dist.device())
        run_plan(Plan("one_shot", programs), x, x, team, None, tl.float32, "sum")
        right.append(torch.equal(x, torch.full_like(x, team.size * number + team.size * (team.size - 1) // 2)))
    return right


@pytest.mark.parametrize("world_size", [2, 3])
def test_grids_of_many_sizes(world, world_size):
    assert all(map(all, world(calls_by_grids_of_many_sizes, world_size, args=(all_reduce_module.run_plan,))))


@pytest.mark.parametrize("seed", range(3))
def test_grids_of_many_sizes_do_not_race(seed):
    assert all(map(all, triton_dist.simulate(calls_by_grids_of_many_sizes, 3, args=(all_reduce_module.run_plan,), seed=seed, check="race")))


@pytest.mark.parametrize(
    "wrong", ["tl.store(epochs + tl.program_id(0), now)", "tl.store(epochs + tl.arange(0, 128), now, mask=tl.arange(0, 128) < 2)"]
)
def test_programs_that_do_not_count_a_call_are_named(wrong, tmp_path):
    twin = twin_of(all_reduce_module, tmp_path, "end_call(epochs, now)", wrong)
    with pytest.raises(errors.DataRaceError):
        triton_dist.simulate(calls_by_grids_of_many_sizes, 3, args=(twin.run_plan,), check="race")


def test_elements_that_are_only_said_to_be_conjugate_are_written_down():
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.view_as_real(dense(x.conj())).tolist() == [[1, -2], [3, 1]] and dense(x).data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    ("begin", "nbytes", "width"), [(0, 64, 8), (0, 12, 4), (8, 16, 8), (4, 16, 4), (2, 64, 2), (1, 64, 1), (0, 7, 1), (0, 0, 8)]
)
def test_words_are_as_wide_as_memory_allows(begin, nbytes, width):
    memory = torch.zeros(128, dtype=torch.uint8)
    found, dtype = word_of(nbytes, memory, memory[begin:])
    assert found == width == torch.empty((), dtype=dtype).element_size()
    assert memory[begin : begin + nbytes].view(dtype).numel() * width == nbytes
