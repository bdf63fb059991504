"""Where the streams of a group's ranks meet in an operator that they do together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...errors import CollectiveMismatchError
from ..collectives import describe_tensor
from ..cost_model import collective_ns
from ..requests import Steps
from ..torch_accesses import accesses_of
from ..work import Task, Work, has_values

if TYPE_CHECKING:
    from ...runtime.team import Team
    from ..context import RankContext
    from ..machine import Machine

Tensors = dict[str, Any]
"""The tensors of one rank's call, by name."""


@dataclass(frozen=True)
class Part:
    """What one rank brings. read, written: what the operator does with its tensors, for ``check`` and the clock.

    agree: what has to be the same on all ranks.
    """

    name: str
    tensors: Tensors
    read: tuple[torch.Tensor, ...]
    written: tuple[torch.Tensor, ...]
    agree: tuple

    @property
    def call(self) -> tuple:
        """What all ranks have to have alike."""
        return self.name, self.agree

    def describe(self) -> str:
        """As the user would write it."""
        shown = dict.fromkeys(describe_tensor(tensor) for tensor in (*self.read, *self.written))
        return f"{self.name}({', '.join([*shown, *(str(value) for value in self.agree)])})"


Run = Callable[[Sequence[Tensors]], None]
"""Computes an operator for all ranks, from their tensors in the order of the group."""


def mismatch(rank: int, called: str, other: int, other_called: str, ranks: Sequence[int]) -> CollectiveMismatchError:
    """The error of two ranks whose calls are not the same."""
    return CollectiveMismatchError(
        f"rank {rank} called {called} but rank {other} called {other_called} on the same memory of ranks {list(ranks)}; all ranks of "
        "the group must call the same operators in the same order"
    )


class GroupWork(Work):
    """One rank's part: its stream goes on when all ranks' streams have come to theirs and the operator is done."""

    names_itself = True

    def __init__(self, meetings: Meetings, key: Hashable, ranks: tuple[int, ...], part: Part, run: Run) -> None:
        super().__init__(f"{part.name} of ranks {list(ranks)}")
        self.meetings, self.key, self.ranks, self.part, self.run = meetings, key, ranks, part, run

    def describe(self) -> str:
        missing = self.meetings.missing(self)
        return self.label + (f", which waits for ranks {missing}" if missing else "")

    def start(self, machine: Machine) -> None:
        self.meetings.arrived(self, machine)


class Meetings:
    """The operators of one simulation that wait for ranks. Those of one key follow each other as each rank comes to them."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Hashable, tuple[int, ...]], dict[int, deque[GroupWork]]] = {}

    def join(self, rank: RankContext, key: Hashable, team: Team, group_name: str, part: Part, run: Run) -> None:
        """Queue a rank's part on its current stream. key: what the ranks meet by. group_name: of ``team``."""
        rank.submit(GroupWork(self, key, team.ranks, part, run), keep=part.tensors)

    def arrived(self, work: GroupWork, machine: Machine) -> None:
        """A rank's stream has come to its part. The last one does the work. Raises CollectiveMismatchError where ranks differ."""
        queues = self._waiting.setdefault((work.key, work.ranks), {rank: deque() for rank in work.ranks})
        queues[work.rank].append(work)
        place = len(queues[work.rank]) - 1
        for other in (queue[place] for queue in queues.values() if len(queue) > place):
            if other.part.call != work.part.call:
                raise mismatch(work.rank, work.part.describe(), other.rank, other.part.describe(), work.ranks)
        if all(queues.values()):
            works = [queues[rank].popleft() for rank in work.ranks]
            if not any(queues.values()):
                del self._waiting[work.key, work.ranks]
            machine.start_task(_Operation(works))

    def missing(self, work: GroupWork) -> list[int]:
        """The ranks that a part waits for."""
        queues = self._waiting.get((work.key, work.ranks), {})
        return [rank for rank, queue in queues.items() if not queue]


class _Operation(Work):
    """What the ranks do together, once all of them are there; a task, since torch's operators in a rank's thread would be queued again."""

    def __init__(self, works: list[GroupWork]) -> None:
        super().__init__(works[0].label)
        self._works = works
        self.rank, self.queue, self.number = works[0].rank, works[0].queue, works[0].number
        self.begin = max(work.begin for work in works)

    def execute(self, task: Task) -> Steps:
        yield
        machine, works = task.machine, self._works
        parts = [work.part for work in works]
        read = [tensor for part in parts for tensor in part.read]
        written = [tensor for part in parts for tensor in part.written]
        if machine.races is not None:
            clocks = [machine.races.stream_of(work).publish() for work in works]
            known = machine.races.met((works[0].ranks, "symm_mem"), self.label, clocks, accesses_of(read, written))
            for work in works:
                machine.races.stream_of(work).learn(known)
        if not machine.timing or all(has_values(tensor) for tensor in (*read, *written)):
            with torch.no_grad():
                works[0].run([part.tensors for part in parts])
        busiest = max(sum(t.numel() * t.element_size() for t in (*part.read, *part.written)) for part in parts)
        task.clock += collective_ns(machine.gpu.costs, busiest)
        machine.memory.touch_all()

    def complete(self, machine: Machine) -> None:
        self.done = True
        for work in self._works:
            work.end = self.end
            work.complete(machine)
