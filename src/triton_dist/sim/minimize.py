"""The fewest switches that still make a program fail: the failing run is written down, and what is not needed is left out.

Delta debugging (Zeller and Hildebrandt, 2002) over the switches of the failing run, towards a run that keeps on with the same program, as
in Jalbert and Sen's "A trace simplification technique for effective debugging of concurrent programs" (FSE 2010).
"""

from __future__ import annotations

import hashlib
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataRaceError, TritonDistError
from .machine import Machine
from .schedules.policy import Policy
from .schedules.replay import Applied
from .schedules.spec import Replay, Schedule
from .schedules.trace import NamedCopies, Switch, Trace, Tracer
from .simulate import simulate

_SHOWN = 20
"""Switches that are told in words at most."""

_PASTED = 2000
"""Characters of a schedule up to which it is printed; a longer one goes to a file."""

MOST_RUNS = 400
"""Runs of the program that are made at most to find a schedule with few switches."""


@dataclass(frozen=True)
class Minimal:
    """A schedule with few switches that fails in the same way.

    replay: for ``simulate(schedule=...)``. switches: in words, in order. of: how many the failing run had. runs, seconds: that finding it
    took. complete: whether none of the switches can be left out; False where time or runs were used up before.
    """

    replay: Replay
    switches: tuple[str, ...]
    of: int
    runs: int
    seconds: float
    complete: bool

    def __str__(self) -> str:
        count = len(self.switches)
        needed = {0: "no context switch is needed", 1: "1 context switch is needed"}.get(count, f"{count} context switches are needed")
        bound = "" if self.complete else "; perhaps fewer, time was up"
        lines = [f"{needed} (of {self.of} in that run{bound}); again by simulate(..., schedule={self._schedule()!r})"]
        lines += [f"  {number}. {words}" for number, words in enumerate(self.switches[:_SHOWN], 1)]
        return "\n".join(lines + [f"  ... and {count - _SHOWN} more"] * (count > _SHOWN))

    def _schedule(self) -> str:
        """The schedule as text, or where it is too long to be copied, the name of a file that has it."""
        text = self.replay.text
        if len(text) <= _PASTED:
            return str(self.replay)
        path = Path(tempfile.gettempdir()) / f"triton_dist_schedule_{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
        path.write_text(text, encoding="utf-8")
        return f"replay:@{path}"


@dataclass(frozen=True)
class Recorded(Schedule):
    """Another schedule, whose runs are written down."""

    base: Schedule
    trace: Trace = field(default_factory=Trace)

    @property
    def loop(self) -> str:  # type: ignore[override]
        return self.base.loop

    def policy(self, seed: int, world_size: int) -> Policy | None:
        return self.base.policy(seed, world_size)

    def begins(self, machine: Machine) -> None:
        self.base.begins(machine)
        machine.tracer = Tracer(self.trace)
        machine.pending = NamedCopies(machine)


@dataclass(frozen=True)
class _Observed(Replay):
    """A replay that says which switches had an effect."""

    applied: list[Applied] = field(default_factory=list, compare=False)

    def policy(self, seed: int, world_size: int) -> Policy:
        return self.replaying(self.applied)


def kind_of(error: BaseException) -> tuple:
    """What two errors have in common that are of the same kind: class, and the place."""
    if isinstance(error, DataRaceError) and error.races:
        race = error.races[0]
        return (type(error), frozenset((race.earlier.line or race.earlier.who, race.later.line or race.later.who)))
    if isinstance(error, TritonDistError):
        return (type(error),)
    frames = traceback.extract_tb(error.__traceback__)
    return (type(error), (frames[-1].filename, frames[-1].lineno) if frames else None)


def minimize(
    fn: Callable[..., Any],
    world_size: int,
    schedule: Schedule,
    seed: int,
    error: BaseException,
    options: Mapping[str, Any],
    *,
    seconds: float = 20.0,
) -> Minimal | None:
    """Few switches with which ``simulate(fn, world_size, **options)`` fails as it does by ``schedule`` and ``seed``, with ``error``.

    Runs ``fn`` again and again, for about ``seconds`` and ``MOST_RUNS`` times at most. None if the failure does not come again so.
    """
    # The caller's time line has the run that failed.
    search = _Search(fn, world_size, seed, kind_of(error), {name: value for name, value in options.items() if name != "timeline"}, seconds)
    recorded = Recorded(schedule)
    if not search.fails(recorded) or not recorded.trace.complete:
        return None
    policy = schedule.policy(seed, world_size)
    search.pausing = policy is not None and policy.pauses_hosts
    all_switches, landing = recorded.trace.switches(), recorded.trace.landings
    applied = search.attempt([], ())
    if applied is None:
        applied = search.attempt(all_switches, ())
        if applied is None:
            search.landing = tuple(landing)
            applied = search.attempt(all_switches, search.landing)
        if applied is None:
            return None
        applied, complete = shrink(applied, lambda some: search.attempt([each.switch for each in some], search.landing), search.spent)
    else:
        complete = True
    return Minimal(
        search.replay([each.switch for each in applied], search.landing),
        tuple(each.words for each in applied),
        len(all_switches),
        search.runs,
        time.monotonic() - search.begin,
        complete,
    )


class _Search:
    """Runs of one program that fails, and how many there were."""

    def __init__(self, fn: Callable[..., Any], world_size: int, seed: int, kind: tuple, options: Mapping[str, Any], seconds: float) -> None:
        self._run = lambda schedule: simulate(fn, world_size, seed=seed, schedule=schedule, **options)
        self._kind = kind
        self._seconds = seconds
        self.begin = time.monotonic()
        self.runs = 0
        self.pausing = False
        self.landing: tuple[str, ...] = ()

    def spent(self) -> bool:
        """Whether time or runs are used up."""
        return self.runs >= MOST_RUNS or time.monotonic() - self.begin > self._seconds

    def fails(self, schedule: Schedule) -> bool:
        """Whether a run fails in the same way."""
        self.runs += 1
        try:
            self._run(schedule)
        except Exception as error:
            return kind_of(error) == self._kind
        return False

    def replay(self, switches: Sequence[Switch], landing: Sequence[str]) -> Replay:
        """The schedule of these switches."""
        return Replay(" ".join([*["pausing"] * self.pausing, *map(str, switches), *landing]))

    def attempt(self, switches: Sequence[Switch], landing: Sequence[str]) -> list[Applied] | None:
        """The switches that had an effect in a run that failed in the same way; None if it did not."""
        observed = _Observed(self.replay(switches, landing).text)
        return observed.applied if self.fails(observed) else None


def shrink(items: list[Any], attempt: Callable[[list[Any]], list[Any] | None], spent: Callable[[], bool]) -> tuple[list[Any], bool]:
    """Fewer items for which ``attempt`` returns what is needed of them (None: not enough), and whether none can be left out."""
    parts = 2
    while items:
        size = -(-len(items) // parts)
        for begin in range(0, len(items), size):
            if spent():
                return items, False
            needed = attempt(items[:begin] + items[begin + size :])
            if needed is not None:
                items, parts = needed, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return items, True
            parts = min(2 * parts, len(items))
    return items, True
