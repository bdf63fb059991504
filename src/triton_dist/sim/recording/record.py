"""A finished recording as all kinds of files show it: rows, events in order, findings, and what was left out."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ... import __version__
from . import events as kinds
from .events import LANES, Event, Finding, Place, Row
from .sources import read_sources

if TYPE_CHECKING:
    from ..kernel import Kernel
    from .recorder import Recorder

_ROW_ORDER = {"host": 0, "stream": 1, "sm": 2, "puts": 3, "lane": 4}
_LANES = 16
"""Rows that a rank's puts are spread over at most, so that they do not lie upon each other."""


@dataclass
class Record:
    """settings: of the run, for the head of a page. world_size: ranks. rows: all that are used, in the order in which they are shown.

    events: ordered by ``first``; places are resolved, and who is their parent or cause is among them, or it is None. left_out: events that
    were not kept, by kind. end: simulated nanoseconds and steps at the end. sources: text of the files with places, by name.
    """

    settings: dict[str, Any]
    world_size: int
    rows: list[Row]
    events: list[Event]
    findings: list[Finding]
    left_out: dict[str, int]
    end: tuple[float, int]
    sources: dict[str, str]


def make_record(recorder: Recorder, settings: dict[str, Any]) -> Record:
    """What a recorder has kept; called once, when the run has ended."""
    kept = dict.fromkeys([*recorder.events, *recorder.open, *recorder.running()])
    kept |= dict.fromkeys(side.event for finding in recorder.findings for side in finding.sides if side.event is not None)
    kept |= dict.fromkeys(event.parent for event in list(kept) if event.parent is not None)
    kept |= dict.fromkeys(event.parent for event in list(kept) if event.parent is not None)  # the launches of those programs
    events = sorted(kept, key=lambda event: event.first)
    for event in events:
        event.place = resolve(event.place)
        if event.cause is not None and event.cause not in kept:
            event.cause = None
    _spread_puts(events)
    for finding in recorder.findings:
        for side in finding.sides:
            side.place = resolve(side.place)
    left_out = dict(recorder.begun)
    for event in events:
        left_out[event.kind] -= 1
    machine = recorder.machine
    rows = {event.row for event in events} | {side.row for finding in recorder.findings for side in finding.sides if side.row is not None}
    rows |= {Row(rank, "host", 0) for rank in range(machine.world_size)}
    places = [event.place for event in events] + [side.place for finding in recorder.findings for side in finding.sides]
    times = [event.begin if event.end is None else event.end for event in events]
    end = max([*times, *(side.time for finding in recorder.findings for side in finding.sides)], default=0.0)
    facts = {"ranks": machine.world_size, "nodes": machine.num_nodes, "seed": machine.seed, "gpu": machine.gpu.name, **settings}
    return Record(
        facts | {"triton_dist": __version__},
        machine.world_size,
        sorted(rows, key=lambda row: (row.rank, _ROW_ORDER[row.kind], row.number)),
        events,
        recorder.findings,
        {kind: count for kind, count in left_out.items() if count > 0},
        (max(end, 1.0), recorder.steps + 1),
        read_sources(sorted({place.file for place in places if place is not None})),
    )


def resolve(place: Any) -> Place | None:
    """A source line from (kernel, number), or from (kernel, None) the one with the kernel's ``def``."""
    if place is None or isinstance(place, Place):
        return place
    kernel, number = place
    if number is None:
        return _definition(kernel)
    location = kernel.location(number)
    return Place(location.file, location.line) if location.line else None


@functools.lru_cache(maxsize=256)
def _definition(kernel: Kernel) -> Place | None:
    """Where a kernel begins: at its ``def``, if a file of its lines has it, else at its first line."""
    known = [line for line in kernel.table if line.line]
    head = re.compile(rf"\s*def {re.escape(kernel.name)}\b")
    for file in dict.fromkeys(line.file for line in known):
        for number, text in enumerate(read_sources([file]).get(file, "").splitlines(), 1):
            if head.match(text):
                return Place(file, number)
    return Place(known[0].file, min(line.line for line in known if line.file == known[0].file)) if known else None


def _spread_puts(events: Iterable[Event]) -> None:
    """Give puts and gets that are under way at the same time rows of their own."""
    free: dict[int, list[int]] = {}
    for event in events:
        if event.kind not in (kinds.PUT, kinds.GET):
            continue
        lanes = free.setdefault(event.row.rank, [])
        until = 1 << 62 if event.last is None else event.last
        lane = next((number for number, last in enumerate(lanes) if last <= event.first), len(lanes))
        if lane < len(lanes):
            lanes[lane] = until
        elif lane < _LANES:
            lanes.append(until)
        else:
            lane = _LANES - 1
        event.row = Row(event.row.rank, "puts", lane)


def row_name(row: Row) -> str:
    """As files name a row of a rank."""
    sm, lane = divmod(row.number, LANES)
    return {
        "host": "host",
        "stream": f"stream {row.number}",
        "sm": f"SM {row.number}",
        "puts": f"puts {row.number}",
        "lane": f"SM {sm}" + (f", {lane + 1}" if lane else ""),
    }[row.kind]


def title(event: Event) -> str:
    """One line that says what an event is."""
    if event.kind == kinds.SIGNAL:
        return f"{event.word} {event.detail}"
    if event.kind == kinds.WAIT:
        return f"wait {event.word} {event.detail}"
    if event.kind in (kinds.PUT, kinds.GET):
        return f"{event.kind} {event.word}"
    return event.name


def slices(events: Iterable[Event], end: float) -> Iterator[tuple[str, Event, float]]:
    """The events of one row as ("begin" | "end" | "point", event, nanoseconds), properly nested and in order.

    What goes on at the end ends there. A part that lasts longer than the whole is cut off.
    """
    stack: list[tuple[Event, float]] = []
    spans = [(event, _until(event, end)) for event in events]
    for event, until in sorted(spans, key=lambda span: (span[0].begin, -span[1], span[0].first)):
        while stack and stack[-1][1] <= event.begin:
            yield "end", *stack.pop()
        if until <= event.begin:
            yield "point", event, event.begin
            continue
        until = min(until, stack[-1][1]) if stack else until
        stack.append((event, until))
        yield "begin", event, event.begin
    while stack:
        yield "end", *stack.pop()


def _until(event: Event, end: float) -> float:
    if event.kind == kinds.SIGNAL:
        return event.begin
    return max(end, event.begin) if event.end is None else event.end


def facts(event: Event) -> dict[str, Any]:
    """What a trace says of an event besides its name and time."""
    found: dict[str, Any] = {"kind": event.kind, "detail": event.detail}
    if event.place is not None:
        found["source"] = f"{event.place.file}:{event.place.line}"
    if event.kind == kinds.WAIT and event.end is None:
        found["ended by"] = "nobody: it had not ended when the run did"
    elif event.kind == kinds.WAIT or event.cause is not None and event.kind == kinds.TASK:
        found["ended by"] = "unknown" if event.cause is None else describe(event.cause)
    return {name: value for name, value in found.items() if value}


def describe(event: Event) -> str:
    """Who did it, for the text of another event."""
    program = event.parent if event.parent is not None and event.parent.kind == kinds.PROGRAM else None
    who = "" if program is None else f"{program.detail} of {program.name} "
    at = "" if event.place is None else f" at {event.place.file}:{event.place.line}"
    return f"rank {event.row.rank}, {who}({row_name(event.row)}){at}"
