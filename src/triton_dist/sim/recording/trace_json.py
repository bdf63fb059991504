"""A record as Chrome's trace events in JSON, which ui.perfetto.dev and chrome://tracing open.

A rank is a process, a row a thread. Signals that ended a wait are flows. Puts are asynchronous events, as they overlap. What is wrong is an
instant event of the category "finding" on each row that takes part, with the report in its arguments.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from . import events as kinds
from .events import Event, Row
from .record import Record, facts, row_name, slices, title


def trace_json(record: Record) -> str:
    """The text of the file."""
    threads = {row: number for number, row in enumerate(record.rows)}
    events: list[dict[str, Any]] = []
    for rank in range(record.world_size):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
    for row, number in threads.items():
        events.append({"ph": "M", "name": "thread_name", **_where(row, threads), "args": {"name": row_name(row)}})
        events.append({"ph": "M", "name": "thread_sort_index", **_where(row, threads), "args": {"sort_index": number}})
    by_row: dict[Row, list[Event]] = defaultdict(list)
    for event in record.events:
        by_row[event.row].append(event)
    for row, members in by_row.items():
        if row.kind == "puts":
            events += [part for event in members for part in _put(event, record, threads)]
            continue
        opened: dict[int, dict[str, Any]] = {}
        for what, event, time in slices(members, record.end[0]):
            if what == "end":
                opened[event.first]["dur"] = round(_us(time) - opened[event.first]["ts"], 6)
                continue
            made = {"name": title(event), "cat": event.kind, "ts": _us(time), **_where(row, threads), "args": facts(event)}
            made |= {"ph": "i", "s": "t"} if what == "point" else {"ph": "X"}
            opened[event.first] = made
            events.append(made)
    events += [part for event in record.events for part in _flow(event, threads)]
    events += [part for finding in record.findings for part in _finding(finding, threads)]
    other = {**record.settings, "left out": record.left_out}
    return json.dumps({"displayTimeUnit": "ns", "otherData": other, "traceEvents": events}, separators=(",", ":"), default=str)


def _us(nanoseconds: float) -> float:
    return round(nanoseconds * 1e-3, 6)


def _where(row: Row, threads: dict[Row, int]) -> dict[str, int]:
    return {"pid": row.rank, "tid": threads[row]}


def _put(event: Event, record: Record, threads: dict[Row, int]) -> list[dict[str, Any]]:
    common = {"name": title(event), "cat": event.kind, "id": event.first, **_where(event.row, threads)}
    end = record.end[0] if event.end is None else event.end
    return [
        {**common, "ph": "b", "ts": _us(event.begin), "args": facts(event)},
        {**common, "ph": "e", "ts": _us(end)},
    ]


def _flow(event: Event, threads: dict[Row, int]) -> list[dict[str, Any]]:
    """From the signal to the end of the wait: just inside of it, so that it belongs to it."""
    if event.kind not in kinds.ENDED_BY_SIGNAL or event.cause is None or event.end is None:
        return []
    inside = max(event.begin, event.end - 1.0)
    common = {"name": "signal", "cat": "signal", "id": event.first}
    return [
        {**common, "ph": "s", "ts": _us(min(event.cause.begin, inside)), **_where(event.cause.row, threads)},
        {**common, "ph": "f", "bp": "e", "ts": _us(inside), **_where(event.row, threads)},
    ]


def _finding(finding: Any, threads: dict[Row, int]) -> list[dict[str, Any]]:
    found = []
    for side in finding.sides:
        if side.row is not None:
            source = {} if side.place is None else {"source": f"{side.place.file}:{side.place.line}"}
            arguments = {"report": finding.text, "role": side.role, "who": side.what, **source}
            name = f"{finding.kind}: {side.role}"
            common = {"ph": "i", "s": "t", "cat": "finding", "ts": _us(side.time), "args": arguments}
            found.append({"name": name, **common, **_where(side.row, threads)})
    return found
