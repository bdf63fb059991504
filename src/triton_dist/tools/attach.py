"""What the kernels of a running job wait for: ``triton-dist attach PID``, on GPUs and on CPU processes (``attach_processes.py``).

Works from another process of the same user, whether or not the job's waits have a bound, also while its host threads are blocked
and inside replayed CUDA graphs. It asks by a word in the job's wait boards; the job goes on as if nothing had happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import NoWaitBoardError
from ..runtime import processes
from ..runtime.wait_board import Record, WaitBoard, all_boards, path_of
from ..runtime.wait_report import SYMBOLS, Wait, describe
from . import attach_processes

LONGEST_ANSWER = 2.0
"""Seconds that kernels get to answer; they look for a request every few milliseconds."""

_QUIET = 0.3
"""Seconds without a new record after which all have answered."""

_PERIOD = 0.05


def attach(pid: int) -> int:
    """Print what the kernels of process ``pid`` wait for, or of all ranks that it started (a launcher such as torchrun).

    Of CPU processes also what their streams and hosts wait for.

    Returns an exit code: 0 if something was found out, 1 with the reason on the standard output if nothing could be.
    """
    try:
        boards = boards_of(pid)
    except NoWaitBoardError as error:
        found = attach_processes.report_of(pid)
        print(found if found is not None else f"triton-dist attach: {error}")
        return 0 if found is not None else 1
    waits = waits_of(boards, LONGEST_ANSWER)
    _print(boards, waits)
    return 0


def boards_of(pid: int, directory: Path | None = None) -> list[WaitBoard]:
    """The wait boards of a process or, if it has none, of those that it started, by rank. Raises NoWaitBoardError with the reason."""
    user = processes.owner(pid)
    if user is None or processes.start_time(pid) is None:
        raise NoWaitBoardError(f"there is no process {pid} here, or it has ended")
    if user != os.getuid():
        raise NoWaitBoardError(
            f"process {pid} belongs to user {user}, and you are user {os.getuid()}; a job shows its waits to its own user"
        )
    if path_of(pid, directory).exists():
        board = WaitBoard.open(path_of(pid, directory))
        if board.alive:
            return [board]
    boards = [board for board in all_boards(directory) if board.alive and processes.is_descendant(board.pid, pid)]
    if not boards:
        raise NoWaitBoardError(
            f"neither process {pid} nor one that it started is in a world on GPUs or of CPU processes: it has not called "
            "triton_dist.initialize() yet, has called finalize(), or runs in a container with process numbers of its own"
        )
    return sorted(boards, key=lambda board: board.rank)


def waits_of(boards: Sequence[WaitBoard], longest: float) -> dict[int, list[Wait]]:
    """Ask the kernels of all boards at once, wait up to ``longest`` seconds for answers; the waits by the board's place."""
    number = time.time_ns() >> 10 & 0x7FFFFFFF or 1
    for board in boards:
        board.request = number
    try:
        answers = _collect(boards, number, longest)
    finally:
        for board in boards:
            if board.request == number:
                board.request = 0
    return {
        place: describe(board.rank, answers[place], board.blocks(), (), board.cache_directory) if answers[place] else []
        for place, board in enumerate(boards)
    }


def _collect(boards: Sequence[WaitBoard], number: int, longest: float) -> list[list[Record]]:
    """The records, once no more come; all the time there is if none came, since a busy GPU may be slow to look."""
    deadline = time.monotonic() + longest
    seen, last_change = 0, time.monotonic()
    while True:
        answers = [board.records(number) for board in boards]
        count, now = sum(map(len, answers)), time.monotonic()
        if count != seen:
            seen, last_change = count, now
        everyone = all(answers) and now - last_change > _QUIET
        if everyone or now > deadline:
            return answers
        time.sleep(_PERIOD)


def _print(boards: Sequence[WaitBoard], waits: dict[int, list[Wait]]) -> None:
    rows = [
        (str(wait.rank), wait.who, wait.place, _condition(wait), str(wait.seen), f"{wait.seconds:.1f} s")
        for all_ in waits.values()
        for wait in all_
    ]
    if rows:
        _print_table(("rank", "programs", "kernel and line", "waits for", "it is", "since"), rows)
    for place, board in enumerate(boards):
        if not waits[place]:
            print(f"rank {board.rank} (process {board.pid}): {_why_nothing(board)}")


def _why_nothing(board: WaitBoard) -> str:
    if not board.alive:
        return "the process has ended meanwhile"
    if board.abort:
        return "waits of this rank have timed out, or a peer was lost, and fall through now; its error says which"
    return (
        f"no kernel waits, or the GPU did not answer within {LONGEST_ANSWER:g} s; what a stream or the host waits for is not seen from here"
    )


def _condition(wait: Wait) -> str:
    return f"{wait.word} {SYMBOLS[wait.comparison]} {wait.expected}"


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """By rich where it is installed, else in plain text, one block a row."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        for row in rows:
            print("; ".join(f"{title}: {value}" for title, value in zip(titles, row, strict=True)))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a pipe has no width; the table takes what it needs, and nothing is wrapped
    table = Table(*titles)
    for row in rows:
        table.add_row(*map(Text, row))  # as text: brackets in it are no markup
    console.print(table)
