"""What is wrong with a run, with who takes part and where that is on the time line."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from ...errors import DataRaceError, DeadlockError
from ..check.copies import PendingActor
from ..check.program_actor import ProgramActor
from ..report import describe_wait
from ..waits_for import waits_for
from . import events as kinds
from .events import Event, Finding, Moment, Place, Row, Side
from .sources import is_users

if TYPE_CHECKING:
    from ..check.history import Access
    from ..check.report import Race
    from ..check.report import Side as RaceSide
    from .recorder import Recorder

_QUEUED = 64
"""Launches with programs that can't start, and queues, that a deadlock names."""


def race_finding(recorder: Recorder, race: Race, later: Access, earlier: Access) -> Finding:
    """A data race, as it is found."""
    text = race.describe()
    sides = [_access_side(recorder, later, race.later, "later access"), _access_side(recorder, earlier, race.earlier, "earlier access")]
    return Finding("race", text.partition("\n")[0].rstrip(":"), text, sides, tensor=race.tensor)


def _access_side(recorder: Recorder, access: Access, told: RaceSide, role: str) -> Side:
    """One of the two accesses. That of a word has no moment of its own: it is where its program has set or seen a word in that line."""
    actor = access.actor
    what = told.describe()
    now = recorder.moment(actor)
    moment = now if role == "later access" else access.moment
    program = actor.issuer if type(actor) is PendingActor else actor
    if type(program) is not ProgramActor:
        return _stream_side(recorder, actor, what, role, moment or now)
    found = _program_event(recorder, program, (moment or now).step)
    if found is None:
        return Side(role, what, place=_place_of(told.line))
    if moment is None:
        near = _word_event(recorder, found, (program.kernel, access.location)) or found
        moment = Moment(near.first, near.begin, None)
    time, step = max(moment.time or 0.0, found.begin), max(moment.step, found.first)
    if found.last is not None:
        step = min(step, found.last)  # puts that a program's end completes land behind its last step
    return Side(role, what, found.row, time, step, _place_of(told.line), found)


def _place_of(line: str) -> Place | None:
    file, _, number = line.rpartition(":")
    return Place(file, int(number)) if number.isdigit() else None


def _program_event(recorder: Recorder, actor: ProgramActor, step: int) -> Event | None:
    """The event of a program that may have ended: the latest of its launch's kernel and number that began before."""
    if actor.program is not None:
        return recorder.event_of(actor.program)
    detail = f"program {actor.pid}"
    for event in reversed(recorder.events):
        if (
            event.kind == kinds.PROGRAM
            and event.first <= step
            and event.row.rank == actor.rank
            and event.detail == detail
            and event.name == actor.kernel.name
        ):
            return event
    return None


def _word_event(recorder: Recorder, program: Event, place: tuple) -> Event | None:
    """The latest signal or wait of a program at a line."""
    for event in reversed(recorder.events):
        if event.first < program.first:
            return None
        if event.parent is program and event.place == place:
            return event
    return None


def _stream_side(recorder: Recorder, actor: Any, what: str, role: str, moment: Moment) -> Side:
    """An access by a stream, a host, or a collective of several ranks, which is shown on the first of them."""
    races = recorder.machine.races
    key = None if races is None else races.key_of(actor)
    if key is None:
        return Side(role, what, place=moment.place)
    together = actor.rank < 0
    row = Row(actor.rank, "host", 0) if key[0] == "host" else Row(key[0], "stream", 0 if together else key[1])
    for event in reversed(recorder.events):
        if event.first > moment.step or event.kind in (kinds.WAIT, kinds.SIGNAL):
            continue
        if (event.kind == kinds.COLLECTIVE and event.row.rank == row.rank) if together else event.row == row:
            place = event.place if together or moment.place is None else moment.place
            step = min(moment.step, event.last) if together and event.last is not None else moment.step
            return Side(role, what, event.row, event.begin, step, place, event)
    return Side(role, what, row, 0.0, moment.step, moment.place)


