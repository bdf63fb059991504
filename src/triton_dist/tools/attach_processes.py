"""``triton-dist attach`` for ranks that are CPU processes: asks them through the boards in their shared memory.

The memory has no name; it is opened by way of a rank's open files in /proc, which works for processes of the same user. The ranks answer
between two steps of their simulated GPUs, as they do when a deadlock is looked for, and go on.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..runtime import processes

LONGEST_ANSWER = 4.0
"""Seconds that the ranks get to answer."""

_PERIOD = 0.02


def report_of(pid: int) -> str | None:
    """What rank ``pid``, or the ranks that it started, wait for, in words; None if there are none."""
    boards = _boards_of(pid)
    if not boards:
        return None
    wanted = [board for board in boards if board.pid == pid] or boards
    sections = _ask(boards, wanted)
    if sections is None:
        return "triton-dist attach: the ranks are writing a report already (of a deadlock or a wait that took too long); try again"
    lines = []
    for board in wanted:
        said = sections[board.rank]
        if board.read_text("error"):
            lines.append(f"  rank {board.rank} (process {board.pid}) has failed: {board.read_text('error')}")
        elif said is None:
            lines.append(f"  rank {board.rank} (process {board.pid}): no answer within {LONGEST_ANSWER:g} s, or it has ended")
        elif not any(said):
            lines.append(f"  rank {board.rank} (process {board.pid}): nothing waits")
        else:
            lines += [line for kind in said for line in kind]
    return "\n".join(["what waits, and for what:", *lines])


def _boards_of(pid: int) -> list:
    """The boards of the world in which ``pid`` is a rank, or has started one, by rank; empty if there is none."""
    from ..sim.processes.board import Board

    for candidate in [pid, *_descendants(pid)]:
        boards = [Board(memory) for memory in _segments_of(candidate)]
        found = {board.rank: board for board in boards if board.pid and board.alive}
        ours = [board for board in found.values() if board.pid == pid or processes.is_descendant(board.pid, pid)]
        if ours and len(found) and 0 in found:
            return [found[rank] for rank in sorted(found)]
    return []


def _descendants(pid: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and processes.owner(int(entry.name)) == os.getuid() and processes.is_descendant(int(entry.name), pid):
            yield int(entry.name)


def _segments_of(pid: int) -> Iterator[mmap.mmap]:
    """The shared memory that a process has open, each piece once."""
    from ..sim.processes.board import BOARD_BYTES
    from ..sim.processes.segments import SEGMENT_NAME

    seen = set()
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            if not os.readlink(entry).startswith(f"/memfd:{SEGMENT_NAME} "):
                continue
            descriptor = os.open(entry, os.O_RDWR)
        except OSError:
            continue
        try:
            status = os.fstat(descriptor)
            if status.st_ino not in seen and status.st_size >= BOARD_BYTES:
                seen.add(status.st_ino)
                yield mmap.mmap(descriptor, BOARD_BYTES)
        finally:
            os.close(descriptor)


def _ask(boards: Sequence, wanted: Sequence) -> dict[int, list[list[str]] | None] | None:
    """What each rank that is asked says, by kind of what waits; None for one that did not. None if others are asking for too long."""
    from ..sim.processes.board import Inquiry, State
    from ..sim.processes.shared_lock import SharedLock

    shared = boards[0]
    lock = SharedLock(shared.lock_address)
    deadline = time.monotonic() + LONGEST_ANSWER
    while True:
        with lock:
            if shared.kind == Inquiry.NONE:
                shared.kind, shared.asker, shared.request = Inquiry.ATTACH, -1, shared.request + 1
                request = shared.request
                break
        if time.monotonic() > deadline:
            return None
        time.sleep(_PERIOD)
    try:
        while time.monotonic() < deadline:
            gone = [board for board in wanted if board.state in (State.ENDED, State.FAILED) or not board.alive]
            if all(board.composed == request or board in gone for board in wanted):
                break
            time.sleep(_PERIOD)
        return {board.rank: board.read_text("lines") if board.composed == request else None for board in wanted}
    finally:
        with lock:
            if shared.kind == Inquiry.ATTACH and shared.request == request:
                shared.kind = Inquiry.NONE
