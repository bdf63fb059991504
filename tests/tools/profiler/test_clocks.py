"""Clocks of ranks on simulated GPUs whose clocks are off, and the arithmetic."""

from __future__ import annotations

from unittest import mock

import pytest

import triton_dist
from triton_dist.errors import InvalidArgumentError, NotInitializedError
from triton_dist.sim.machine import Machine
from triton_dist.sim.program import Program
from triton_dist.tools.profiler import Clock, ClockReading, measure_clock
from triton_dist.tools.profiler.clocks import best_of_gpu, best_reading

AHEAD = (0, 7_000_000_000_000, -3_000_000)
"""Nanoseconds that the clocks of three ranks are ahead."""


def skewed(drift: float):
    """Each rank's clock is off by its number of AHEAD, and runs faster by its rank times ``drift``."""

    def look(self: Program) -> int:
        self.settle()
        return int(Machine.recorded_time(self.machine, self.clock) * (1 + drift * self.rank)) + AHEAD[self.rank]

    return mock.patch.object(Program, "look_at_clock", look)


@pytest.mark.parametrize("world_size", [2, 3])
def test_offsets_are_found_within_their_bounds(world_size):
    with skewed(0.0):
        readings = triton_dist.simulate(measure_clock, world_size, check="race")
    assert readings[0].offset == readings[0].bound == 0.0
    for rank, reading in enumerate(readings[1:], 1):
        assert 0 < reading.bound < 20_000
        assert abs(reading.offset - AHEAD[rank]) <= reading.bound


def test_clocks_that_drift_are_followed_between_two_readings():
    drift = 1e-3

    def run():
        before = measure_clock(8)
        for _ in range(5):
            after = measure_clock(8)
        return Clock(before, after)

    with skewed(drift):
        clocks = triton_dist.simulate(run, 2)
    first, last = clocks[1].before, clocks[1].after
    assert last.offset - first.offset > 100, "the clocks have gone apart"
    for time in (first.at, (first.at + last.at) // 2, last.at):
        true = (time - AHEAD[1]) / (1 + drift)
        assert abs(clocks[1].aligned(time) - true) <= clocks[1].bound
    assert clocks[0].aligned(123) == 123


def test_the_exchange_that_took_least_counts():
    """Messages under way for 10 there and 30 back, then 500 and 2: offset 1000, at most 20 off; and one that waited 10,000 at the peer."""
    first = [[0, 45], [100, 607], [700, 10_750]]
    peer = [[1010, 1015], [1600, 1605], [1710, 11_710]]
    reading = best_reading(first, peer, resolution=1.0)
    assert (reading.offset, reading.bound, reading.at) == (990, 20.5, 1010)
    assert abs(reading.offset - 1000) <= reading.bound


def test_one_reading_stands_for_both():
    reading = ClockReading(at=50, offset=10, bound=3.0, resolution=2.0)
    clock = Clock(reading, reading)
    assert (clock.aligned(70), clock.bound) == (60, 5.0)


def test_times_since_1970_keep_their_nanoseconds():
    """1.8e18 is far beyond what a float can tell single nanoseconds of."""
    start = 1_800_000_000_000_000_000
    reading = best_reading([[start, start + 200]], [[start + 5_000_107, start + 5_000_107]], resolution=1.0)
    assert (reading.at, reading.offset, reading.bound) == (start + 5_000_107, 5_000_007, 100.5)
    clock = Clock(reading, ClockReading(reading.at + 1_000_000_000, 5_001_007, 100.0, 1.0))
    assert clock.aligned(reading.at + 500_000_001) == reading.at + 500_000_001 - 5_000_507


@pytest.mark.parametrize("rounds", [0, -1, 2.5, None])
def test_rounds_that_make_no_sense(rounds):
    with pytest.raises(InvalidArgumentError, match="measure_clock: rounds="):
        triton_dist.simulate(lambda: measure_clock(rounds), 2)


def test_it_needs_a_world():
    with pytest.raises(NotInitializedError, match="measure_clock needs a world"):
        measure_clock()


def test_ranks_on_one_gpu_have_one_reading():
    """Ranks 0 and 2 on one GPU, 1 and 3 on another: rank 0's is exact, and of the others' the one that was disturbed least counts."""
    exact, torn = ClockReading(900, 0, 0.0, 32.0), ClockReading(5_000, 7_000_000, 9e6, 64.0)
    good, poor = ClockReading(300, -50, 800.0, 32.0), ClockReading(400, 20_000, 3e5, 16.0)
    said = [("first", exact), ("second", poor), ("first", torn), ("second", good)]
    assert [best_of_gpu(rank, said) for rank in range(4)] == [
        exact, ClockReading(300, -50, 800.0, 16.0), ClockReading(900, 0, 0.0, 64.0), good,
    ]  # fmt: skip
    no_gpu = [(None, exact), (None, torn)]
    assert best_of_gpu(1, no_gpu) == torn