def failure_finding(recorder: Recorder, error: BaseException) -> Finding | None:
    """What ended the run, from the error that it raises; None for races, which are there already. Called before anything is undone."""
    if isinstance(error, DataRaceError):
        return None
    text = "".join(traceback.format_exception_only(error)).strip().removeprefix("triton_dist.errors.")
    if isinstance(error, DeadlockError) and recorder.failed is None:
        sides = [*_waiting(recorder), *_spinning(recorder), *_queued(recorder)]
        return Finding("deadlock", _count(sides), text, sides, _name_setters(recorder, sides))
    if recorder.failed is not None:
        actor, place = recorder.failed
        event = recorder.event_of(actor)
        where = Place(place.file, place.line) if place is not None and place.line else (None if event is None else event.place)
        side = Side("fails", actor.describe(), recorder.row_of(actor), actor.clock, recorder.steps, where, event)
        return Finding("error", type(error).__name__, text, [side])
    return Finding("error", type(error).__name__, text, _host_sides(recorder, error))


def _name_setters(recorder: Recorder, sides: list[Side]) -> list[int]:
    """Add to the text of each wait who would set its word if that one did not wait itself. Gives indices of sides, each of which waits for
    the next one and the last for the first; empty where there is no circle, or one that waits is not shown.
    """
    found, index_of = waits_for(recorder.machine), {}
    for index, side in enumerate(sides):
        actor, request = recorder.open.get(side.event, (None, None)) if side.event is not None else (None, None)
        if request is not None and actor in found.actors:
            index_of[id(actor)] = index
            if text := found.who_would_set(actor):
                side.what += f"; {text}"
    circle = found.circle()
    return [index_of[id(actor)] for actor in circle] if all(id(actor) in index_of for actor in circle) else []


def _count(sides: list[Side]) -> str:
    """Who waits, in numbers."""
    waiting = [side.row.kind for side in sides if side.role == "waits" and side.row is not None]
    names = {"sm": "program", "stream": "stream", "host": "host"}
    counts = {name: waiting.count(kind) for kind, name in names.items()}
    named = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return f"{', '.join(named)} wait{'' if len(waiting) > 1 else 's'} for ever" if named else "nothing can move"


def _host_sides(recorder: Recorder, error: BaseException) -> list[Side]:
    """The user's lines that an exception of a host function came through, the innermost first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    rank = recorder.failed_rank
    row = None if rank is None else Row(rank, "host", 0)
    time = 0.0 if rank is None else recorder.machine.host_clock[rank]
    who = "host" if rank is None else f"rank {rank}, host"
    return [
        Side("fails", f"{who}, in {frame.name}", row, time, recorder.steps, Place(frame.filename, frame.lineno or 0))
        for frame in reversed(frames[-4:])
    ]


def _waiting(recorder: Recorder) -> list[Side]:
    sides = []
    for event, (actor, request) in recorder.open.items():
        if request is None:
            what = f"rank {actor}, host: {event.name}"
        else:
            what = f"{actor.describe()} {describe_wait(recorder.machine.memory, request)}"
        sides.append(Side("waits", what, event.row, event.begin, event.first, event.place, event))
    order = {"sm": 0, "stream": 1, "host": 2}
    return sorted(sides, key=lambda side: (0, 0) if side.row is None else (order[side.row.kind], side.row.rank))


def _spinning(recorder: Recorder) -> list[Side]:
    sides = []
    for program in recorder.machine.stuck_in_loops():
        where = program.launch.kernel.location_of(program.generator)
        place = Place(where.file, where.line) if where.line else None
        what = f"{program.describe()} goes round a loop that sees no change"
        row, event = recorder.row_of(program), recorder.event_of(program)
        sides.append(Side("waits", what, row, program.clock, recorder.steps, place, event))
    return sides


def _queued(recorder: Recorder) -> list[Side]:
    """Launches with programs that can't start, and what stands in a stream behind work that does not end."""
    machine, sides = recorder.machine, []
    for rank, device in enumerate(machine.devices):
        for launch in device.launches:
            what = (
                f"rank {rank}: {launch.count - launch.next_program} of the {launch.count} programs of {launch.kernel.name} can't start: "
                f"all {machine.gpu.sm_count} SMs are taken"
            )
            event = recorder.event_of(launch)
            row = Row(rank, "stream", launch.queue.number if launch.queue is not None else 0)
            sides.append(Side("queued", what, row, launch.begin, recorder.steps, None if event is None else event.place, event))
        for stream in machine.streams_of(rank):
            if stream.queue and stream.active is not None:
                what = f"rank {rank}, stream {stream.number}: {len(stream.queue)} queued behind {stream.active.describe()}"
                event = recorder.event_of(stream.active)
                place = None if event is None else event.place
                sides.append(Side("queued", what, Row(rank, "stream", stream.number), stream.clock, recorder.steps, place, event))
    return sides[:_QUEUED]
