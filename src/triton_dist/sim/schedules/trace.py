"""A run written down: which host, program, task or copy moved, one name a turn; and the switches that make the same run again.

Names do not depend on the order of a run: ``h1`` is the host of rank 1, ``1.0.k2`` the third kernel of stream 0 of rank 1 and
``1.0.k2.5`` its program number 5 (c, w, v, t: copies, writes of a value, waits for one, torch operators), ``1.0.k2.5#3`` the fourth put
or get of that program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..pending import PendingCopies, PendingCopy
from ..program import Program
from ..work import Copy, TorchCall, WaitValue, WriteValue

if TYPE_CHECKING:
    from ..machine import Machine

START = "start"
"""What ran before anything did."""

MOST_TURNS = 1_000_000
"""Turns of a run that are written down at most."""

_LETTERS = {Copy: "c", WriteValue: "w", WaitValue: "v", TorchCall: "t"}


class Switch(NamedTuple):
    """When ``name`` has had ``turns`` turns, ``to`` goes on. Written ``name@turns>to``."""

    name: str
    turns: int
    to: str

    def __str__(self) -> str:
        return f"{self.name}@{self.turns}>{self.to}"


def name_of(actor: Any) -> str:
    """The name of a program or task."""
    if isinstance(actor, Program):
        (x, y, z), (columns, rows, _) = actor.pid, actor.num_programs
        launch = actor.launch
        return f"{launch.rank}.{launch.queue.number if launch.queue else 0}.k{launch.number}.{x + columns * (y + rows * z)}"
    work = actor.work
    return f"{work.rank}.{work.queue.number if work.queue else 0}.{_LETTERS.get(type(work), type(work).__name__)}{work.number}"


def host_name(rank: int) -> str:
    """The name of a rank's host."""
    return f"h{rank}"


@dataclass
class Trace:
    """turns: names in the order in which they moved. landings: copies in the order in which they landed. complete: nothing was left out."""

    turns: list[str] = field(default_factory=list)
    landings: list[str] = field(default_factory=list)
    complete: bool = True

    def switches(self) -> list[Switch]:
        """Every change from one to another, and after how many turns of the one."""
        taken: dict[str, int] = defaultdict(int)
        found, before = [], START
        for name in self.turns:
            if name != before:
                found.append(Switch(before, taken[before], name))
            taken[name] += 1
            before = name
        return found


class Tracer:
    """Writes down into ``trace`` what runs on a machine; the machine and its hosts tell it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def moved(self, name: str) -> None:
        """Something has a turn."""
        if len(self.trace.turns) < MOST_TURNS:
            self.trace.turns.append(name)
        else:
            self.trace.complete = False

    def watch(self, actor: Any) -> None:
        """Write down the turns of a new program or task."""
        actor.generator = _Watched(actor.generator, self, name_of(actor))


class _Watched:
    """The steps of an actor, each of which is written down; looks like the generator to who asks where it stands."""

    __slots__ = ("_steps", "_tracer", "_name")

    def __init__(self, steps: Any, tracer: Tracer, name: str) -> None:
        self._steps, self._tracer, self._name = steps, tracer, name

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._tracer.moved(self._name)
        return next(self._steps)

    @property
    def gi_frame(self) -> Any:
        """That of the steps."""
        return self._steps.gi_frame

    @property
    def gi_yieldfrom(self) -> Any:
        """That of the steps."""
        return self._steps.gi_yieldfrom

    def close(self) -> None:
        """End the steps."""
        self._steps.close()


class NamedCopies(PendingCopies):
    """Copies under way that have names, and are written down when they land, where there is a tracer."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._issued: dict[Program, int] = defaultdict(int)
        self.names: dict[PendingCopy, str] = {}
        """Of those under way."""
        self._choosing = False

    def add(self, copy: PendingCopy) -> None:
        number = self._issued[copy.program]
        self._issued[copy.program] = number + 1
        self.names[copy] = f"{name_of(copy.program)}#{number}"
        super().add(copy)

    def take_turn(self) -> None:
        self._choosing = True
        super().take_turn()
        self._choosing = False

    def land_one(self) -> bool:
        self._choosing = True
        landed = super().land_one()
        self._choosing = False
        return landed

    def land(self, copy: PendingCopy) -> None:
        """Land one that nothing has ordered."""
        self._choosing = True
        self._land_all([copy])
        self._choosing = False

    def _land(self, copy: PendingCopy) -> None:
        name = self.names.pop(copy, None)
        tracer = self._machine.tracer
        if name is not None and tracer is not None:
            tracer.trace.landings.append(name)
            if self._choosing:
                tracer.moved(name)
        super()._land(copy)
