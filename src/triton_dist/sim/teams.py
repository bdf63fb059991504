"""Teams by the numbers under which kernels know them, and where their ranks meet in device barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.context_layout import MAX_TEAMS

if TYPE_CHECKING:
    from .check.clocks import Clock
    from .memory import Allocation, Memory
    from .program import Program

WORLD, SHARED, NODE = 0, 1, 2
"""NVSHMEM's numbers of the teams that are always there: all ranks, those that share memory, those of one node."""


@dataclass(eq=False)
class Meeting:
    """The device barriers of one team on one rank.

    arrived: for each place in the team, at which barrier its rank has come; reports know it as ``allocation``.
    epoch: this rank's barriers so far. inside: who is in one now. known: for the last of them, what this rank had done when it came, where
    data races are looked for.
    """

    arrived: np.ndarray
    allocation: Allocation | None = None
    epoch: int = 0
    inside: Program | None = None
    known: dict[int, Clock] = field(default_factory=dict)

    def address(self, place: int) -> int:
        """Address of the word that the rank at ``place`` writes."""
        return self.arrived.ctypes.data + 4 * place


class TeamNumbers:
    """Which teams each rank is in. A team has the same number on all its ranks, the lowest that is free on all of them."""

    def __init__(self, memory: Memory, world_size: int, num_nodes: int) -> None:
        self._memory = memory
        self._members: list[dict[int, tuple[int, ...]]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._meetings: dict[tuple[int, int], Meeting] = {}
        everyone, local = tuple(range(world_size)), world_size // num_nodes
        for rank in range(world_size):
            node = everyone[rank // local * local :][:local]
            self._members.append({WORLD: everyone, SHARED: node, NODE: node})
        self._numbers[everyone] = WORLD

    def enter(self, ranks: Sequence[int]) -> int | None:
        """The number of a team, a new one if it has none yet; None if there is no number left."""
        ranks = tuple(ranks)
        if ranks not in self._numbers:
            taken = set().union(*(self._members[rank] for rank in ranks))
            number = next(number for number in range(len(taken) + 1) if number not in taken)
            if number >= MAX_TEAMS:
                return None
            self._numbers[ranks] = number
            for rank in ranks:
                self._members[rank][number] = ranks
        return self._numbers[ranks]

    def leave(self, ranks: Sequence[int]) -> None:
        """Forget a team."""
        number = self._numbers.pop(tuple(ranks), None)
        for rank in ranks if number is not None else ():
            del self._members[rank][number]  # type: ignore[arg-type]
            meeting = self._meetings.pop((rank, number), None)  # type: ignore[arg-type]
            if meeting is not None and meeting.allocation is not None:
                self._memory.unregister(meeting.allocation)

    def begin_anew(self, ranks: Sequence[int]) -> None:
        """Forget how far the barriers of teams are all of whose members are in ``ranks``; nobody is inside of one."""
        for (rank, number), meeting in list(self._meetings.items()):
            members = self._members[rank].get(number)
            if members is not None and set(members) <= set(ranks):
                meeting.arrived[:] = 0
                meeting.epoch, meeting.inside = 0, None
                meeting.known.clear()

    def number(self, ranks: Sequence[int]) -> int | None:
        """The number of a team that was entered."""
        return self._numbers.get(tuple(ranks))

    def members(self, rank: int, number: int) -> tuple[int, ...] | None:
        """World ranks of the team that ``rank`` knows by ``number``, in team order."""
        return self._members[rank].get(number)

    def known(self, rank: int) -> list[int]:
        """The numbers of a rank's teams."""
        return sorted(self._members[rank])

    def meeting(self, rank: int, number: int) -> Meeting:
        """Where a rank meets the others of a team that it is in."""
        key = rank, number
        if key not in self._meetings:
            members = self._members[rank][number]
            meeting = self._meetings[key] = Meeting(np.zeros(len(members), np.int32))
            meeting.allocation = self._memory.register_range(
                meeting.address(0), 4 * len(members), name=f"arrived_at_barrier_of_team_{number}", rank=rank, symmetric=False, itemsize=4
            )
        return self._meetings[key]
