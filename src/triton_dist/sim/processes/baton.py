"""Who may touch this process's machine: its engine, or for a moment a thread of the program."""

from __future__ import annotations

import threading
import time

_LONGEST_GIVING_WAY = 0.005


class Baton:
    """A recursive lock that the engine's thread gives up as soon as another thread wants it.

    The engine takes it again and again, and an ordinary lock would let it win each time.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._wanted = 0

    @property
    def wanted(self) -> bool:
        """Whether some thread waits for the baton."""
        return self._wanted > 0

    def __enter__(self) -> Baton:
        if not self._lock.acquire(blocking=False):
            with self._counting:
                self._wanted += 1
            try:
                self._lock.acquire()
            finally:
                with self._counting:
                    self._wanted -= 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def give_way(self) -> None:
        """Let those who want the baton have it first. Called by the engine, without the baton."""
        deadline = time.monotonic() + _LONGEST_GIVING_WAY
        while self._wanted and time.monotonic() < deadline:
            time.sleep(0)
