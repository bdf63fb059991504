"""Which words those who wait in a deadlock would set if they went on.

Who should have set a word has not come to it, so no record tells. But the programs are there: each is let go on as if what it waits for had
come, and the words that it sets are noted. All memory is put back after each, and nothing of it reaches the recording, the user's time
line or the output. The run has failed by then, and nobody goes on with these programs.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import WORDS, element_index
from .ops.arith import wrap
from .program import Program
from .requests import WaitRequest
from .timeline import Timeline
from .work import Task, WriteValue

if TYPE_CHECKING:
    from .machine import Machine

_BYTES = 16 << 20
"""Memory up to which it is put back; with more, nothing is looked for."""

_PROGRAMS, _TURNS, _WAITS = 64, 5000, 64
"""Programs that are let go on, the turns that each takes at most, and the waits that it passes."""

_STEP = {"gt": 1, "ne": 1, "lt": -1}
"""By how much a word that fulfils a condition differs from the value that stands in it."""


class _Written(dict):
    """``memory.writes`` meanwhile: for each address the line that set it first."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[int, int] = {}

    def __setitem__(self, address: int, write: tuple) -> None:
        super().__setitem__(address, write)
        self.lines.setdefault(address, write[3])

    def update(self, writes: dict[int, tuple]) -> None:  # type: ignore[override]
        for address, write in writes.items():
            self[address] = write


def words_to_come(machine: Machine, waiting: list[tuple[Any, WaitRequest]]) -> list[dict[int, int]]:
    """For each of those who wait, the addresses of the words that it would set, with the numbers of the lines (-1 for a stream)."""
    total = sum(allocation.hi - allocation.lo for allocation in machine.memory.allocations)
    look = total <= _BYTES and sum(isinstance(actor, Program) for actor, _ in waiting) <= _PROGRAMS
    return [
        _of_stream(actor) if isinstance(actor, Task) else _of_program(machine, actor, request) if look else {} for actor, request in waiting
    ]


def _of_stream(task: Task) -> dict[int, int]:
    """What is queued behind it as a write of a word."""
    queue = task.work.queue
    return {work.address: -1 for work in (queue.queue if queue is not None else ()) if isinstance(work, WriteValue)}


def _of_program(machine: Machine, program: Program, request: WaitRequest) -> dict[int, int]:
    written = _Written()
    with _apart(machine, written):
        waits = 0
        for _ in range(_TURNS):
            _fulfil(request)
            try:
                asked = next(program.generator)
            except (StopIteration, Exception):  # noqa: B014 - with made-up values a program may do anything wrong
                break
            if isinstance(asked, WaitRequest):
                waits += asked is not request
                request = asked
                if waits > _WAITS:
                    break
        for copy in machine.pending.entries:
            if copy.signal is not None:
                written.lines.setdefault(copy.signal.address, copy.location)
    return written.lines


def _fulfil(request: WaitRequest) -> None:
    flag = request.expected << 32 if request.compare == "flag" else request.expected
    value = wrap(flag + _STEP.get(request.compare, 0), 8 * request.itemsize)
    WORDS[request.itemsize][element_index(request.address, request.itemsize)] = value


@contextlib.contextmanager
def _apart(machine: Machine, written: _Written) -> Iterator[None]:
    """What runs inside changes nothing: memory, queues and checks are as before at the end."""
    # What the garbage collector frees meanwhile would be written to when memory is put back.
    collecting = gc.isenabled()
    gc.disable()
    memory, races = machine.memory, machine.races
    before = [(allocation.lo, ctypes.string_at(allocation.lo, allocation.hi - allocation.lo)) for allocation in memory.allocations]
    kept = memory.writes, memory.watchers, memory.stored, machine.timeline, machine.pending.entries, machine.recorder
    found = None if races is None else (races.recorder, list(races.races))
    memory.writes, memory.watchers, memory.stored = written, {}, None
    machine.timeline, machine.pending.entries, machine.recorder = Timeline(), [], None
    if races is not None:
        races.recorder = None
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        memory.writes, memory.watchers, memory.stored, machine.timeline, machine.pending.entries, machine.recorder = kept
        if races is not None and found is not None:
            races.recorder, races.races = found
        for address, content in before:
            ctypes.memmove(address, content, len(content))
        if collecting:
            gc.enable()
