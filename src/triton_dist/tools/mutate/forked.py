"""Functions that are run in forked processes, several at a time, each for a limited time."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from ...errors import InvalidArgumentError

Key = TypeVar("Key")


@dataclass(frozen=True)
class Answer:
    """What a process said. value: what the function returned, None if it ended without an answer, or not in time (``late``)."""

    value: dict[str, Any] | None
    late: bool
    seconds: float


@dataclass
class _Running(Generic[Key]):
    key: Key
    process: Any
    begin: float


def run_forked(
    tasks: Iterable[tuple[Key, Callable[[], dict[str, Any]]]], *, workers: int = 1, timeout: float = 300.0
) -> Iterator[tuple[Key, Answer]]:
    """Each task's key and answer, in the order in which they end. What was imported before is there in every process.

    Raises InvalidArgumentError, with the traceback, where a function raises.
    """
    context = multiprocessing.get_context("fork")
    left, running = iter(tasks), dict[Connection, _Running[Key]]()
    more = True
    try:
        while more or running:
            while more and len(running) < workers:
                task = next(left, None)
                if task is None:
                    more = False
                    break
                key, function = task
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_answer, args=(function, theirs))
                process.start()
                theirs.close()
                running[ours] = _Running(key, process, time.monotonic())
            for ready in wait(list(running), timeout=0.5):
                assert isinstance(ready, Connection)
                one = running.pop(ready)
                yield one.key, _read(ready, one)
            for ours, one in list(running.items()):
                if time.monotonic() - one.begin > timeout:
                    del running[ours]
                    one.process.kill()
                    one.process.join()
                    yield one.key, Answer(None, True, time.monotonic() - one.begin)
    finally:
        for one in running.values():
            one.process.kill()


def _answer(function: Callable[[], dict[str, Any]], answers: Connection) -> None:
    try:
        answers.send(function())
    except Exception:  # noqa: BLE001 - the parent raises it
        answers.send(traceback.format_exc())


def _read(answers: Connection, one: _Running) -> Answer:
    try:
        value = answers.recv()
    except EOFError:
        value = None
    one.process.join()
    if isinstance(value, str):
        raise InvalidArgumentError(f"{one.key}: {value}")
    return Answer(value, False, time.monotonic() - one.begin)
