"""Attempts: a rank whose call fails where the others make calls together, and what becomes of the world."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch.distributed as dist

import triton_dist
from tests.runtime.cuda.fake_driver import FakeDriver
from tests.runtime.cuda.fake_world import FakeWorld
from triton_dist.runtime.attempts import attempt
from triton_dist.runtime.cuda.watchdog import Watchdog
from triton_dist.runtime.peers import introduction, meet
from triton_dist.runtime.team import find_team
from triton_dist.runtime.wait_board import WaitBoard


class WatchedWorld(FakeWorld):
    """A fake world with a real wait board and watchdog."""

    def __init__(self) -> None:
        super().__init__()
        board = self.board = WaitBoard.create(self.rank, self.world_size, "", Path(tempfile.mkdtemp()))
        self._watchdog = Watchdog(board, meet(self.rank, self.gather(introduction(board))), board.blocks)

    def leave(self) -> None:
        assert self._watchdog is not None
        self._watchdog.stop()
        self._watchdog = None
        super().leave()


def failing_calls_leave_no_trace(fake: FakeDriver) -> None:
    """One rank fails at once, the others in the allocation that it does not come to; afterwards all allocate as ever."""
    world, last = WatchedWorld(), dist.get_world_size() - 1
    everyone = find_team(None, "test")
    words = world.heap.bytes_at(world.heap.words_address, 64)

    def act() -> int:
        if world.rank == last:
            raise ValueError(f"not on rank {last}")
        triton_dist.symm_zeros(3)
        return world.rank

    for _ in range(3):
        words.fill_(7)
        outcomes = attempt(everyone, act, 60.0, "test")
        assert outcomes[last].reason == f"ValueError: not on rank {last}" and not outcomes[last].hung
        assert all(outcome.reason and "failed" in outcome.reason for outcome in outcomes[:last]), outcomes
        assert words.tolist() == [0] * 64, "device barriers begin anew"
        assert triton_dist.symm_zeros(3).tolist() == [0] * 3
    outcomes = attempt(everyone, lambda: world.rank, 60.0, "test")
    assert [outcome.value for outcome in outcomes] == list(range(world.world_size))
    world.leave()


def teams_attempt_alone(fake: FakeDriver) -> None:
    """Only the members of a team take part; the words of device barriers of others stay."""
    world = WatchedWorld()
    words = world.heap.bytes_at(world.heap.words_address, 64)
    words.fill_(7)
    if world.rank in (0, 2):
        team = triton_dist.make_team([2, 0])

        def act() -> int:
            if world.rank == 2:
                raise ValueError("not on rank 2")
            triton_dist.symm_zeros(3, group=team)
            return world.rank

        first, second = attempt(team, act, 60.0, "test")
        assert first.reason == "ValueError: not on rank 2" and second.reason is not None
        assert triton_dist.symm_zeros(3, group=team).tolist() == [0] * 3
    assert words.tolist() == [7] * 64 and world.board.abort == 0
    world.leave()


SCENARIOS = [failing_calls_leave_no_trace, teams_attempt_alone]
