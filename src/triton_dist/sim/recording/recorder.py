"""Keeps what happens in one simulation, as the machine, its programs and the hosts tell it.

It has a bounded number of events: the latest ones stay, and it is counted what went. Those that have not ended stay in any case.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import context
from ..launch import KernelLaunch
from ..memory import WORDS, element_index
from ..requests import SYMBOLS
from ..work import Copy, RecordEvent, Task, TorchCall, WaitEvent, WaitValue, WriteValue
from . import events as kinds
from .events import Event, Finding, Moment, Place, Row
from .findings import failure_finding, race_finding
from .sources import user_place

if TYPE_CHECKING:
    from ..check.history import Access
    from ..check.report import Race
    from ..machine import Machine
    from ..memory import Memory
    from ..pending import PendingCopy
    from ..program import Program
    from ..requests import WaitRequest
    from ..work import Work

LIMIT = 200_000
"""Events that are kept."""

_KIND_OF_WORK = ((KernelLaunch, kinds.LAUNCH), (Copy, kinds.COPY), (TorchCall, kinds.OPERATOR))

_SHORT_NAMES = {WriteValue: "write value", WaitValue: "wait value", RecordEvent: "record event", WaitEvent: "wait for event"}


class RecordedWrites(dict):
    """``memory.writes`` of a run that is recorded: whoever notes there who wrote a word tells the recorder, too."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder: Recorder | None = recorder

    def __setitem__(self, address: int, write: tuple) -> None:
        super().__setitem__(address, write)
        if self._recorder is not None:
            self._recorder.wrote(address, *write)

    def stop(self) -> None:
        """Only be a dict from now on."""
        self._recorder = None


