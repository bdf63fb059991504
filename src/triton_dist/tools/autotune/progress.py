"""The bar that says how far a search is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(what: str, total: int, wanted: bool | None, first_rank: bool) -> Iterator[Callable[[str], None]]:
    """Gives what to call after each config, with its label and time.

    wanted: None shows a bar where standard error is a terminal and rich is installed. Only the first rank shows one.
    """
    shown = first_rank and (sys.stderr.isatty() if wanted is None else wanted)
    if shown:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            shown = False
    if not shown:
        yield lambda said: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Without a thread of its own: ranks of a simulation run one at a time.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
        task = bar.add_task(f"tuning {what}", total=total)

        def advance(said: str) -> None:
            bar.update(task, advance=1, description=f"tuning {what}: {said}", refresh=True)

        yield advance
