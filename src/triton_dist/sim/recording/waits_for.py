"""Who in a deadlock waits for whom, and the circle that they form.

Who should set a word is not known: whoever would have done it has not come to it. Taken for it are those who have set the same word before,
or, where nobody has, the only one that waits, too, and whose kernel names the tensor in a line that sets words. So no circle is shown where
that is open.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .events import SIGNAL, Event, Side

if TYPE_CHECKING:
    from .recorder import Recorder

_SETS_A_WORD = re.compile(r"\b(notify|st|atomic_\w+|store|signal_op|\w*_signal\w*|put\w*|p)\s*\(")
_MOST = 256
"""Waits up to which a circle is looked for."""


def find_cycle(recorder: Recorder, sides: list[Side]) -> list[int]:
    """Indices of sides, each of which waits for the next one; empty where there is no circle or none is known."""
    waits = [index for index, side in enumerate(sides) if side.role == "waits" and side.event is not None and side.event.word]
    if not waits or len(waits) > _MOST:
        return []
    setters: dict[str, set[int]] = {}
    for event in recorder.events:
        if event.kind == SIGNAL and event.parent is not None:
            setters.setdefault(event.word, set()).add(id(event.parent))
    edges = {one: _setters_of(recorder, setters, sides, one, waits) for one in waits}
    for start in waits:
        found = _walk(edges, start)
        if found:
            return found
    return []


def _setters_of(recorder: Recorder, setters: dict[str, set[int]], sides: list[Side], one: int, waits: list[int]) -> list[int]:
    """Who among ``waits`` would set the word that one of them waits for."""
    mine = _event(sides[one])
    others = [other for other in waits if _event(sides[other]).parent is not mine.parent]
    known = [other for other in others if id(_event(sides[other]).parent) in setters.get(mine.word, ())]
    if known:
        return known
    tensor = mine.word.partition("[")[0]
    likely = [other for other in others if _names(recorder, _event(sides[other]), tensor)]
    return likely if len(likely) == 1 else []


def _event(side: Side) -> Event:
    assert side.event is not None, "only those that have one are looked at"
    return side.event


def _names(recorder: Recorder, wait: Event, tensor: str) -> bool:
    """Whether the kernel of who waits names a tensor where it sets words."""
    actor, _ = recorder.open.get(wait, (None, None))
    kernel = getattr(getattr(actor, "launch", None), "kernel", None)
    if kernel is None:
        return False
    return any(_line_sets(location.file, location.line, tensor) for location in set(kernel.table) if location.line)


@functools.lru_cache(maxsize=4096)
def _line_sets(file: str, line: int, tensor: str) -> bool:
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()[line - 1]
    except (OSError, IndexError):
        return False
    return _SETS_A_WORD.search(text) is not None and re.search(rf"\b{re.escape(tensor)}\b", text) is not None


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
