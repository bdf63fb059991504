"""What a process tells the others: a page of shared memory with its state, its messages, and the lines of a report.

A word is written by one process only, except under the shared lock. A text is written before the word with its size.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from enum import IntEnum
from typing import Any

from ...runtime import processes
from ...runtime.address_map import MAX_WORLD_SIZE
from .shared_lock import LOCK_BYTES

BOARD_BYTES = 2 << 20
"""Bytes of a board, at the start of each rank's shared memory; the heap follows."""


class State(IntEnum):
    """What a process does. STUCK: nothing in it can go on by itself. COLLECTIVE: that, and its host is inside ``torch.distributed``.

    ENDED: it has left the world, or ended without an error. FAILED: it ended with an error.
    """

    RUNNING = 0
    STUCK = 1
    COLLECTIVE = 2
    ENDED = 3
    FAILED = 4


class Inquiry(IntEnum):
    """What somebody asks all ranks to report for. ATTACH: another process does, which only wants to know."""

    NONE = 0
    DEADLOCK = 1
    TIMEOUT = 2
    ATTACH = 3


(
    _PID,
    _START,
    _NAMESPACE,
    _STATE,
    _VERSION,
    _POLLS,
    _ANSWERED,
    _COMPOSED,
    _REQUEST,
    _KIND,
    _ASKER,
    _VERDICT,
    _MAIL_COUNT,
    _MAIL_TEAM,
    _MAIL_NUMBER,
    _MAIL_SIZE,
) = range(16)
_SIZES = 16
_RANK, _WORLD_SIZE = 24, 25
_ACKNOWLEDGED = 32
_LOCK = 2048
assert (_ACKNOWLEDGED + MAX_WORLD_SIZE) * 8 <= _LOCK and _LOCK + LOCK_BYTES <= 4096

_TEXTS = ("waited", "writes", "lines", "error", "verdict")
_TEXT_BYTES = 256 << 10
_MAIL = 4096 + len(_TEXTS) * _TEXT_BYTES
MAIL_BYTES = BOARD_BYTES - _MAIL
"""Bytes of the longest message."""


class _Word:
    """One int64 word of a board, as an attribute."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, board: Board, owner: type | None = None) -> int:
        return board._words[self._index]

    def __set__(self, board: Board, value: int) -> None:
        board._words[self._index] = value


class Board:
    """One rank's board, mapped here.

    pid, start_time, pid_namespace: name its process. rank, world_size: its place, for who comes from outside. version: grows
    with each change that others may see. polls: how often the process has looked at everything that it waits for. answered, composed: the
    last request that it has published its writes for, and its lines.
    On rank 0's board only, for all: request, kind, asker (see ``inquiry``), verdict (1 once everyone is to raise the text ``verdict``).
    """

    pid, start_time, pid_namespace = _Word(_PID), _Word(_START), _Word(_NAMESPACE)
    rank, world_size = _Word(_RANK), _Word(_WORLD_SIZE)
    version, polls = _Word(_VERSION), _Word(_POLLS)
    answered, composed = _Word(_ANSWERED), _Word(_COMPOSED)
    request, kind, asker, verdict = _Word(_REQUEST), _Word(_KIND), _Word(_ASKER), _Word(_VERDICT)
    mail_count, mail_team, mail_number, mail_size = _Word(_MAIL_COUNT), _Word(_MAIL_TEAM), _Word(_MAIL_NUMBER), _Word(_MAIL_SIZE)

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._words: Any = memoryview(memory).cast("B").cast("q")

    def reset(self, rank: int = 0, world_size: int = 1) -> None:
        """Begin a new world; done by its own process while no other one looks."""
        self._memory[:4096] = bytes(4096)
        self.rank, self.world_size = rank, world_size
        self.pid, self.start_time = os.getpid(), processes.start_time(os.getpid()) or 0
        self.pid_namespace = processes.pid_namespace()

    @property
    def state(self) -> State:
        return State(self._words[_STATE])

    @state.setter
    def state(self, state: State) -> None:
        self._words[_STATE] = state

    @property
    def lock_address(self) -> int:
        """Where the lock of all processes is, on rank 0's board."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory)) + _LOCK

    @property
    def alive(self) -> bool:
        """Whether its process runs. One in another pid namespace can't be seen, and counts as alive."""
        return self.pid_namespace != processes.pid_namespace() or processes.start_time(self.pid) == self.start_time

    def how_lost(self, rank: int) -> str | None:
        """How the process of this board, rank ``rank``, ended, if nothing can be expected of it any more."""
        if self.state is State.ENDED:
            return None
        error = self.read_text("error")
        if error:
            return f"rank {rank} (process {self.pid}) failed: {error}"
        if self.alive or self.state in (State.ENDED, State.FAILED):  # it may have ended just now, and is told next time
            return None
        return f"rank {rank} (process {self.pid}) was killed"

    # ------------------------------------------------------------------ texts

    def write_text(self, name: str, value: Any) -> None:
        """Publish a value as JSON; what is too long is cut off, lists at their end."""
        data = json.dumps(value).encode()
        while len(data) > _TEXT_BYTES:
            value = value[: len(value) // 2]
            data = json.dumps(value).encode()
        number = _TEXTS.index(name)
        at = 4096 + number * _TEXT_BYTES
        self._memory[at : at + len(data)] = data
        self._words[_SIZES + number] = len(data)

    def read_text(self, name: str) -> Any:
        """What was published; None before."""
        number = _TEXTS.index(name)
        size, at = self._words[_SIZES + number], 4096 + number * _TEXT_BYTES
        return json.loads(self._memory[at : at + size]) if size else None

    # ------------------------------------------------------------------ messages

    def acknowledged(self, reader: int) -> int:
        """The count of the last message that rank ``reader`` has taken from this board."""
        return self._words[_ACKNOWLEDGED + reader]

    def acknowledge(self, reader: int, count: int) -> None:
        self._words[_ACKNOWLEDGED + reader] = count

    def post(self, team: int, number: int, data: bytes) -> None:
        """Put a message here; the one before must have been taken."""
        self._memory[_MAIL : _MAIL + len(data)] = data
        self.mail_size = len(data)
        self.mail_count = self.mail_count + 1
        # Last, for these say that it is there; who sees them acknowledges the count.
        self.mail_team, self.mail_number = team, number

    @property
    def mail(self) -> bytes:
        return self._memory[_MAIL : _MAIL + self.mail_size]
