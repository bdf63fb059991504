"""What all ranks recorded, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...errors import InvalidArgumentError
from ...runtime import world
from .clocks import SAME_CLOCK, Clock, ClockReading, measure_clock
from .tracks import Track, read_contents


@dataclass
class RankProfile:
    """What one rank recorded, by its own clock. dropped: records that found no room in its buffer."""

    rank: int
    tracks: list[Track]
    dropped: int = 0
    clock: Clock = SAME_CLOCK


@dataclass
class Profile:
    """What ranks recorded. task_names: the name of each type of task, by its number."""

    ranks: list[RankProfile]
    task_names: tuple[str, ...]

    def name(self, task_type: int) -> str:
        """Of a type of task: "task 7" for one without a name."""
        return self.task_names[task_type] if task_type < len(self.task_names) else f"task {task_type}"

    def type_numbers(self, names: Sequence[str]) -> set[int]:
        """The numbers of types of tasks. Raises InvalidArgumentError for a name that is not known."""
        unknown = [name for name in names if name not in self.task_names]
        if unknown:
            raise InvalidArgumentError(f"no task is called {unknown[0]!r}; the tasks are {', '.join(self.task_names)}")
        return {number for number, name in enumerate(self.task_names) if name in names}


def checked_names(task_names: object, what: str = "task_names") -> tuple[str, ...]:
    """Names of types of tasks as the user gave them. what: the argument. Raises InvalidArgumentError."""
    if isinstance(task_names, str) or not isinstance(task_names, Sequence) or not all(isinstance(name, str) for name in task_names):
        raise InvalidArgumentError(f"{what}={task_names!r} must be a list of names{', the first one of task 0' * (what == 'task_names')}")
    return tuple(task_names)


def read_clock() -> ClockReading | None:
    """This rank's clock beside rank 0's, where ranks have clocks of their own; every rank calls it. None where there is one for all."""
    return None if world.ranks_share_clock() else measure_clock()


def rank_profile(profiler_buffer: torch.Tensor, before: ClockReading | None = None, after: ClockReading | None = None) -> RankProfile:
    """What this rank recorded. before, after: its clock at two times around it; one stands for both. Raises InvalidArgumentError."""
    contents = read_contents(profiler_buffer)
    here = world.current_world()
    readings = [reading for reading in (before, after) if reading is not None]
    clock = Clock(readings[0], readings[-1]) if readings else SAME_CLOCK
    return RankProfile(0 if here is None else here.rank, contents.tracks, contents.dropped, clock)


def gather_profile(own: RankProfile, task_names: Sequence[str]) -> Profile:
    """What all ranks recorded; every rank calls it with its own. Without a world it is this one's."""
    here = world.current_world()
    ranks = [own] if here is None else here.gather(own)
    return Profile(ranks, checked_names(task_names))
