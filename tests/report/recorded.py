"""Records: of a run, without a file, and made up, of any size."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import triton_dist
from triton_dist.sim.recording import files
from triton_dist.sim.recording.events import LAUNCH, PROGRAM, SIGNAL, WAIT, Event, Finding, Place, Row, Side
from triton_dist.sim.recording.record import Record

SETTINGS = {"ranks": 2, "nodes": 1, "seed": 0, "gpu": "h100", "schedule": "random", "execute": "data", "check": True, "limit": 1000}


def record_of(
    fn: Any,
    world_size: int = 2,
    *,
    raises: type[BaseException] | None = None,
    may_pass: bool = False,
    limit: int | None = None,
    **options: Any,
) -> Record:
    """What ``simulate(fn, ...)`` records. raises: the error that has to end it, or may. limit: events that are kept."""
    from triton_dist.sim.recording import recorder

    kept: list[Record] = []
    expected: Any = contextlib.nullcontext()
    if raises is not None:
        import pytest

        expected = contextlib.suppress(raises) if may_pass else pytest.raises(raises)
    small = mock.patch.object(recorder.Recorder.__init__, "__defaults__", (limit,)) if limit else contextlib.nullcontext()
    with mock.patch("triton_dist.sim.simulate.find_writer", lambda report: kept.append), small, expected:
        triton_dist.simulate(fn, world_size, report="kept.html", **options)
    assert files.ENDINGS, "what simulate asks for a writer is in this module"
    return kept[0]


def made_up(count: int, *, ranks: int = 4, name: str = "kernel", findings: tuple[Finding, ...] = (), sources: Any = None) -> Record:
    """A record of about ``count`` events: programs, one after the other on eight SMs of each rank, with a wait and a signal in each."""
    events: list[Event] = []
    rows = [Row(rank, kind, number) for rank in range(ranks) for kind, number in [("stream", 0), *(("sm", n) for n in range(8))]]
    step = 0
    launches = [event(LAUNCH, Row(rank, "stream", 0), name, 0.0, count * 40.0, 0) for rank in range(ranks)]
    events += launches
    signals: dict[int, Event] = {}
    for number in range(count // 3):
        rank, sm = number % ranks, number // ranks % 8
        begin = 1000.0 * (number // (8 * ranks))
        step += 4
        program = event(PROGRAM, Row(rank, "sm", sm), name, begin, begin + 950, step, f"program ({number}, 0, 0)")
        program.parent = launches[rank]
        wait = event(WAIT, program.row, "wait", begin + 100, begin + 400, step + 1, ">= 1")
        signal = event(SIGNAL, program.row, "signal", begin + 390, begin + 390, step + 2, "= 1")
        for part in (wait, signal):
            part.parent, part.word = program, f"flags[{number % 64}] of rank {rank}"
        wait.cause = signals.get((rank + 1) % ranks)
        signals[rank] = signal
        program.last = step + 3
        events += [program, wait, signal]
    end = max(event.end or 0.0 for event in events)
    return Record({**SETTINGS, "ranks": ranks}, ranks, rows, events, list(findings), {}, (end, step + 4), sources or {})


def event(kind: str, row: Row, name: str, begin: float, end: float, step: int, detail: str = "") -> Event:
    made = Event(kind, row, name, begin, step, None, detail)
    made.end, made.last = end, step
    return made


def finding(text: str, file: str, *lines: int) -> Finding:
    """A race between lines of a file, on the first ranks."""
    sides = [Side("later access", text, Row(rank, "sm", 0), 500.0, 10, Place(file, line)) for rank, line in enumerate(lines)]
    return Finding("race", f"data race on {text}", f"data race on {text}:\n  one\n  two\n  missing", sides, tensor=text)