class Recorder:
    """What the simulator calls while it runs; there is none where nothing is recorded. limit: of the events that are kept.

    findings: what was found wrong. failed: where a program did something wrong that ends the run.
    """

    def __init__(self, machine: Machine, limit: int = LIMIT) -> None:
        self.machine = machine
        self.limit = limit
        self.events: deque[Event] = deque(maxlen=limit)
        self.begun: Counter[str] = Counter()
        self.open: dict[Event, tuple[Any, WaitRequest | None]] = {}
        """Waits that have not ended: who waits, and for what (None for a host)."""
        self.findings: list[Finding] = []
        self.failed: tuple[Any, Any] | None = None
        self.failed_rank: int | None = None
        """Whose host function raised what ended the run."""
        self.steps = 0
        self._running: dict[Any, Event] = {}
        self._written: dict[int, Event] = {}
        self._stored: dict[int, Event] = {}
        self._submitted: dict[Work, Event] = {}
        self._writes = RecordedWrites(self)
        machine.memory.writes = self._writes
        machine.memory.stored = self.stored
        machine.recorder = self

    def stop(self, error: BaseException | None = None) -> None:
        """Record nothing any more: the run has ended, or ``error`` ends it. Called before anything of it is undone."""
        if self.machine.recorder is None:
            return
        found = None if error is None else failure_finding(self, error)
        if found is not None:
            self.findings.append(found)
        self.machine.recorder = None
        if self.machine.races is not None:
            self.machine.races.recorder = None
        self._writes.stop()
        self.machine.memory.stored = None

    def running(self) -> list[Event]:
        """Events of programs, work and puts that have not ended."""
        return list(self._running.values())

    def event_of(self, actor: Any) -> Event | None:
        """The event of a program or of a stream's work that runs now."""
        return self._running.get(actor.work if isinstance(actor, Task) else actor)

    def row_of(self, actor: Any) -> Row:
        """Where a program or the task of a stream is shown."""
        if isinstance(actor, Task):
            return Row(actor.rank, "stream", actor.work.queue.number if actor.work.queue is not None else 0)
        return Row(actor.rank, "sm", actor.sm)

    def _begin(self, kind: str, row: Row, name: str, time: float, place: Any = None, detail: str = "") -> Event:
        self.steps += 1
        event = Event(kind, row, name, time, self.steps, place, detail)
        self.events.append(event)
        self.begun[kind] += 1
        return event

    def _end(self, event: Event, time: float) -> None:
        if self.machine.recorder is not self:
            return  # the run has ended, and what goes on is only looked at (see ``foresight``)
        self.steps += 1
        event.end, event.last = max(time, event.begin), self.steps

    def _at(self, kind: str, row: Row, name: str, time: float, place: Any = None, detail: str = "") -> Event:
        event = self._begin(kind, row, name, time, place, detail)
        event.end, event.last = event.begin, event.first
        return event

    # Hosts and streams

    def submitted(self, work: Work) -> None:
        """A host has put work into a stream."""
        number = work.queue.number if work.queue is not None else 0
        event = self._at(kinds.SUBMIT, Row(work.rank, "host", 0), _name(work), work.issued, user_place(), f"into stream {number}")
        self._submitted[work] = event

    def work_begins(self, work: Work) -> None:
        """Work is at the head of its stream."""
        row = Row(work.rank, "stream", work.queue.number if work.queue is not None else 0)
        kind = next((kind for cls, kind in _KIND_OF_WORK if isinstance(work, cls)), kinds.STREAM)
        detail = f"grid {work.grid}" if isinstance(work, KernelLaunch) else work.describe()
        event = self._running[work] = self._begin(kind, row, _name(work), work.begin, None, detail)
        event.cause = self._submitted.pop(work, None)
        event.place = None if event.cause is None else event.cause.place

    def work_ends(self, work: Work) -> None:
        """Work has finished."""
        event = self._running.pop(work, None)
        if event is not None:
            event.begin = max(event.begin, work.begin)  # a launch begins when the GPU has it
            self._end(event, work.end)

    def operator_ran(self, rank: int, stream: int, name: str, begin: float) -> None:
        """An idle stream has run a torch operator at once."""
        event = self._begin(kinds.OPERATOR, Row(rank, "stream", stream), name, begin, user_place(), "at once: its stream was idle")
        self._end(event, self.machine.stream_clock(rank, stream))

    @staticmethod
    def called_at() -> Place | None:
        """The user's line in which a rank's host is now."""
        return user_place() if context.current() is not None else None

    def collective(self, name: str, places: list[tuple[int, int]], lines: list[Place | None], nanoseconds: float) -> None:
        """Streams of several ranks, as (rank, number), do a collective together. lines: where their hosts have called it."""
        ranks = f"of ranks {sorted({rank for rank, _ in places})}"
        for (rank, number), line in zip(places, lines, strict=True):
            end = self.machine.stream_clock(rank, number)
            self._end(self._begin(kinds.COLLECTIVE, Row(rank, "stream", number), name, end - nanoseconds, line, ranks), end)

    def host_waits(self, rank: int, what: str) -> Event:
        """A host function waits; the caller tells by ``host_goes_on`` when it no longer does."""
        event = self._begin(kinds.HOST_WAIT, Row(rank, "host", 0), what, self.machine.host_clock[rank], user_place())
        self.open[event] = (rank, None)
        return event

    def host_goes_on(self, event: Event) -> None:
        """A host function no longer waits."""
        self._end(event, self.machine.host_clock[event.row.rank])
        self._ended_wait(event)

    # Programs

    def program_begins(self, program: Program) -> None:
        """A program has got an SM."""
        launch = program.launch
        event = self._begin(
            kinds.PROGRAM, self.row_of(program), launch.kernel.name, program.clock, (launch.kernel, None), f"program {program.pid}"
        )
        event.parent = self._running.get(launch)
        self._running[program] = event

    def program_ends(self, program: Program) -> None:
        """A program has returned."""
        event = self._running.pop(program, None)
        if event is not None:
            self._end(event, program.clock)

    def wait_begins(self, actor: Program | Task, request: WaitRequest) -> Event:
        """A program or stream is parked; the caller tells by ``wait_ends`` when the condition holds."""
        event = self._begin(kinds.WAIT, self.row_of(actor), "wait", actor.clock, self._place(actor, request.location))
        event.word = self._label(actor.memory, request.address)
        event.detail = f"{SYMBOLS[request.compare]} {request.expected}"
        event.parent = self.event_of(actor)
        self.open[event] = (actor, request)
        return event

    def wait_ends(self, event: Event, actor: Program | Task, address: int, itemsize: int) -> None:
        """What was waited for holds."""
        self._end(event, actor.clock)
        if self._ended_wait(event):
            event.cause = self._writer(address, itemsize)

    def _ended_wait(self, event: Event) -> bool:
        """Whether a wait has ended in this run."""
        return event.last is not None and self.open.pop(event, None) is not None

    def wait_holds(self, actor: Program | Task, request: WaitRequest) -> None:
        """A wait had nothing to wait for."""
        event = self.wait_begins(actor, request)
        self.open.pop(event)
        event.end, event.last = event.begin, event.first
        event.cause = self._writer(request.address, request.itemsize)

    def _writer(self, address: int, itemsize: int) -> Event | None:
        """Who set a word to what it holds; None if something else has changed it since, such as a torch operator."""
        event, write = self._written.get(address), self.machine.memory.writes.get(address)
        stored = self._stored.get(address >> 3)
        if event is None or write is None or (stored is not None and stored.first > event.first):
            return stored
        value = write[1]
        if not isinstance(value, (int, np.integer)):
            return event
        seen = WORDS[itemsize][element_index(address, itemsize)]
        return event if (int(value) - seen) & ((1 << 8 * itemsize) - 1) == 0 else None

    def wrote(self, address: int, actor: Program | Task, value: Any, time: float, location: int) -> None:
        """A word was set."""
        event = self._at(kinds.SIGNAL, self.row_of(actor), "signal", actor.clock, self._place(actor, location), f"= {value}")
        event.word = self._label(actor.memory, address)
        event.parent = self.event_of(actor)
        event.end = max(event.begin, time)  # when others can see it
        self._written[address] = event

    def stored(self, granule: int, actor: Program | Task) -> None:
        """A tile or a copy was stored to a granule of 8 bytes that somebody waits for."""
        what = "by a tile" if not isinstance(actor, Task) else "by a copy"
        place = None if isinstance(actor, Task) else actor.launch.kernel.location_of(actor.generator)
        event = self._at(kinds.SIGNAL, self.row_of(actor), "store", actor.clock, None, what)
        event.place = Place(place.file, place.line) if place is not None and place.line else None
        event.word = self._label(actor.memory, 8 * granule)
        event.parent = self.event_of(actor)
        self._stored[granule] = event

    def barrier_begins(self, program: Program, what: str, team: int, location: int) -> Event:
        """A program comes to a device barrier; the caller tells by ``barrier_ends`` when all have met."""
        event = self._begin(kinds.BARRIER, self.row_of(program), what, program.clock, self._place(program, location), f"of team {team}")
        event.parent = self.event_of(program)
        return event

    def barrier_ends(self, event: Event, program: Program) -> None:
        """All have met."""
        self._end(event, program.clock)

    def put_begins(self, copy: PendingCopy) -> None:
        """A put or a get was issued."""
        program = copy.program
        kind = kinds.GET if copy.is_get else kinds.PUT
        row = Row(program.rank, "puts", 0)
        event = self._begin(kind, row, kind, program.clock, self._place(program, copy.location), f"{copy.nbytes} bytes")
        event.word = self._label(program.memory, copy.source if copy.is_get else copy.target)
        event.parent = self.event_of(program)
        self._running[copy] = event

    def put_ends(self, copy: PendingCopy) -> None:
        """It has landed: now, and not after what its program has come to."""
        event = self._running.pop(copy, None)
        if event is not None:
            self._end(event, copy.program.clock)

    # What is wrong

    def moment(self, actor: Any) -> Moment:
        """Now, for an actor of the race check."""
        program = getattr(getattr(actor, "issuer", actor), "program", None)
        return Moment(self.steps, None, self.called_at()) if program is None else Moment(self.steps, program.clock, None)

    def raced(self, race: Race, later: Access, earlier: Access) -> None:
        """The race check has found two accesses that nothing orders."""
        self.findings.append(race_finding(self, race, later, earlier))

    def program_failed(self, actor: Any, place: Any) -> None:
        """A program or a stream's work does something wrong, which ends the run. place: in a kernel, else None."""
        self.failed = (actor, place)

    @staticmethod
    def _label(memory: Memory, address: int) -> str:
        allocation = memory.find(address)
        return f"{address:#x}" if allocation is None else allocation.label(address)

    @staticmethod
    def _place(actor: Any, location: int) -> Any:
        return None if isinstance(actor, Task) or location < 0 else (actor.launch.kernel, location)


def _name(work: Work) -> str:
    return work.kernel.name if isinstance(work, KernelLaunch) else _SHORT_NAMES.get(type(work), work.label)
