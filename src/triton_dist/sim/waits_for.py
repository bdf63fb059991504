"""Who in a deadlock waits for whom, and the circle that they form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .foresight import words_to_come
from .work import Task

if TYPE_CHECKING:
    from .machine import Machine
    from .requests import WaitRequest

_NAMED = 2
"""Of those who would set a word, how many are named."""


@dataclass
class WaitsFor:
    """The waits of a machine in which nothing moves.

    actors: programs and tasks of streams. words: for each the words that it would set if it went on, with numbers of lines.
    setters: for each those, by index, who would set the word that it waits for.
    """

    actors: list[Any]
    words: list[dict[int, int]]
    setters: list[list[int]]

    def who_would_set(self, actor: Any) -> str:
        """Who would set the word that ``actor`` waits for, in words; empty if nobody who waits would."""
        index = self.actors.index(actor)
        others = self.setters[index]
        if not others:
            return ""
        named = " and ".join(self.would_set(other, self.actors[index].waiting) for other in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        return f"would be set by {named}{more}, which wait{'s' if len(others) == 1 else ''}, too"

    def would_set(self, index: int, request: WaitRequest) -> str:
        """Actor ``index``, and the line at which it would set what ``request`` waits for."""
        actor, line = self.actors[index], self.words[index][request.address]
        place = actor.launch.kernel.location(line) if line >= 0 and hasattr(actor, "launch") else None
        return actor.describe() + (f" at {place}" if place is not None and place.line else "")

    def circle(self) -> list[Any]:
        """Actors each of which waits for the next one, and the last for the first: one circle, the shortest from where it begins."""
        for start in range(len(self.actors)):
            if way := self._way_back(start):
                return [self.actors[index] for index in way]
        return []

    def _way_back(self, start: int) -> list[int]:
        ways = {start: [start]}
        front = [start]
        while front:
            following = []
            for one in front:
                for other in self.setters[one]:
                    if other == start:
                        return ways[one]
                    if other not in ways:
                        ways[other] = [*ways[one], other]
                        following.append(other)
            front = following
        return []


def place_in_order(actor: Any) -> tuple:
    """By which reports list those who wait."""
    return (actor.rank, isinstance(actor, Task), getattr(actor, "pid", (0, 0, 0))[::-1], actor.waiting.address)


def _sets(words: dict[int, int], request: WaitRequest, own: bool) -> bool:
    """Whether these words hold the one that ``request`` waits for; what a program's own wait swaps when it ends does not count."""
    return request.address in words and not (own and words[request.address] == request.location)


def waits_for(machine: Machine) -> WaitsFor:
    """Who waits for whom in a machine whose run has failed: its programs are let go on to see it, so nobody can go on with them after."""
    if machine.waits_for is None:
        actors = sorted(machine.parked(), key=place_in_order)
        words = words_to_come(machine, [(actor, actor.waiting) for actor in actors])
        setters = [[other for other, those in enumerate(words) if _sets(those, actor.waiting, actor is actors[other])] for actor in actors]
        machine.waits_for = WaitsFor(actors, words, setters)
    return machine.waits_for
