"""The text of a deadlock: who waits, where, for which word, what it holds, and who wrote it last."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .memory import WORDS, Allocation, Memory, element_index
from .requests import SYMBOLS, WaitRequest, shown
from .waits_for import place_in_order, waits_for
from .work import Task, WaitEvent, Work

if TYPE_CHECKING:
    from .machine import Machine

_SHOWN = 24
_OTHER_WORDS = 4


def deadlock_report(machine: Machine, spinning: list, host_waits: list[tuple[int, str]]) -> str:
    """One line for each thing that waits, equal ones together."""
    return join_sections([deadlock_sections(machine, spinning, host_waits)])


def circle_lines(machine: Machine) -> list[str]:
    """One line for each that waits in a circle, and for what it waits; none without a circle. The machine can't go on after it."""
    found = waits_for(machine)
    circle = found.circle()
    lines = ["they wait in a circle:"] if circle else []
    for actor, following in zip(circle[:_SHOWN], [*circle[1:], *circle[:1]], strict=False):
        setter = found.would_set(found.actors.index(following), actor.waiting)
        lines.append(f"  {actor.describe()} waits for {word_of(machine.memory, actor.waiting)}, which would be set by {setter}")
    return [*lines, f"  ... and {len(circle) - _SHOWN} more"] if len(circle) > _SHOWN else lines


def deadlock_sections(machine: Machine, spinning: list, host_waits: list[tuple[int, str]]) -> list[list[str]]:
    """The lines of a deadlock report by kind of what waits: programs, loops, queues, hosts."""
    return [
        _waiting_lines(machine),
        _looping_lines(machine.memory, spinning, "spins in a loop that sees no change"),
        _queued_lines(machine),
        [f"  rank {rank}, host: {what}" for rank, what in host_waits],
    ]


def join_sections(by_machine: list[list[list[str]]]) -> str:
    """The deadlock report of several machines, from what ``deadlock_sections`` says of each: one kind after the other."""
    kinds = zip(*by_machine, strict=True)
    return "\n".join(["nothing can move; what waits, and for what:", *(line for kind in kinds for lines in kind for line in lines)])


def livelock_report(machine: Machine, running: list, spinning: list) -> str:
    """One line for each program that runs without changing memory, and for each thing that waits."""
    lines = ["livelock: programs run, but no memory has changed for a long time:"]
    lines += _looping_lines(machine.memory, running, "goes round a loop that changes no memory")
    lines += _waiting_lines(machine)
    lines += _looping_lines(machine.memory, spinning, "spins in a loop that sees no change")
    lines += _queued_lines(machine)
    return "\n".join(lines)


def _waiting_lines(machine: Machine) -> list[str]:
    groups: dict[tuple, list] = defaultdict(list)
    for actor in sorted(machine.parked(), key=place_in_order):
        request = actor.waiting
        name = actor.launch.kernel.name if hasattr(actor, "launch") else _stream_name(actor)
        groups[(actor.rank, name, _line(actor), request.address, request.compare, repr(request.expected))].append(actor)
    lines: list[str] = []
    for (rank, name, line, *_), actors in groups.items():
        if len(lines) >= _SHOWN:
            lines.append(f"  ... and {len(groups) - _SHOWN} more waits")
            break
        lines.append(
            f"  rank {rank}, {_programs(actors)}{name}{f' at {line}' if line else ''} {describe_wait(machine.memory, actors[0].waiting)}"
        )
    return lines


def _stream_name(task: Task) -> str:
    number = task.work.queue.number if task.work.queue is not None else 0
    return f"stream {number}" + (f", {task.work.label}," if task.work.names_itself else "")


def _line(actor) -> str:
    """The line of a wait; under a condition that differs from thread to thread it is not where the program itself stands."""
    location = actor.waiting.location
    return str(actor.launch.kernel.location(location)) if location >= 0 else actor.line()


def _programs(actors: list) -> str:
    pids = [actor.pid for actor in actors if hasattr(actor, "pid")]
    if not pids:
        return ""
    if len(pids) == 1:
        return f"program {pids[0]} of "
    shown = ", ".join(str(pid) for pid in pids[:3])
    return f"{len(pids)} programs ({shown}{', ...' if len(pids) > 3 else ''}) of "


