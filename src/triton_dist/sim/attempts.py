"""Attempts (``runtime.attempts``) among simulated ranks: a deadlock inside ends them, and not the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeadlockError, TritonDistError

if TYPE_CHECKING:
    from .context import RankContext


class HostMeetings:
    """All-gather of Python objects among the host functions of one simulation, in memory that they share."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, tuple[int, ...]], int] = {}
        self._open: dict[tuple[int, tuple[int, ...]], dict[int, tuple[Any, Any]]] = {}

    def gather(self, context: RankContext, ranks: Sequence[int], value: Any, what: str) -> list[Any]:
        """The ``value`` of each of ``ranks``; the n-th call of each rank belongs to the n-th of the others among the same ranks."""
        ranks = tuple(ranks)
        number = self._counts[context.rank, ranks] = self._counts.get((context.rank, ranks), 0) + 1
        arrived = self._open.setdefault((number, ranks), {})
        races = context.machine.races
        arrived[context.rank] = value, None if races is None else races.host(context.rank).publish()
        if len(arrived) == len(ranks):
            del self._open[number, ranks]
        else:

            def waits() -> str:
                return f"{what}: waits for ranks {[rank for rank in ranks if rank not in arrived]}"

            context.block(waits, lambda: len(arrived) == len(ranks))
        if races is not None:
            for _, known in arrived.values():
                races.host(context.rank).learn(known)
        return [arrived[rank][0] for rank in ranks]


class SimAttempts:
    """Attempts of one simulated rank. There is no need of a bound: that nothing can move is known at once."""

    def __init__(self, context: RankContext) -> None:
        self._context = context

    def begin(self, seconds: float) -> None:
        self._context.attempts_begun += 1

    def let_go(self, ranks: Sequence[int]) -> None:
        """The machine finds out by itself."""

    def end(self) -> TritonDistError | None:
        try:
            self._context.synchronize(why="the end of an attempt")
        except DeadlockError as hang:
            return hang
        finally:
            self._context.attempts_begun -= 1
        return None

    def gather(self, ranks: Sequence[int], value: Any) -> list[Any]:
        return self._context.simulation.meetings.gather(self._context, ranks, value, "the ranks of an attempt meet")

    def mend(self, ranks: Sequence[int]) -> None:
        """The scheduler has dropped all that was queued (``HostScheduler``); device barriers begin anew."""
        self.gather(ranks, "nothing is queued")
        if self._context.rank == ranks[0]:
            self._context.machine.teams.begin_anew(ranks)
            self._context.heap.forget_meetings(ranks)
        self.gather(ranks, "mended")
