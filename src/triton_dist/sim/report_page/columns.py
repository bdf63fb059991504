"""A record as the page's scripts read it: columns of numbers, and each text once."""

from __future__ import annotations

from typing import Any

from ..recording.events import KINDS, Event, Place, Row, Side
from ..recording.record import Record

NONE = -1
"""In place of an index or of an end: there is none."""


class _Numbers:
    """Numbers for things that come again and again."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def of(self, thing: Any) -> int:
        return NONE if thing is None else self.known.setdefault(thing, len(self.known))


def columns(record: Record) -> dict[str, Any]:
    """What ``JSON.parse`` gives to the page. Times are whole nanoseconds."""
    texts, files, places = _Numbers(), _Numbers(), _Numbers()
    rows = {row: number for number, row in enumerate(record.rows)}
    numbers = {event: number for number, event in enumerate(record.events)}
    made: dict[str, list[int]] = {
        "kind": [KINDS.index(event.kind) for event in record.events],
        "row": [rows[event.row] for event in record.events],
        "name": [texts.of(event.name) for event in record.events],
        "detail": [texts.of(event.detail) for event in record.events],
        "word": [texts.of(event.word) for event in record.events],
        "begin": [round(event.begin) for event in record.events],
        "end": [NONE if event.end is None else round(event.end) for event in record.events],
        "first": [event.first for event in record.events],
        "last": [NONE if event.last is None else event.last for event in record.events],
        "place": [places.of(event.place) for event in record.events],
        "parent": [numbers.get(event.parent, NONE) for event in record.events],  # type: ignore[arg-type]
        "cause": [numbers.get(event.cause, NONE) for event in record.events],  # type: ignore[arg-type]
    }
    findings = [
        {
            "kind": finding.kind,
            "title": finding.title,
            "text": finding.text,
            "tensor": finding.tensor,
            "cycle": finding.cycle,
            "sides": [_side(side, rows, numbers, places) for side in finding.sides],
        }
        for finding in record.findings
    ]
    lines = [(files.of(place.file), place.line) for place in places.known]
    return {
        "settings": record.settings,
        "worldSize": record.world_size,
        "end": [round(record.end[0]), record.end[1]],
        "leftOut": record.left_out,
        "kinds": KINDS,
        "rows": [(row.rank, row.kind, row.number) for row in record.rows],
        "texts": list(texts.known),
        "places": lines,
        "files": [{"name": file, "text": record.sources.get(file)} for file in files.known],
        "events": made,
        "findings": findings,
    }


def _side(side: Side, rows: dict[Row, int], numbers: dict[Event, int], places: _Numbers) -> dict[str, Any]:
    place: Place | None = side.place
    return {
        "role": side.role,
        "what": side.what,
        "row": NONE if side.row is None else rows[side.row],
        "time": round(side.time),
        "step": side.step,
        "place": places.of(place),
        "event": NONE if side.event is None else numbers[side.event],
    }
