"""How the processes of a world write one report: each publishes what it has written, then the lines of what it waits for.

Whoever asks puts a request on rank 0's board, one at a time. A process answers it between two steps of its machine: first with its
writes to the tensors that someone waits for; once all have, with its lines, which then say who wrote a word even if that was a peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..memory import WORDS, Write, element_index
from ..report import deadlock_sections, join_sections, written_by
from .board import Board, Inquiry, State
from .machine import ProcessMachine
from .shared_lock import SharedLock

_PATIENCE = 2.0
"""Seconds to wait for the answer of a process that is busy."""

LONGEST_ATTACH = 10.0
"""Seconds that an inquiry from outside may stand."""

_MOST_WRITES = 1024


@dataclass(frozen=True)
class _PeerWriter:
    """Who wrote a word in another process. text: as that process describes it."""

    rank: int
    text: str

    def describe(self) -> str:
        return self.text


class Reporter:
    """This rank's part in reports. host_waits: what its host waits for, in words."""

    def __init__(
        self, rank: int, boards: Sequence[Board], lock: SharedLock, machine: ProcessMachine, host_waits: Callable[[], list[str]]
    ) -> None:
        self._rank = rank
        self._boards = boards
        self._lock = lock
        self._machine = machine
        self._host_waits = host_waits
        self._deadline = 0.0
        self._attached = 0, 0.0

    @property
    def _board(self) -> Board:
        return self._boards[self._rank]

    def publish_waits(self) -> None:
        """Say in which tensors the words lie that this rank waits for."""
        memory = self._machine.memory
        words = {actor.waiting.address for actor in self._machine.parked()}
        words |= {program.word for program in self._machine.spinning if program.word is not None}
        found = {(allocation.lo, allocation.hi) for word in words if (allocation := memory.find(word)) is not None}
        self._board.write_text("waited", sorted(found))

    def publish_writes(self) -> None:
        """Say what this rank has written last to the words of the tensors that others wait for."""
        ranges = {(lo, hi) for board in self._boards for lo, hi in board.read_text("waited") or ()}
        writes: list[list] = []
        for address, write in list(self._machine.memory.writes.items()):
            if len(writes) < _MOST_WRITES and any(lo <= address < hi for lo, hi in ranges):
                last = Write(*write)
                if not isinstance(last.writer, _PeerWriter):
                    writes.append([address, _plain(last.value), last.time, written_by(last)])
        self._board.write_text("writes", writes)

    def ask(self, kind: Inquiry) -> bool:
        """Ask for a report; False if another one is under way."""
        shared = self._boards[0]
        with self._lock:
            if shared.kind != Inquiry.NONE:
                return False
            shared.kind, shared.asker, shared.request = kind, self._rank, shared.request + 1
        return True

    @property
    def asked(self) -> Inquiry:
        """What this rank has asked for and not taken yet."""
        shared = self._boards[0]
        return Inquiry(shared.kind) if shared.kind and shared.asker == self._rank else Inquiry.NONE

    def serve(self) -> None:
        """Answer what is asked for, if anything is."""
        shared, board = self._boards[0], self._board
        request = shared.request
        self._end_forgotten(request)
        if shared.kind == Inquiry.NONE or board.composed == request:
            return
        if board.answered != request:
            self.publish_waits()
            self.publish_writes()
            self._deadline = time.monotonic() + _PATIENCE
            board.answered = request
        if self._all("answered", request):
            self._learn_writes()
            board.write_text("lines", self.sections())
            board.composed = request

    def _end_forgotten(self, request: int) -> None:
        """Close an inquiry from outside whose asker is gone: nobody else could ask for anything."""
        shared, now = self._boards[0], time.monotonic()
        if self._rank != 0 or shared.kind != Inquiry.ATTACH:
            return
        if self._attached[0] != request:
            self._attached = request, now
        elif now - self._attached[1] > LONGEST_ATTACH:
            self.close()

    def finished(self) -> bool:
        """Whether every process has answered this rank's request, or has had the time to."""
        request = self._boards[0].request
        return self._board.composed == request and self._all("composed", request)

    def sections(self) -> list[list[str]]:
        """This rank's lines of the report, by kind."""
        return deadlock_sections(self._machine, self._machine.spinning, [(self._rank, what) for what in self._host_waits()])

    def report(self) -> str:
        """The report of all ranks."""
        by_rank = []
        for rank, board in enumerate(self._boards):
            lines = board.read_text("lines") if board.composed == self._boards[0].request else None
            if board.state is State.ENDED:
                lines = [[], [], [], [f"  rank {rank}, host: has ended"]]
            by_rank.append(lines or [[], [], [], [f"  rank {rank}: has not said what it waits for"]])
        return join_sections(by_rank)

    def close(self) -> None:
        """Let others ask."""
        with self._lock:
            self._boards[0].kind = Inquiry.NONE

    def _all(self, word: str, request: int) -> bool:
        """Whether all processes that can have come so far, or the time is over."""
        gone = (State.ENDED, State.FAILED)
        return time.monotonic() > self._deadline or all(getattr(board, word) == request or board.state in gone for board in self._boards)

    def _learn_writes(self) -> None:
        """Enter the peers' writes into this rank's memory of who wrote what; where two did, the one whose value is there counts."""
        memory = self._machine.memory
        for rank, board in enumerate(self._boards):
            for address, value, moment, text in (board.read_text("writes") or ()) if rank != self._rank else ():
                known = memory.last_write(address)
                if known is None or isinstance(known.writer, _PeerWriter) or known.value != self._value(address):
                    memory.writes[address] = (_PeerWriter(rank, text), value, moment, -1)

    def _value(self, address: int) -> Any:
        """What a word holds, as an integer of the size of its tensor's elements."""
        allocation = self._machine.memory.find(address)
        size = allocation.itemsize if allocation is not None and allocation.itemsize in WORDS else 4
        return WORDS[size][element_index(address, size)]


def _plain(value: object) -> object:
    """A written value as JSON takes it."""
    item = getattr(value, "item", lambda: value)()
    return item if isinstance(item, (int, float, str)) else str(item)
