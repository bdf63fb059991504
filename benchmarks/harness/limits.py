"""A run ends in time: a budget that leaves cases out by name, and a watchdog for what hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator

TIMEOUT_EXIT = 124


class Budget:
    """Seconds for a whole run, counted from the start of the process's benchmark. None has no end."""

    def __init__(self, seconds: float | None) -> None:
        self._begin = time.monotonic()
        self._seconds = seconds
        self._longest = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begin

    def has_room(self) -> bool:
        """Whether another case as long as the longest so far would end in time."""
        return self._seconds is None or self.spent + self._longest <= self._seconds

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """Around one case: remembers how long it took."""
        begin = time.monotonic()
        yield
        self._longest = max(self._longest, time.monotonic() - begin)


class Watchdog:
    """Ends this process with status 124 when one watched step takes more than ``seconds``, saying on which rank and in which step.

    A launcher then ends the other ranks. What was measured before is in the JSON file already.
    """

    def __init__(self, seconds: float, rank: int) -> None:
        self._seconds = seconds
        self._rank = rank

    @contextlib.contextmanager
    def watch(self, step: str) -> Iterator[None]:
        """Around one step."""
        timer = threading.Timer(self._seconds, self._end, (step,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self, step: str) -> None:
        print(f"rank {self._rank}: {step} took more than {self._seconds:g} s; giving up", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.stderr)
        os._exit(TIMEOUT_EXIT)
