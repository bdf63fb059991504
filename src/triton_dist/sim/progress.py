"""How far a long search is: a bar, lines of text, or a function of the caller's."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from ..errors import InvalidArgumentError

Tell = Callable[[int, int], object]

_LINE_EVERY = 5.0
"""Seconds between two lines of text."""


@contextlib.contextmanager
def shown(progress: object, total: int) -> Iterator[Tell]:
    """Gives a function to call with how much is done and how much there is. progress: see ``explore``. Raises InvalidArgumentError."""
    if progress is None or progress is False:
        yield lambda done, total: None
    elif progress is True:
        with _bar(total) as tell:
            yield tell
    elif callable(progress):
        yield progress
    else:
        raise InvalidArgumentError(f"progress={progress!r}; pass True, None, or a function of runs done and of runs in all")


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Tell]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _lines()
        return
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("schedules", total=total)
        yield lambda done, total: bar.update(task, completed=done)
        bar.advance(task)  # the last run has ended as well, and well


def _lines() -> Tell:
    last = [float("-inf")]

    def tell(done: int, total: int) -> None:
        if time.monotonic() - last[0] >= _LINE_EVERY:
            last[0] = time.monotonic()
            print(f"schedules: {done} of {total}", file=sys.stderr)

    return tell
