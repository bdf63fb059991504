"""Puts and gets that have been issued and have not landed yet, of all ranks.

A put lands at the latest when its rank orders it: by quiet, fence or a barrier, or at the end of its kernel. Before that it lands at a
time that the seed chooses: a quarter of them soon, the others hardly before nothing else can move. So a program that forgets the order
sees what is late, and one that is not ready for early data sees that, too. In a run for its time everything lands at once.
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .memory import WORDS, element_index
from .ops.arith import wrap
from .ops.memory import put_integer
from .work import REAL_BYTES

if TYPE_CHECKING:
    from .check.copies import PendingActor
    from .launch import KernelLaunch
    from .machine import Machine
    from .program import Program

_PROMPT = 0.25
"""Share of the copies that land soon."""

_SOON, _LATE = 0.25, 1 / 512
"""Chance, in each turn of the machine, that one copy is looked at; and that it lands then although it is not a prompt one."""


@dataclass(frozen=True)
class SignalUpdate:
    """What becomes of a signal word: set to ``value`` or, where ``op`` is "add", raised by it."""

    address: int
    value: int
    op: str
    itemsize: int


@dataclass(slots=True, eq=False)
class PendingCopy:
    """One copy under way. data: what a blocking put copies, which its source may no longer hold; None to read the source on landing.

    Addresses are those of the memory that is read and written, on whatever rank. signal: follows the data. location: number of the
    source line in the program's kernel. race: its actor where data races are looked for and a signal follows.
    """

    program: Program
    location: int
    target: int
    source: int
    nbytes: int
    is_get: bool = False
    data: bytes | None = None
    signal: SignalUpdate | None = None
    race: PendingActor | None = None
    prompt: bool = False
    time: float = 0.0


def update_signal(program: Program, signal: SignalUpdate, location: int, time: float) -> None:
    """Carry out an update of a signal word, whose address was checked. time: when others can see it."""
    value = signal.value
    if signal.op == "add":
        value = wrap(WORDS[signal.itemsize][element_index(signal.address, signal.itemsize)] + value, 8 * signal.itemsize)
    put_integer(program, signal.address, value, signal.itemsize, location, time)


class PendingCopies:
    """All copies under way on a machine. ``entries`` are in the order of issue."""

    def __init__(self, machine: Machine) -> None:
        self.entries: list[PendingCopy] = []
        self._machine = machine
        self._random = random.Random(f"pending copies {machine.seed}")

    def add(self, copy: PendingCopy) -> None:
        """Issue a copy, whose addresses were checked."""
        copy.time = copy.program.clock
        if self._machine.recorder is not None:
            self._machine.recorder.put_begins(copy)
        if self._machine.timing:
            self._land(copy)
            return
        copy.prompt = self._random.random() < _PROMPT
        self.entries.append(copy)

    def run(self, copy: PendingCopy) -> None:
        """Carry a copy out at once."""
        copy.time = copy.program.clock
        if self._machine.recorder is not None:
            self._machine.recorder.put_begins(copy)
        self._land(copy)

    def complete(self, rank: int) -> None:
        """Land everything of a rank: what quiet and a barrier do."""
        self._land_all([copy for copy in self.entries if copy.program.rank == rank])

    def deliver(self, rank: int) -> None:
        """Land the puts of a rank, but not its gets: what a fence does, as seen by others."""
        self._land_all([copy for copy in self.entries if copy.program.rank == rank and not copy.is_get])

    def land_some(self, copies: list[PendingCopy]) -> None:
        """Land these, as far as they have not landed."""
        waiting = set(map(id, self.entries))
        self._land_all([copy for copy in copies if id(copy) in waiting])

    def finish(self, launch: KernelLaunch) -> None:
        """Land everything of a launch, which ends."""
        self._land_all([copy for copy in self.entries if copy.program.launch is launch])

    def take_turn(self) -> None:
        """Called between the turns of programs while there are entries: perhaps one lands."""
        chance = self._random.random()
        if chance >= _SOON:
            return
        copy = self._random.choice(self.entries)
        if copy.prompt or chance < _LATE:
            self._land_all([copy])

    def land_one(self) -> bool:
        """Land one of them, since nothing else can move; False if there is none."""
        if not self.entries:
            return False
        policy = self._machine.policy
        self._land_all([self.any_one() if policy is None else policy.forced(self)])
        return True

    def any_one(self) -> PendingCopy:
        """One of them, by the seed."""
        return self._random.choice(self.entries)

    def shuffle(self, copies: list[PendingCopy]) -> None:
        """Put copies into an order that follows from the seed."""
        self._random.shuffle(copies)

    def _land_all(self, copies: list[PendingCopy]) -> None:
        if not copies:
            return
        leaving = set(map(id, copies))
        self.entries = [copy for copy in self.entries if id(copy) not in leaving]
        policy = self._machine.policy  # nothing orders them among each other
        if policy is None:
            self.shuffle(copies)
        else:
            policy.order(copies, self)
        for copy in copies:
            self._land(copy)

    def _land(self, copy: PendingCopy) -> None:
        memory = self._machine.memory
        if copy.nbytes and not (self._machine.timing and copy.nbytes > REAL_BYTES):
            if copy.data is None:
                ctypes.memmove(copy.target, copy.source, copy.nbytes)
            else:
                ctypes.memmove(copy.target, copy.data, copy.nbytes)
            if copy.nbytes in (4, 8) and copy.target % copy.nbytes == 0:
                # It may be a word that somebody waits for: reports name who wrote it.
                value = WORDS[copy.nbytes][element_index(copy.target, copy.nbytes)]
                memory.writes[copy.target] = (copy.program, value, copy.time, copy.location)
            memory.changed(copy.target, copy.target + copy.nbytes)
        if self._machine.recorder is not None:
            self._machine.recorder.put_ends(copy)
        if copy.signal is not None:
            if copy.race is not None:
                signal = copy.signal
                self._machine.races.put_signals(copy.race, signal.address, signal.itemsize, signal.op == "add")  # type: ignore[union-attr]
            update_signal(copy.program, copy.signal, copy.location, copy.time)
