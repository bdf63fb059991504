"""Who in a deadlock waits for whom, and the circle that they form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .events import Side
from .foresight import words_to_come

if TYPE_CHECKING:
    from ..requests import WaitRequest
    from .recorder import Recorder

_NAMED = 2
"""Of those who would set a word, how many are named."""


def name_setters(recorder: Recorder, sides: list[Side]) -> list[int]:
    """Add to the text of each wait who would set its word if that one did not wait itself. Gives indices of sides, each of which waits for
    the next one and the last for the first; empty where there is no circle.
    """
    waits: dict[int, tuple[Any, WaitRequest]] = {}
    for index, side in enumerate(sides):
        actor, request = recorder.open.get(side.event, (None, None)) if side.event is not None else (None, None)
        if request is not None:
            waits[index] = (actor, request)
    words = dict(zip(waits, words_to_come(recorder.machine, list(waits.values())), strict=True))
    edges = {one: [other for other in waits if request.address in words[other]] for one, (_, request) in waits.items()}
    for one, others in edges.items():
        named = [_describe(waits[other][0], words[other][waits[one][1].address]) for other in others[:_NAMED]]
        if named:
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            sides[one].what += f"; would be set by {' and '.join(named)}{more}, which wait{'s' if len(others) == 1 else ''}, too"
    return next((found for start in waits if (found := _walk(edges, start))), [])


def _describe(actor: Any, line: int) -> str:
    place = actor.launch.kernel.location(line) if line >= 0 and hasattr(actor, "launch") else None
    return actor.describe() + (f" at {place}" if place is not None and place.line else "")


def _walk(edges: dict[int, list[int]], start: int) -> list[int]:
    """The shortest way from a wait back to itself."""
    ways = {start: [start]}
    front = [start]
    while front:
        following = []
        for one in front:
            for other in edges.get(one, ()):
                if other == start:
                    return ways[one]
                if other not in ways:
                    ways[other] = [*ways[one], other]
                    following.append(other)
        front = following
    return []
