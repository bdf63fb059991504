"""A wait board: the file of shared memory in which one process's waiting kernels say what they wait for.

Each process of a world on GPUs makes one in ``/dev/shm``, for its own user only, and registers it with the driver. Its watchdog,
its peers and ``triton-dist attach`` read it. The offsets that kernels know are in ``wait_layout.py``; the header's are here.

Containers may have ``/dev/shm`` in common, and the same process numbers: a board's name has the number of its pid namespace before that
of its process. Whether a process of another namespace lives can't be asked from here, so its board is neither listed nor removed.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import stat
import struct
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ..errors import NoWaitBoardError
from . import processes
from . import wait_layout as layout

DIRECTORY = Path("/dev/shm")
"""Where boards are: memory that has a name."""

_MAGIC = b"tdwaits\0"
_VERSION = 1
_HEADER = struct.Struct("=8sIIIiIIQQ")
"""Magic, version, state, pid, rank, world size, bytes of the cache directory's name, start time of the process, pid namespace."""

_STATE_OFFSET = 12
_CACHE_DIRECTORY = 256
_RECORD = struct.Struct("=4Q8I")


class State(IntEnum):
    """What became of the process of a board. A process that was killed leaves it alive."""

    ALIVE = 0
    LEFT = 1
    FAILED = 2


@dataclass(frozen=True)
class Record:
    """What one waiting block wrote. kernel, number: which wait of which kernel; see ``wait_places.py``.

    program: its three indices. expected, seen: the word as a signed integer of ``bits`` bits. seconds: how long it waited.
    """

    kernel: int
    number: int
    program: tuple[int, int, int]
    address: int
    expected: int
    seen: int
    bits: int
    comparison: str
    seconds: float


@dataclass(frozen=True)
class BlockName:
    """A symmetric tensor: its name, and where it lies in each rank's heap, in bytes."""

    name: str
    offset: int
    nbytes: int


