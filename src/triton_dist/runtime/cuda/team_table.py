"""The table of teams in the context page, which kernels can read: who is in a team, by a number that its ranks agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..address_map import CONTEXT
from ..context_layout import MAX_TEAMS, MEMBERS_PER_TEAM, TEAM_MEMBERS, TEAM_RECORD_BYTES, TEAM_TABLE
from ..team import Team


class TeamTable:
    """This process's table. bytes_at: a uint8 tensor over mapped memory, from an address and a number of bytes."""

    def __init__(self, bytes_at: Callable[[int, int], torch.Tensor]) -> None:
        self._bytes_at = bytes_at
        self.free = (1 << MAX_TEAMS) - 1
        """Bit n is set while record n is free here."""
        bytes_at(CONTEXT + TEAM_TABLE, MAX_TEAMS * TEAM_RECORD_BYTES).zero_()

    def enter(self, team: Team, free: Sequence[int]) -> int | None:
        """Write a team's record under the lowest number that is free on all its ranks; None if there is none.

        free: the ``free`` of every rank of the team, which makes the same of them.
        """
        common = self.free
        for bits in free:
            common &= bits
        if not common:
            return None
        number = (common & -common).bit_length() - 1
        self.free &= ~(1 << number)
        members = self._bytes_at(CONTEXT + TEAM_MEMBERS + number * MEMBERS_PER_TEAM, MEMBERS_PER_TEAM)
        members[: team.size].copy_(torch.tensor(team.ranks, dtype=torch.uint8, device="cpu"))
        self._write(number, (team.ranks[0], team.stride or 0, team.size, team.index))
        return number

    def remove(self, number: int | None) -> None:
        """Clear a record."""
        if number is not None:
            self._write(number, (0, 0, 0, 0))
            self.free |= 1 << number

    def _write(self, number: int, words: Sequence[int]) -> None:
        record = self._bytes_at(CONTEXT + TEAM_TABLE + number * TEAM_RECORD_BYTES, TEAM_RECORD_BYTES)
        record.copy_(torch.tensor(words, dtype=torch.int32, device="cpu").view(torch.uint8))
