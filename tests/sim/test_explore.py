"""Schedules are tried until one fails, and the one that failed can be run again."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import explore, simulate
from triton_dist.errors import InvalidArgumentError


@triton_dist.jit
def last_wins_kernel(word):
    tl.atomic_xchg(dl.symm_at(word, 0), dl.rank() + 1, sem="relaxed", scope="sys")


def highest_rank_wins() -> None:
    """Right only where the highest rank is the last to write."""
    word = triton_dist.symm_zeros((1,), torch.int32)
    torch.distributed.init_process_group("gloo")
    last_wins_kernel[(1,)](word)
    torch.distributed.barrier()
    if triton_dist.rank() == 0:
        assert word.item() == triton_dist.world_size(), "another rank came last"


def test_a_schedule_that_fails_is_found_and_comes_again():
    with pytest.raises(AssertionError, match="another rank") as caught:
        explore(highest_rank_wins, 2, seeds=40, schedules=("random",))
    note = next(note for note in caught.value.__notes__ if "explore" in note)
    seed = int(note.partition("seed=")[2].partition(",")[0])
    with pytest.raises(AssertionError, match="another rank"):
        simulate(highest_rank_wins, 2, seed=seed)


def test_every_seed_and_schedule_is_run_once():
    seen = []
    done = explore(lambda: None, 2, seeds=[3, 5], schedules=("random", "straggler", "round_robin"), progress=lambda *at: seen.append(at))
    assert (done.runs, done.complete) == (5, True) and seen == [(number, 5) for number in range(5)]


def test_a_budget_ends_it():
    done = explore(lambda: None, 2, seeds=100_000, budget=0.01)
    assert 1 <= done.runs < 200_000 and not done.complete


@pytest.mark.parametrize(
    "bad", [{"seeds": 0}, {"seeds": []}, {"seeds": True}, {"schedules": ("fifo",)}, {"schedules": ()}, {"budget": 0}, {"seed": 3}]
)
def test_bad_arguments_are_named(bad):
    with pytest.raises(InvalidArgumentError, match=next(iter(bad))):
        explore(lambda: None, 2, **bad)
