"""Priorities with few changes: probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010).

Every host, program and task has a random priority, and the one with the highest that can run does. At ``depth - 1`` random points of the
run the one that runs then falls below all others. A bug that needs ``depth`` orderings among ``n`` actors of a run with ``k`` turns is
found with a probability of at least ``1 / (n k**(depth - 1))`` by each seed, however unlikely it is for a random walk.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from .policy import HOST_PATIENCE, PATIENCE, Policy

if TYPE_CHECKING:
    from ..pending import PendingCopies


class PctPolicy(Policy):
    """One run by priorities. length: turns that the run is expected to take; the points of change are drawn from so many.

    For every other seed, on average, ranks have priorities, and their actors within them: a whole rank is late then.
    """

    pauses_hosts = True

    def __init__(self, seed: int, world_size: int, depth: int, length: int) -> None:
        self._random = random.Random(f"pct {seed}")
        by_rank = self._random.random() < 0.5
        self._rank_priority = [self._random.random() if by_rank else 0.0 for _ in range(world_size)]
        self._changes = sorted((self._random.randrange(length) for _ in range(depth - 1)), reverse=True)
        self._lowest = 0.0
        self._turn = 0
        self._priority: dict[Any, tuple[float, float]] = {}
        self._waiting: list[tuple[float, float, int, Any]] = []
        """Heap of what can run: negated priority, number, actor."""
        self._number = count()
        self._current: Any = None
        self._run = 0
        self._host_priority = [self._new_priority(rank) for rank in range(world_size)]
        self._kept_waiting = 0

    def _new_priority(self, rank: int) -> tuple[float, float]:
        return self._rank_priority[rank], self._random.random()

    def _of(self, actor: Any) -> tuple[float, float]:
        found = self._priority.get(actor)
        if found is None:
            found = self._priority[actor] = self._new_priority(actor.rank)
        return found

    def _push(self, actor: Any) -> None:
        rank, own = self._of(actor)
        heapq.heappush(self._waiting, (-rank, -own, next(self._number), actor))

    def arrived(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._push(actor)

    def stays(self, actor: Any) -> None:
        self._current = actor

    def actors(self) -> list[Any]:
        return [entry[-1] for entry in self._waiting] + ([] if self._current is None else [self._current])

    def next(self) -> Any | None:
        waiting, chosen = self._waiting, self._current
        self._current = None
        self._turn += 1
        self._run += 1
        if chosen is not None and waiting:
            rank, own = self._of(chosen)
            if waiting[0][:2] < (-rank, -own):
                self._push(chosen)
                chosen = None
        if chosen is None:
            if not waiting:
                return None
            chosen = heapq.heappop(waiting)[-1]
            self._run = 0
        changes = bool(self._changes) and self._turn > self._changes[-1]
        if changes or self._run > PATIENCE:
            if changes:
                self._changes.pop()
            self._run = 0
            # Below all others: the later it falls, the lower.
            self._lowest -= 1.0
            self._priority[chosen] = (self._lowest, 0.0)
            self._push(chosen)
            chosen = heapq.heappop(waiting)[-1]
        return chosen

    def host(self, ready: Sequence[int], idle: bool) -> int | None:
        best = max(ready, key=lambda rank: self._host_priority[rank])
        if not idle and self._kept_waiting < HOST_PATIENCE:
            able = [(-entry[0], -entry[1]) for entry in self._waiting[:1]] + ([] if self._current is None else [self._of(self._current)])
            if able and max(able) > self._host_priority[best]:
                self._kept_waiting += 1
                return None
        self._kept_waiting = 0
        return best

    def lands(self, pending: PendingCopies) -> None:
        pending.take_turn()
