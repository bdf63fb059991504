"""What the kernel of this host says of processes: which are alive, and who started whom."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_ENDED = ("Z", "X")
"""States of a process that has ended and that its parent has not asked for yet."""


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; with the pid it names one process for ever. None if it has ended."""
    fields = _status(pid)
    return None if fields is None or fields[0] in _ENDED else int(fields[19])


def parent(pid: int) -> int | None:
    """The process that started a process; None if it has ended."""
    fields = _status(pid)
    return None if fields is None else int(fields[1])


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether ``ancestor`` started ``pid``, or a process that did."""
    current: int | None = pid
    while current is not None and current > 1:
        current = parent(current)
        if current == ancestor:
            return True
    return False


def owner(pid: int) -> int | None:
    """The user that a process belongs to; None if it has ended."""
    try:
        return os.stat(_PROC / str(pid)).st_uid
    except OSError:
        return None


def pid_namespace() -> int:
    """A number for the set of processes among which this one's pid has a meaning; containers have sets of their own."""
    try:
        return os.stat(_PROC / "self" / "ns" / "pid").st_ino
    except OSError:
        return 0


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name before them is in parentheses, and may contain any character.
    return text.rpartition(")")[2].split()