class WaitBoard:
    """One process's board, mapped here. Made by ``create`` in that process, by ``open`` in others."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self._memory = memory
        self._words = memoryview(memory).cast("B").cast("I")
        header = _HEADER.unpack_from(memory, 0)
        magic, version, _, self.pid, self.rank, self.world_size, name_bytes, self.start_time, self.pid_namespace = header
        if magic != _MAGIC or version != _VERSION:
            raise NoWaitBoardError(f"{path} is not a wait board of this version of triton_dist (it has version {version}, not {_VERSION})")
        name = memory[_CACHE_DIRECTORY : _CACHE_DIRECTORY + name_bytes]
        self.cache_directory = Path(name.decode(errors="surrogateescape"))

    @classmethod
    def create(cls, rank: int, world_size: int, cache_directory: str, directory: Path | None = None) -> WaitBoard:
        """This process's board, removed again by ``close`` or when the process ends, unless it is killed. Raises NoWaitBoardError."""
        path = path_of(os.getpid(), directory)
        try:
            path.unlink(missing_ok=True)  # of an earlier process with this pid in this namespace
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, layout.BOARD_BYTES)  # or the first write to a full file system is a bus error
                memory = mmap.mmap(descriptor, layout.BOARD_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise NoWaitBoardError(f"the wait board {path} can't be made: {error.strerror}; ranks need some shared memory there") from None
        name = os.fsencode(cache_directory)[: layout.RECORDS - _CACHE_DIRECTORY]
        started = processes.start_time(os.getpid()) or 0
        memory[_CACHE_DIRECTORY : _CACHE_DIRECTORY + len(name)] = name
        fields = (State.ALIVE, os.getpid(), rank, world_size, len(name), started, processes.pid_namespace())
        _HEADER.pack_into(memory, 0, _MAGIC, _VERSION, *fields)
        board = cls(path, memory)
        board._leave = weakref.finalize(board, _leave, memory, path, os.getpid())  # type: ignore[attr-defined]
        return board

    @classmethod
    def open(cls, path: Path) -> WaitBoard:
        """Another process's board. Raises NoWaitBoardError if there is none, or if it is not this user's."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            raise NoWaitBoardError(f"{path} can't be opened: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_size != layout.BOARD_BYTES:
                raise NoWaitBoardError(f"{path} is not a wait board of this user")
            return cls(path, mmap.mmap(descriptor, layout.BOARD_BYTES))
        finally:
            os.close(descriptor)

    def close(self, state: State = State.LEFT) -> None:
        """Say what became of this process, and remove its board; the memory stays mapped until nothing refers to it."""
        self._leave.detach()  # type: ignore[attr-defined]
        _end(self._memory, self.path, state)

    @property
    def address(self) -> int:
        """Where the board is mapped in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    # ------------------------------------------------------------------ words

    @property
    def state(self) -> State:
        return State(self._words[_STATE_OFFSET // 4])

    @property
    def alive(self) -> bool:
        """Whether the process runs; asked of the host, so that a killed one is seen. One in another pid namespace counts as alive."""
        return self.pid_namespace != processes.pid_namespace() or processes.start_time(self.pid) == self.start_time

    @property
    def bound(self) -> float | None:
        """Seconds after which a wait gives up, None for never."""
        ticks = self._words[layout.BOUND // 4]
        return ticks * (1 << layout.TICK_BITS) / 1e9 if ticks else None

    @bound.setter
    def bound(self, seconds: float | None) -> None:
        ticks = 0 if seconds is None else math.ceil(seconds * 1e9 / (1 << layout.TICK_BITS))
        self._words[layout.BOUND // 4] = min(ticks, 0xFFFFFFFF)

    @property
    def abort(self) -> int:
        """0, or why all waits fall through: ``TIMED_OUT``, ``PEER_LOST``."""
        return self._words[layout.ABORT // 4]

    @abort.setter
    def abort(self, reason: int) -> None:
        self._words[layout.ABORT // 4] = reason

    @property
    def request(self) -> int:
        """The number of the report that is asked for, 0 for none."""
        return self._words[layout.REQUEST // 4]

    @request.setter
    def request(self, number: int) -> None:
        self._words[layout.REQUEST // 4] = number

    # ------------------------------------------------------------------ records and blocks

    def records(self, stamp: int) -> list[Record]:
        """What kernels wrote under ``stamp``, one for each wait of each program, in the order of programs."""
        found: dict[tuple[int, int, tuple[int, int, int], int], Record] = {}
        for slot in range(layout.RECORD_SLOTS):
            start = layout.RECORDS + slot * layout.RECORD_BYTES
            if self._words[(start + layout.RECORD_STAMP) // 4] == stamp:
                record = _decode(self._memory[start : start + layout.RECORD_BYTES], stamp)
                if record is not None:
                    found[record.kernel, record.number, record.program, record.address] = record
        return sorted(found.values(), key=lambda record: (record.kernel, record.number, record.program[::-1], record.address))

    def forget_records(self, stamp: int) -> None:
        """Make the records under ``stamp`` empty slots; no kernel writes any now."""
        for slot in range(layout.RECORD_SLOTS):
            at = (layout.RECORDS + slot * layout.RECORD_BYTES + layout.RECORD_STAMP) // 4
            if self._words[at] == stamp:
                self._words[at] = 0

    def write_blocks(self, blocks: Iterable[BlockName]) -> None:
        """Publish the symmetric tensors, so that other processes can name a word; the newest that there is room for."""
        rows = [[block.name, block.offset, block.nbytes] for block in blocks]
        room = layout.BLOCKS_BYTES - 8
        text = json.dumps(rows, separators=(",", ":")).encode()
        while len(text) > room:
            rows = rows[len(rows) // 2 :] if len(rows) > 1 else []
            text = json.dumps(rows, separators=(",", ":")).encode()
        at = layout.BLOCKS // 4
        self._words[at] = self._words[at] + 1 & 0xFFFFFFFF
        self._memory[layout.BLOCKS + 8 : layout.BLOCKS + 8 + len(text)] = text
        self._words[at + 1] = len(text)
        self._words[at] = self._words[at] + 1 & 0xFFFFFFFF

    def blocks(self) -> list[BlockName]:
        """The symmetric tensors of the process; empty if it is just changing them, or was killed while it did."""
        at = layout.BLOCKS // 4
        for _ in range(100):
            count = self._words[at]
            text = self._memory[layout.BLOCKS + 8 : layout.BLOCKS + 8 + min(self._words[at + 1], layout.BLOCKS_BYTES - 8)]
            if count % 2 == 0 and self._words[at] == count:
                return [BlockName(*row) for row in json.loads(text or b"[]")]
        return []


def path_of(pid: int, directory: Path | None = None) -> Path:
    """Where the board of this user's process ``pid``, of this pid namespace, is."""
    return (directory or DIRECTORY) / f"triton_dist_{os.getuid()}_{processes.pid_namespace()}_{pid}"


def all_boards(directory: Path | None = None) -> Iterator[WaitBoard]:
    """This user's boards in this pid namespace, of running processes and of killed ones, by pid."""
    pattern = path_of(0, directory).name.removesuffix("0") + "*"
    paths = [path for path in (directory or DIRECTORY).glob(pattern) if path.name.rpartition("_")[2].isdecimal()]
    for path in sorted(paths, key=lambda path: int(path.name.rpartition("_")[2])):
        try:
            yield WaitBoard.open(path)
        except NoWaitBoardError:
            continue


def remove_stale(directory: Path | None = None) -> list[Path]:
    """Remove what killed processes of this user and this pid namespace left behind; returns what was removed."""
    stale = [board.path for board in all_boards(directory) if not board.alive]
    for path in stale:
        path.unlink(missing_ok=True)
    return stale


def _decode(data: bytes, stamp: int) -> Record | None:
    """A record from its bytes; None if it has changed meanwhile, or names no comparison."""
    kernel, address, expected, seen, number, *program, elapsed, _, kind, read_stamp = _RECORD.unpack(data)
    bits, comparison = kind & 0xFF, kind >> 8
    if read_stamp != stamp or comparison >= len(layout.COMPARISONS) or bits not in (32, 64):
        return None
    seconds = elapsed * (1 << layout.TICK_BITS) / 1e9
    x, y, z = program
    values = (_signed(expected, bits), _signed(seen, bits))
    return Record(kernel, number, (x, y, z), address, *values, bits, layout.COMPARISONS[comparison], seconds)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _leave(memory: mmap.mmap, path: Path, pid: int) -> None:
    """When the process ends by itself. A process that was forked off leaves its parent's board alone."""
    if os.getpid() == pid:
        # The interpreter sets it when it prints an exception that nobody caught.
        _end(memory, path, State.FAILED if hasattr(sys, "last_type") else State.LEFT)


def _end(memory: mmap.mmap, path: Path, state: State) -> None:
    struct.pack_into("=I", memory, _STATE_OFFSET, state)
    path.unlink(missing_ok=True)
