"""Trying configs together: what all ranks do, in which order, and how they come to the same choice."""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from triton import knobs

from ...errors import AutotuneError, AutotuneMismatchError, AutotuneWarning, InvalidArgumentError
from ...ops.collectives.barrier import barrier
from ...ops.team import refuse_in_capture
from ...runtime.attempts import Outcome, attempt
from ...runtime.streams import Event
from ...runtime.team import Team
from ...runtime.world import require_world
from .progress import progress_bar
from .report import Row, TuneReport
from .store import Store

DEFAULT_TIMEOUT = 60.0
"""Seconds that a wait may take while a config is tried: ranks may be apart by what compiling takes."""

_LET_GO = "since the call failed on another rank"


@dataclass(frozen=True)
class Options:
    """How configs are tried. warmup, runs: of each config, untimed and timed. timeout: seconds. progress: whether to show a bar."""

    warmup: int = 1
    runs: int | None = None
    timeout: float = DEFAULT_TIMEOUT
    progress: bool | None = None

    def checked(self, what: str) -> Options:
        """Raises InvalidArgumentError for what is no number of runs or seconds."""
        for name, value, least in (("warmup", self.warmup, 1), ("runs", self.runs, 1)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InvalidArgumentError(f"{what}: {name}={value!r} must be a whole number, {least} or more")
        if not isinstance(self.timeout, (int, float)) or isinstance(self.timeout, bool) or not 0 < self.timeout < 1e6:
            raise InvalidArgumentError(f"{what}: timeout={self.timeout!r} must be a number of seconds above 0")
        return self


@dataclass(frozen=True)
class Trial:
    """One config. prepare, clean: around each run, not timed. call: the run, on the current stream."""

    label: str
    call: Callable[[], Any]
    prepare: Callable[[], Any] = lambda: None
    clean: Callable[[], Any] = lambda: None


@dataclass(frozen=True)
class _Said:
    """What a rank brings to a search. problem: why it can't take part. found: what the first rank has on disk."""

    what: str
    key: str
    labels: tuple[str, ...]
    problem: str | None
    found: TuneReport | None


def search(
    what: str,
    key: str,
    team: Team,
    options: Options,
    labels: Callable[[], Sequence[str]],
    trial: Callable[[str], Trial],
    store: Callable[[Sequence[str]], Store] | None,
) -> TuneReport:
    """Choose a config, the same on every rank of ``team``; all of them call it, at the same point of what they do.

    key: what it is chosen for, in words. labels: the configs to try, after pruning; the same on all ranks. trial: how one is run.
    store: where results are kept, None for nowhere. Only the first rank reads and writes; what it reads counts for all.
    Raises AutotuneMismatchError, AutotuneError, CaptureError; PeerLostError.
    """
    begun = time.perf_counter()
    refuse_in_capture(what)
    mine, kept = _mine(what, key, team, labels, store)
    said = require_world(what).attempts.gather(team.ranks, mine)
    _check_same(what, team, said)
    if said[0].found is not None:
        return said[0].found
    if len(mine.labels) == 1:
        return TuneReport(what, key, [Row(mine.labels[0], None)], mine.labels[0], team.size, 0.0)
    become_idle(what, team, options)
    rows = []
    with progress_bar(what, len(mine.labels), options.progress, team.index == 0) as advance:
        for label in mine.labels:
            rows.append(_try(what, team, options, label, trial))
            advance(f"{label}: " + (f"{rows[-1].milliseconds:.4f} ms" if rows[-1].milliseconds is not None else "failed"))
    report = TuneReport(what, key, rows, _choose(what, rows, team), team.size, time.perf_counter() - begun)
    if team.index == 0:
        if kept is not None:
            kept.save(report)
        if knobs.autotuning.print:
            print(report.table(), file=sys.stderr, flush=True)
    return report


def _mine(
    what: str, key: str, team: Team, labels: Callable[[], Sequence[str]], store: Callable[[Sequence[str]], Store] | None
) -> tuple[_Said, Store | None]:
    try:
        own = tuple(labels())
        kept = store(own) if store is not None and team.index == 0 else None
        found = kept.load(own) if kept is not None else None
    except Exception as error:  # noqa: BLE001 - a function of the user; the other ranks must hear of it
        return _Said(what, key, (), f"{type(error).__name__}: {error}", None), None
    return _Said(what, key, own, None, found), kept


def _check_same(what: str, team: Team, said: Sequence[Any]) -> None:
    """All ranks are here for the same search. They all have the same ``said``, so all of them raise."""
    for rank, each in zip(team.ranks, said, strict=True):
        if not isinstance(each, _Said):
            raise AutotuneMismatchError(f"{what}: rank {rank} does something else than to tune it")
        if each.problem is not None:
            raise AutotuneError(f"{what}: rank {rank} can't say which configs to try: {each.problem}")
        if (each.what, each.key) != (said[0].what, said[0].key):
            raise AutotuneMismatchError(
                f"rank {rank} tunes {each.what} for {each.key or 'any arguments'}, but rank {team.ranks[0]} tunes {said[0].what} for "
                f"{said[0].key or 'any arguments'}; all ranks have to call the same, with keys that are the same on all of them"
            )
        if each.labels != said[0].labels:
            raise AutotuneMismatchError(
                f"{what}: rank {rank} would try {len(each.labels)} configs, rank {team.ranks[0]} {len(said[0].labels)}; "
                f"{_difference(rank, each.labels, team.ranks[0], said[0].labels)}. What prunes configs must not depend on the rank"
            )


def _difference(rank: int, labels: Sequence[str], first: int, others: Sequence[str]) -> str:
    for who, here, there in ((rank, labels, others), (first, others, labels)):
        for label in here:
            if label not in there:
                return f"only on rank {who}: {label}"
    return "they are the same in another order"


def become_idle(what: str, team: Team, options: Options) -> None:
    """Wait for the device on all ranks of the team. Raises AutotuneError if that does not end."""
    outcomes = attempt(team, lambda: None, options.timeout, f"tuning {what} waits for earlier work")
    problem = _first_problem(team, outcomes)
    if problem is not None:
        raise AutotuneError(
            f"{what}: what was queued before does not come to an end, perhaps because it waits for this very call: {problem}. Tune the "
            "whole operator by triton_dist.autotune"
        )


def _try(what: str, team: Team, options: Options, label: str, trial: Callable[[str], Trial]) -> Row:
    """The row of one config."""
    world = require_world(what)
    simulated = world.device.type != "cuda"
    runs = options.runs or (1 if simulated else 10)

    def act() -> list[float]:
        this = trial(label)
        events = []
        for _ in range(options.warmup + runs):
            this.prepare()
            # Nobody writes to a peer before that one's memory is as it should be, and all begin together.
            barrier(team)
            begin, end = Event(), Event()
            begin.record()
            this.call()
            end.record()
            this.clean()
            # Nobody puts contents back while a peer still uses them.
            barrier(team)
            events.append((begin, end))
        world.synchronize(why=f"tuning {what}")
        return [begin.elapsed_time(end) for begin, end in events[options.warmup :]]

    with _workspaces_of_its_own(world):
        outcomes = attempt(team, act, options.timeout, f"tuning {what} with {label}")
    problem = _first_problem(team, outcomes)
    if any(outcome.fatal for outcome in outcomes):
        raise AutotuneError(f"{what}: the config {label} has broken the device, and nothing can run there any more: {problem}")
    if problem is not None:
        return Row(label, None, problem)
    return Row(label, statistics.median(max(times) for times in zip(*(outcome.value for outcome in outcomes), strict=True)))


@contextlib.contextmanager
def _workspaces_of_its_own(world: Any) -> Iterator[None]:
    """What operators keep between calls is another for each config: after one that hangs, its signals are in any state."""
    before, world.workspaces = world.workspaces, {}
    try:
        yield
    finally:
        world.workspaces = before


def _first_problem(team: Team, outcomes: Sequence[Outcome]) -> str | None:
    """Why a config is out: what other ranks' waits came to is a consequence of an error that is none."""
    failed = [(rank, outcome) for rank, outcome in zip(team.ranks, outcomes, strict=True) if outcome.reason is not None]
    if not failed:
        return None
    rank, first = min(failed, key=lambda each: (each[1].hung, _LET_GO in (each[1].reason or "")))
    return f"rank {rank}: {first.reason}"


def _choose(what: str, rows: Sequence[Row], team: Team) -> str:
    """The fastest of what is left, the first of equals. Raises AutotuneError if nothing is."""
    timed = [(row.milliseconds, number, row) for number, row in enumerate(rows) if row.milliseconds is not None]
    failed = [f"  {row.label}: {row.reason}" for row in rows if row.reason is not None]
    if not timed:
        raise AutotuneError(f"{what}: none of the {len(rows)} configs can be used on {team.size} ranks:\n" + "\n".join(failed))
    chosen = min(timed)[2]
    if len(timed) == 1 and team.index == 0:
        warnings.warn(
            f"{what}: {len(failed)} of {len(rows)} configs failed, so {chosen.label} is used without a choice:\n" + "\n".join(failed),
            AutotuneWarning,
            stacklevel=_outside(),
        )
    return chosen.label


def _outside() -> int:
    """The ``stacklevel`` by which a warning of the caller's points at the line that called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("triton_dist."):
        level, frame = level + 1, frame.f_back
    return level
