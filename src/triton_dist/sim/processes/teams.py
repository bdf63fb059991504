"""Teams as kernels of one process know them: numbered by its heap, with the words of their barriers in the heaps of all ranks."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.context_layout import MEMBERS_PER_TEAM
from ...runtime.cuda.mapping import data_base
from ...runtime.team import Team
from ..memory import Memory
from ..teams import Meeting, TeamNumbers

if TYPE_CHECKING:
    from .heap import CpuHeap


class ProcessTeams(TeamNumbers):
    """The teams of ``rank``. A peer's barrier words are those at the same place of its heap."""

    def __init__(self, memory: Memory, heap: CpuHeap, rank: int, world_size: int) -> None:
        super().__init__(memory, world_size, num_nodes=1)
        self._heap = heap
        self._rank = rank

    def number(self, ranks: Sequence[int]) -> int | None:
        return self._heap.team_number(Team(0, tuple(ranks)))

    def members(self, rank: int, number: int) -> tuple[int, ...] | None:
        always = super().members(rank, number)
        return always if always is not None else self._heap.members_of(number)

    def known(self, rank: int) -> list[int]:
        return sorted({*super().known(rank), *self._heap.team_numbers()})

    def meeting(self, rank: int, number: int) -> Meeting:
        members = self.members(self._rank, number)
        if members is None:
            raise KeyError(number)
        known = self._meetings.get((rank, number))
        if known is None or len(known.arrived) != len(members):
            place = data_base(rank) + self._heap.words_offset + 4 * MEMBERS_PER_TEAM * number
            known = Meeting(np.ctypeslib.as_array((ctypes.c_int32 * len(members)).from_address(place)))
            self._meetings[rank, number] = known
            known.allocation = self._memory.register_range(
                place, 4 * len(members), name=f"arrived_at_barrier_of_team_{number}", rank=rank, symmetric=False, itemsize=4
            )
        return known

    def forget(self, number: int) -> None:
        """A team was freed: the next one with its number begins anew."""
        for key in [key for key in self._meetings if key[1] == number]:
            allocation = self._meetings.pop(key).allocation
            if allocation is not None:
                self._memory.unregister(allocation)
