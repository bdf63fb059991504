"""What a recorder keeps: one Event for everything that took time, waited, or happened at a point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

LAUNCH, PROGRAM, WAIT, BARRIER, SIGNAL, PUT, GET = "launch", "program", "wait", "barrier", "signal", "put", "get"
COPY, OPERATOR, COLLECTIVE, STREAM, HOST_WAIT, SUBMIT = "copy", "operator", "collective", "stream", "host wait", "submit"
TASK = "task"

KINDS = (LAUNCH, PROGRAM, WAIT, BARRIER, SIGNAL, PUT, GET, COPY, OPERATOR, COLLECTIVE, STREAM, HOST_WAIT, SUBMIT, TASK)
"""Kinds of events. SIGNAL is a word that was set, by whatever. STREAM is what a stream does besides: events, writes and waits of words.
TASK is what a kernel recorded by ``triton_dist.tools.profiler``; none comes from the simulator itself."""

ENDED_BY_SIGNAL = (WAIT, TASK)
"""Kinds whose cause, if they have one, is the signal that ended them."""


LANES = 256
"""Lanes that an SM may have."""


class Row(NamedTuple):
    """Where an event is shown. kind: "host", "stream", "sm", "puts" or "lane". number: of the stream or the SM, 0 for a host.

    A lane is one of several rows of an SM, for what goes on side by side there; its number is ``LANES`` times the SM's, and its own.
    """

    rank: int
    kind: str
    number: int


class Place(NamedTuple):
    """A source line."""

    file: str
    line: int


class Moment(NamedTuple):
    """When something was done. time: simulated nanoseconds of a program, None of others. place: the line of the host that did it."""

    step: int
    time: float | None
    place: Place | None


class Event:
    """One thing that happened.

    begin, end: simulated nanoseconds. first, last: the same in the order in which the simulator did things, an integer that grows by one
    with each event that begins or ends. end and last are None while it goes on; both are equal for what happens at a point.
    name: of the kernel, operator or call. detail: more about it, as text. word: element and tensor of a wait or a signal.
    place: its source line, or (kernel, number) of it, where number is None for the kernel itself. parent: the program or work that it is
    part of. cause: what it came from: the signal that ended a wait, the host's call that a launch is of.
    """

    __slots__ = ("kind", "row", "name", "begin", "end", "first", "last", "place", "detail", "word", "parent", "cause")

    def __init__(self, kind: str, row: Row, name: str, begin: float, first: int, place: Any = None, detail: str = "") -> None:
        self.kind = kind
        self.row = row
        self.name = name
        self.begin = begin
        self.end: float | None = None
        self.first = first
        self.last: int | None = None
        self.place = place
        self.detail = detail
        self.word = ""
        self.parent: Event | None = None
        self.cause: Event | None = None


@dataclass
class Side:
    """One of those who take part in a finding: an access of a race, or something that waits for ever.

    what: who does what, as the report says it. row: None where it is not shown. time, step: where it is on the two axes.
    event: what it is or is part of, if that is known. role: "later access", "earlier access", "waits", "queued" or "fails".
    """

    role: str
    what: str
    row: Row | None = None
    time: float = 0.0
    step: int = 0
    place: Any = None
    event: Event | None = None


@dataclass
class Finding:
    """Something that is wrong. kind: "race", "deadlock", "error". title: one line. text: the report, all of it.

    cycle: indices into ``sides``, each of which waits for the next one and the last for the first; empty where none is known.
    tensor: what it is about, "" where it is not about one.
    """

    kind: str
    title: str
    text: str
    sides: list[Side] = field(default_factory=list)
    cycle: list[int] = field(default_factory=list)
    tensor: str = ""
