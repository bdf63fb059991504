"""Everything as late as it may be: what others wait for happens when nothing else can.

Programs that are not about to tell others something run first. Then come, in an order that each seed has for itself: programs whose next
step sets a signal, counts an arrival or completes puts; what streams do (copies, signals, torch operators); hosts, which pause before they
queue work. Puts and gets land when something orders them, or when nothing else can move. Among equals the seed chooses.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from ..program import Program
from .policy import HOST_PATIENCE, PATIENCE, Policy

_SIGNALS = re.compile(r"\b(notify|atomic\w*|compare_and_swap\w*|store_each|signal|put_signal|quiet|fence|barrier|broadcast|fcollect)\(")
"""Calls of generated code that tell others something, or that complete puts."""

_PROGRAM, _SIGNALLING, _TASK, _HOST = range(4)


class LatePolicy(Policy):
    """One run in which everything is late."""

    pauses_hosts = True

    def __init__(self, seed: int) -> None:
        source = random.Random(f"late {seed}")
        self._random = source.random
        self._able: dict[int, list[Any]] = {kind: [] for kind in (_PROGRAM, *source.sample((_SIGNALLING, _TASK, _HOST), 3))}
        """What can run, by kind, what runs first first. Hosts are only a place in this order."""
        self._signals: dict[tuple[int, int], bool] = {}
        self._run = self._kept_waiting = 0

    @property
    def hosts_last(self) -> bool:
        """Whether hosts come after all that the machine can do."""
        return list(self._able)[-1] == _HOST

    def _kind(self, actor: Any) -> int:
        if not isinstance(actor, Program):
            return _TASK
        frame = getattr(actor.generator, "gi_frame", None)
        if frame is None:
            return _PROGRAM
        function: Any = actor.launch.kernel.function
        key = (id(function), frame.f_lineno)
        signals = self._signals.get(key)
        if signals is None:
            signals = self._signals[key] = _signals_next(function.source, frame.f_lineno)
        return _SIGNALLING if signals else _PROGRAM

    def arrived(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._able[self._kind(actor)].append(actor)

    def stays(self, actor: Any) -> None:
        self._able[self._kind(actor)].append(actor)

    def actors(self) -> list[Any]:
        return [actor for kind in self._able.values() for actor in kind]

    def next(self) -> Any | None:
        kinds = [kind for kind in self._able.values() if kind]
        if not kinds:
            self._run = 0
            return None
        able = kinds[0]
        if len(kinds) > 1:
            self._run += 1
            if self._run > PATIENCE:
                self._run = 0
                able = kinds[1 + int(self._random() * (len(kinds) - 1))]
        index = int(self._random() * len(able))
        actor, last = able[index], able.pop()
        if actor is not last:
            able[index] = last
        return actor

    def host(self, ready: Sequence[int], idle: bool) -> int | None:
        kinds = list(self._able)
        before = kinds[: kinds.index(_HOST)]
        if not idle and self._kept_waiting < HOST_PATIENCE and any(self._able[kind] for kind in before):
            self._kept_waiting += 1
            return None
        self._kept_waiting = 0
        return ready[int(self._random() * len(ready))]


def _signals_next(source: str, line: int) -> bool:
    """Whether generated code that stands at a line sets a signal before it lets others run again."""
    for text in source.splitlines()[line:]:
        if _SIGNALS.search(text):
            return True
        if "yield" in text:
            return False
    return False
