"""Where the bound of waits comes from, and that the simulator is not disturbed by it."""

from __future__ import annotations

import math

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError, NotInitializedError
from triton_dist.runtime import world
from triton_dist.runtime.wait_timeout import wait_timeout_or_default

VARIABLE = "TRITON_DIST_WAIT_TIMEOUT"


@pytest.mark.parametrize(
    "argument, variable, bound", [(None, None, None), (None, "", None), (None, " 2.5 ", 2.5), (3, "2.5", 3.0), (0.25, None, 0.25)]
)
def test_the_argument_comes_first(argument, variable, bound, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    assert wait_timeout_or_default(argument) == bound


@pytest.mark.parametrize("value", [0, -1, 0.0, math.nan, math.inf, 1e9, True, "3", [3]])
def test_bad_arguments(value):
    with pytest.raises(InvalidArgumentError, match="wait_timeout=.*number of seconds above 0"):
        wait_timeout_or_default(value)


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf", "2e6", "soon", "1,5"])
def test_bad_variables(text, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InvalidArgumentError, match=f"{VARIABLE}=.*seconds"):
        wait_timeout_or_default(None)


def test_the_simulator_takes_the_argument_and_ignores_the_variable(monkeypatch):
    monkeypatch.setenv(VARIABLE, "nonsense")

    def fn():
        triton_dist.initialize(wait_timeout=2)
        triton_dist.check()
        with pytest.raises(InvalidArgumentError):
            triton_dist.initialize(wait_timeout=-2)
        words = triton_dist.symm_zeros((1,), torch.int32)
        triton_dist.write_value(words[0], 4)
        triton_dist.check()
        triton_dist.finalize()
        return words.item()

    assert triton_dist.simulate(fn, 2) == [4, 4]


def test_check_outside_a_world():
    with pytest.raises(NotInitializedError, match=r"check\(\) needs a world"):
        triton_dist.check()


class FailedWorld:
    """As much of a world on GPUs as the neutral functions see of one that has failed."""

    def __init__(self, untold):
        self.untold, self.bounds, self.checked = untold, [], 0

    def raise_failure(self):
        raise TimeoutError("a wait timed out")

    def check(self):
        self.checked += 1

    def set_wait_timeout(self, seconds):
        self.bounds.append(seconds)

    def close(self):
        return TimeoutError("a wait timed out") if self.untold else None


CALLS = {
    "check": triton_dist.check,
    "rank": triton_dist.rank,
    "symm_zeros": lambda: triton_dist.symm_zeros((1,), torch.int32),
    "synchronize": triton_dist.synchronize,
    "Stream": triton_dist.Stream,
    "write_value": lambda: triton_dist.write_value(torch.zeros(1, dtype=torch.int32), 1),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_raises_what_went_wrong(call, monkeypatch):
    monkeypatch.setattr(world, "_process_world", FailedWorld(untold=False))
    for _ in range(2):
        with pytest.raises(TimeoutError, match="a wait timed out"):
            CALLS[call]()


@pytest.mark.parametrize("untold", [True, False])
def test_a_failed_world_can_be_left(untold, monkeypatch):
    monkeypatch.setattr(world, "_process_world", FailedWorld(untold))
    if untold:
        with pytest.raises(TimeoutError):
            triton_dist.finalize()
    else:
        triton_dist.finalize()
    assert not world.is_initialized()


def test_initialize_again_changes_the_bound(monkeypatch):
    joined = FailedWorld(untold=False)
    monkeypatch.setattr(world, "_process_world", joined)
    monkeypatch.setenv(VARIABLE, "nonsense")
    triton_dist.initialize()
    triton_dist.initialize(wait_timeout=7)
    assert joined.bounds == [7.0]
