"""Inline PTX in every form of a run: for its time, recorded, from other schedules, and with a process a rank."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.sim.ptx.patterns import WORLD, one_shot, pair, stuck, two_shot
from tests.worlds.world import CpuProcessWorld
from triton_dist.errors import DeadlockError


def test_a_run_for_its_time():
    def timed():
        one_shot(1000)
        return triton_dist.rank()

    assert triton_dist.simulate(timed, WORLD, execute="timing") == list(range(WORLD))


@pytest.mark.parametrize("schedule", ["pct", "late", "straggler", "round_robin"])
def test_other_schedules(schedule):
    expected = sum(torch.arange(512) % 16 + rank for rank in range(WORLD)).float()
    for out in triton_dist.simulate(two_shot, WORLD, schedule=schedule, seed=3, check="all"):
        assert torch.equal(out.float(), expected)


def test_a_recorded_deadlock(tmp_path):
    page = tmp_path / "run.html"
    with pytest.raises(DeadlockError, match=r"pads\[1\] of rank 0 == 1; it is 0"):
        triton_dist.simulate(stuck, 2, report=str(page))
    assert "pads" in page.read_text()


@pytest.fixture(scope="module")
def processes():
    made = CpuProcessWorld()
    yield made
    made.close()


def test_a_process_a_rank(processes):
    expected = sum(torch.arange(1000) % 32 + rank for rank in range(2))
    for outs in processes(pair, 2, args=(1000,)):
        for call, out in enumerate(outs):
            assert torch.equal(out.float(), (expected + 2 * call).float())


def test_a_deadlock_of_processes(processes):
    with pytest.raises(DeadlockError, match=r"pads\[1\] of rank 0 == 1; it is 0"):
        processes(stuck, 2)
