"""``explore``: the same program under many schedules, until one fails or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError
from .machine import SCHEDULES
from .simulate import simulate


@dataclass(frozen=True)
class Exploration:
    """What ``explore`` ran without finding anything. runs: schedules tried. seconds: that took. complete: whether all of them were."""

    runs: int
    seconds: float
    complete: bool


def explore(
    fn: Callable[..., Any],
    world_size: int,
    *,
    seeds: int | Iterable[int] = 50,
    budget: float | None = None,
    schedules: Sequence[str] = ("random", "straggler"),
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> Exploration:
    """Run ``simulate(fn, world_size, **options)`` under many schedules; the first error ends it.

    seeds: how many, or which; each with every one of ``schedules``. budget: seconds after which no further run begins; None for no limit.
    progress: called before each run with how many have ended and how many there are. options: further arguments of ``simulate``, such
    as ``check="race"``.
    The error is what ``simulate`` raised, with a note that says by which seed and schedule the same run comes again.
    Raises InvalidArgumentError for a bad argument.
    """
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen or isinstance(seeds, bool):
        raise InvalidArgumentError(f"seeds={seeds!r}; pass how many seeds to try, at least 1, or the seeds")
    unknown = [name for name in schedules if name not in SCHEDULES]
    if unknown or not schedules:
        raise InvalidArgumentError(f"schedules={list(schedules)}; choose at least one of {SCHEDULES}")
    if budget is not None and not budget > 0:
        raise InvalidArgumentError(f"budget={budget!r}; it has to be a positive number of seconds, or None")
    for name in ("seed", "schedule"):
        if name in options:
            raise InvalidArgumentError(f"{name}={options[name]!r}: explore chooses it; pass seeds= and schedules=")
    # Taking turns has no seed, so one run tells all.
    plan = [(seed, name) for seed in chosen for name in schedules if name != "round_robin" or seed == chosen[0]]
    begin, runs = time.monotonic(), 0
    for seed, schedule in plan:
        if budget is not None and runs and time.monotonic() - begin > budget:
            break
        if progress is not None:
            progress(runs, len(plan))
        try:
            simulate(fn, world_size, seed=seed, schedule=schedule, **options)
        except Exception as error:
            error.add_note(f"in run {runs + 1} of explore; again by simulate(..., seed={seed}, schedule={schedule!r})")
            raise
        runs += 1
    return Exploration(runs, time.monotonic() - begin, runs == len(plan))
