"""The processes of the other ranks on this host: which of them have ended without leaving the world."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..errors import NoWaitBoardError
from . import processes
from .wait_board import State, WaitBoard


@dataclass(frozen=True)
class Peer:
    """Another rank's process, and its board, which stays readable when the process is gone."""

    rank: int
    board: WaitBoard

    @property
    def lost(self) -> str | None:
        """How the process ended, if nothing can be expected of it any more; None if it runs, or ended of its own accord.

        A rank that ended without an error has done what it had to do: what it was to signal it has signalled.
        """
        if self.board.alive:
            return None
        state = self.board.state
        if state is State.ALIVE:
            return f"rank {self.rank} (process {self.board.pid}) was killed"
        return f"rank {self.rank} (process {self.board.pid}) ended with an error" if state is State.FAILED else None


class Introduction(NamedTuple):
    """What a rank tells the others so that they can watch it: where its board is, and its process, one for ever by the three numbers."""

    pid: int
    path: str
    start_time: int
    pid_namespace: int


def introduction(board: WaitBoard) -> Introduction:
    """That of the process that has made ``board``."""
    return Introduction(board.pid, str(board.path), board.start_time, board.pid_namespace)


def meet(rank: int, introductions: list[Introduction | None]) -> list[Peer]:
    """The peers that this process can watch, from every rank's introduction (None from a rank that has no board).

    A rank in another container has pids of its own, and is left out.
    """
    peers = []
    for other, told in enumerate(introductions):
        if other == rank or told is None or told.pid_namespace != processes.pid_namespace():
            continue
        try:
            board = WaitBoard.open(Path(told.path))
        except NoWaitBoardError:
            continue
        if introduction(board) == told:  # else it is of a process that has taken its place since
            peers.append(Peer(other, board))
    return peers


def lost_peers(peers: list[Peer]) -> list[Peer]:
    """Those whose process has ended without leaving the world; the boards they left behind are removed."""
    lost = [peer for peer in peers if peer.lost]
    for peer in lost:
        peer.board.path.unlink(missing_ok=True)
    return lost