def word_of(memory: Memory, request: WaitRequest) -> str:
    """The word that is waited for, by the name of its tensor."""
    allocation = memory.find(request.address)
    return allocation.label(request.address) if allocation else f"the word at {request.address:#x}"


def describe_wait(memory: Memory, request: WaitRequest) -> str:
    """What a wait is for, what it sees and who wrote that."""
    allocation = memory.find(request.address)
    seen = shown(request.compare, WORDS[request.itemsize][element_index(request.address, request.itemsize)]) if allocation else "?"
    text = f"waits for {word_of(memory, request)} {SYMBOLS[request.compare]} {request.expected}; it is {seen}"
    return text + _who_wrote(memory, allocation, request.address)


def _who_wrote(memory: Memory, allocation: Allocation | None, address: int) -> str:
    """The last writer of a word, or which other words of its tensor were written instead."""
    write = memory.last_write(address)
    if write is not None:
        return f", last written by {written_by(write)}"
    text = "; nobody wrote it"
    others = {} if allocation is None else memory.writes_in(allocation)
    if allocation is not None and others:
        shown = [f"{allocation.name}[{allocation.index(a)}] = {w.value} by {written_by(w)}" for a, w in list(others.items())[:_OTHER_WORDS]]
        more = f", and {len(others) - _OTHER_WORDS} more" if len(others) > _OTHER_WORDS else ""
        text += f" (other words of it were written: {'; '.join(shown)}{more})"
    return text


def written_by(write) -> str:
    """Who wrote a word, with the line."""
    writer = write.writer
    place = writer.launch.kernel.location(write.location) if hasattr(writer, "launch") else None
    return writer.describe() + (f" at {place}" if place is not None and place.line else "")


def _looping_lines(memory: Memory, programs: list, what: str) -> list[str]:
    groups: dict[tuple, list] = defaultdict(list)
    for actor in sorted(programs, key=lambda actor: (actor.rank, actor.pid[::-1])):
        awaits = tuple((request.address, request.compare, request.expected) for request in actor.awaits)
        groups[(actor.rank, actor.launch.kernel.name, actor.line(), actor.word, awaits)].append(actor)
    return [
        f"  rank {rank}, {_programs(actors)}{name} at {line} {what}{_awaited(memory, actors[0].awaits) or _looked_at(memory, word)}"
        for (rank, name, line, word, _), actors in list(groups.items())[:_SHOWN]
    ]


def _awaited(memory: Memory, awaits: tuple[WaitRequest, ...]) -> str:
    """The words that the threads of a program poll, where the loop says what it waits for."""
    more = f", and {len(awaits) - _OTHER_WORDS} more" if len(awaits) > _OTHER_WORDS else ""
    shown = "; ".join(describe_wait(memory, request) for request in awaits[:_OTHER_WORDS])
    return f"; its threads: {shown}{more}" if awaits else ""


def _looked_at(memory: Memory, word: int | None) -> str:
    """Which word a spinning program accessed last: most likely the one that should change."""
    allocation = None if word is None else memory.find(word)
    if word is None or allocation is None:
        return ""
    write = memory.last_write(word)
    value = "" if write is None else f" = {write.value}"
    return f"; the last word it accessed is {allocation.label(word)}{value}{_who_wrote(memory, allocation, word)}"


def _queued_lines(machine: Machine) -> list[str]:
    lines = []
    for rank, device in enumerate(machine.devices):
        resident = machine.gpu.sm_count - len(device.free)
        for launch in device.launches:
            waiting = launch.count - launch.next_program
            lines.append(
                f"  rank {rank}: {waiting} of the {launch.count} programs of {launch.kernel.name} can't start, the first is program "
                f"{launch.program_id(launch.next_program)}: all {machine.gpu.sm_count} SMs are taken by {resident} resident programs"
            )
        for stream in machine.streams_of(rank):
            if isinstance(stream.active, WaitEvent) or isinstance(stream.active, Work) and stream.active.names_itself:
                lines.append(f"  rank {rank}, stream {stream.number}: {stream.active.describe()}")
            if stream.queue and stream.active is not None:
                lines.append(
                    f"  rank {rank}, stream {stream.number}: {len(stream.queue)} queued behind {stream.active.describe()}: "
                    + ", ".join(work.describe() for work in list(stream.queue)[:3])
                )
    return lines
