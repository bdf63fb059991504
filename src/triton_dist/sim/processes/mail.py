"""All-gather of Python objects among some ranks, by messages on their boards: a wait for it is a wait like any other, and is reported."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...errors import HeapFullError
from .board import MAIL_BYTES, Board


class Blocks(Protocol):
    """Makes the calling thread wait until ``ready()``; see ``RankContext.block``."""

    def __call__(self, what: str | Callable[[], str], ready: Callable[[], bool]) -> None: ...


class Mail:
    """This rank's messages. boards: of all ranks. block: how to wait."""

    def __init__(self, rank: int, boards: Sequence[Board], block: Blocks) -> None:
        self._rank = rank
        self._boards = boards
        self._block = block
        self._numbers: dict[tuple[int, ...], int] = {}
        self._addressees: tuple[int, ...] = ()

    def gather(self, ranks: Sequence[int], value: Any, what: str) -> list[Any]:
        """The ``value`` of each of ``ranks``, in their order; each of them calls it, and no other rank.

        The n-th call of a rank among these ranks belongs to the n-th of the others. what: the call in words, for reports.
        """
        ranks = tuple(ranks)
        number = self._numbers[ranks] = self._numbers.get(ranks, 0) + 1
        if len(ranks) == 1:
            return [value]
        data = pickle.dumps(value)
        if len(data) > MAIL_BYTES:
            raise HeapFullError(
                f"{what}: what the ranks have to tell each other takes {len(data)} bytes, and at most {MAIL_BYTES} fit; "
                "the heap is in too many pieces, free some of its tensors"
            )
        others = [rank for rank in ranks if rank != self._rank]
        team = _team_number(ranks)
        self._block(lambda: self._waits(what, self._not_taken()), lambda: not self._not_taken())
        self._boards[self._rank].post(team, number, data)
        self._addressees = tuple(others)
        self._block(lambda: self._waits(what, self._not_arrived(others, team, number)), lambda: not self._not_arrived(others, team, number))
        values = [value if rank == self._rank else pickle.loads(self._boards[rank].mail) for rank in ranks]
        for rank in others:
            self._boards[rank].acknowledge(self._rank, self._boards[rank].mail_count)
        return values

    def start_over(self, numbers: dict[tuple[int, ...], int]) -> None:
        """Forget a call that ended in an error; ``numbers``: the calls among some ranks so far, the most of any of them."""
        self._addressees = ()
        self._numbers.update({ranks: max(number, self._numbers.get(ranks, 0)) for ranks, number in numbers.items()})

    @property
    def numbers(self) -> dict[tuple[int, ...], int]:
        """How many calls there were among some ranks, as this one counts."""
        return dict(self._numbers)

    def _not_taken(self) -> list[int]:
        """Who has not taken this rank's last message yet."""
        board = self._boards[self._rank]
        return [rank for rank in self._addressees if board.acknowledged(rank) != board.mail_count]

    def _not_arrived(self, others: Sequence[int], team: int, number: int) -> list[int]:
        boards = self._boards
        return [rank for rank in others if (boards[rank].mail_team, boards[rank].mail_number) != (team, number)]

    @staticmethod
    def _waits(what: str, missing: list[int]) -> str:
        return f"{what}: waits for ranks {missing}"


def _team_number(ranks: tuple[int, ...]) -> int:
    """The same number for the same ranks in every process, never 0."""
    return int.from_bytes(hashlib.blake2b(repr(ranks).encode(), digest_size=7).digest(), "little") + 1
