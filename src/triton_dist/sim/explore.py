"""``explore``: the same program under many schedules, until one fails or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InvalidArgumentError
from .machine import Machine
from .minimize import minimize
from .progress import shown
from .schedules import SCHEDULES, Pct, Schedule, find_schedule
from .schedules.policy import Policy
from .simulate import simulate

DEFAULT_SCHEDULES = ("random", "pct", "late", "straggler")
"""What each seed is run with: taking turns has no seed, and finds less."""


@dataclass(frozen=True)
class Exploration:
    """What ``explore`` ran without finding anything. runs: schedules tried. seconds: that took. complete: whether all of them were."""

    runs: int
    seconds: float
    complete: bool


@dataclass
class _Measured(Schedule):
    """Another schedule, of whose runs the number of turns is kept."""

    base: Schedule
    turns: int = 0

    @property
    def loop(self) -> str:  # type: ignore[override]
        return self.base.loop

    def policy(self, seed: int, world_size: int) -> Policy | None:
        return self.base.policy(seed, world_size)

    def begins(self, machine: Machine) -> None:
        self.base.begins(machine)

    def ended(self, machine: Machine) -> None:
        self.base.ended(machine)
        self.turns = machine.steps


def explore(
    fn: Callable[..., Any],
    world_size: int,
    *,
    seeds: int | Iterable[int] = 50,
    budget: float | None = None,
    schedules: Sequence[str | Schedule] = DEFAULT_SCHEDULES,
    progress: bool | Callable[[int, int], object] | None = None,
    minimize_seconds: float = 20.0,
    **options: Any,
) -> Exploration:
    """Run ``simulate(fn, world_size, **options)`` under many schedules; the first error ends it.

    seeds: how many, or which; each with every one of ``schedules``, in this order. budget: seconds after which no further run begins; None
    for no limit.
    progress: True shows a bar (by ``rich``, or lines of text where that is not installed) on standard error; a function is called
    before each run with how many have ended and how many there are.
    minimize_seconds: how long to look for a schedule with few context switches that fails in the same way, by running ``fn`` again; 0 to
    leave that out.
    options: further arguments of ``simulate``, such as ``check="race"``.
    The error is what ``simulate`` raised, with a note that says by which seed and schedule the same run comes again, and one that says how
    many context switches are needed, which ones, and by which ``Replay`` they come again.
    Raises InvalidArgumentError for a bad argument.
    """
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen or isinstance(seeds, bool):
        raise InvalidArgumentError(f"seeds={seeds!r}; pass how many seeds to try, at least 1, or the seeds")
    if not schedules or isinstance(schedules, str):
        raise InvalidArgumentError(f"schedules={schedules!r}; choose at least one of {SCHEDULES}")
    try:
        found = [find_schedule(schedule) for schedule in schedules]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"schedules={list(schedules)}: {error}") from None
    if budget is not None and not budget > 0:
        raise InvalidArgumentError(f"budget={budget!r}; it has to be a positive number of seconds, or None")
    for name in ("seed", "schedule"):
        if name in options:
            raise InvalidArgumentError(f"{name}={options[name]!r}: explore chooses it; pass seeds= and schedules=")
    # Taking turns has no seed, so one run tells all.
    plan = [(seed, schedule) for seed in chosen for schedule in found if schedule.loop != "round_robin" or seed == chosen[0]]
    begin, runs, turns = time.monotonic(), 0, 0
    with shown(progress, len(plan)) as tell:
        for seed, schedule in plan:
            if budget is not None and runs and time.monotonic() - begin > budget:
                break
            tell(runs, len(plan))
            if isinstance(schedule, Pct) and schedule.length is None and turns:
                schedule = replace(schedule, length=turns)
            measured = _Measured(schedule)
            try:
                simulate(fn, world_size, seed=seed, schedule=measured, **options)
            except Exception as error:
                error.add_note(f"in run {runs + 1} of explore; again by simulate(..., seed={seed}, schedule={str(schedule)!r})")
                if minimize_seconds > 0:
                    # The report stays that of the failing run.
                    others = {name: value for name, value in options.items() if name != "report"}
                    minimal = minimize(fn, world_size, schedule, seed, error, others, seconds=minimize_seconds)
                    if minimal is not None:
                        error.add_note(str(minimal))
                raise
            turns = max(turns, measured.turns)
            runs += 1
    return Exploration(runs, time.monotonic() - begin, runs == len(plan))
