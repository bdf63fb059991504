"""TD113: loads of what a program knows of by a wait, and that do not depend on that wait's token."""

from __future__ import annotations

from typing import Any

from .clocks import Clock
from .history import Histories
from .lints import Lints
from .program_actor import ProgramActor
from .shadow import Shadow, numbers, view

_MANY = 32


class TokenLint:
    """lints: where findings go. histories: what the cells of shadow memory hold."""

    def __init__(self, lints: Lints, histories: Histories) -> None:
        self._lints = lints
        self._histories = histories
        self._waits: dict[ProgramActor, list[tuple[int, Clock]]] = {}
        """For each program the lines of its latest waits, with what it knew before each."""

    def waited(self, actor: Any, location: int) -> None:
        """A wait ends; what it tells is not known yet."""
        if type(actor) is ProgramActor:
            waits = self._waits.setdefault(actor, [])
            waits.append((location, actor.seen))
            del waits[:-_MANY]

    def ended(self, actor: ProgramActor) -> None:
        """A program has returned."""
        self._waits.pop(actor, None)

    def read(self, actor: Any, shadow: Shadow, place: Any, location: Any) -> None:
        """A tile is loaded from some cells of shadow memory."""
        waits = self._waits.get(actor)
        if not waits:
            return
        kernel = actor.kernel
        tokens = kernel.facts.tokens.get(kernel.location(location))
        if tokens is None:
            return
        for number in numbers(view(shadow.writes, place)):
            for written in self._histories.accesses(number):
                if written.actor is actor or not actor.covers(written):
                    continue
                # The last wait before which the write was not known is the one that tells of it.
                line = next((line for line, before in reversed(waits) if not written.actor.comes_before(written, before)), None)
                if line is not None and kernel.location(line) not in tokens:
                    self._report(actor, shadow, location, line)

    def _report(self, actor: ProgramActor, shadow: Shadow, location: int, wait: int) -> None:
        message = (
            f"{actor.describe()} loads {shadow.allocation.name} behind the wait at {actor.line(wait)}, and the address does not depend on "
            "the wait's token: stock Triton keeps the order, a compiler that knows tokens may move the load before the wait; load from "
            "dl.consume_token(pointer, token)"
        )
        self._lints.report_at("TD113", message, actor, location)
