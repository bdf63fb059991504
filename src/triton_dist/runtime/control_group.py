"""What the hosts of a world's ranks tell each other: Python objects, over a gloo group of all ranks. No group has to be made for a team."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from ..errors import AllocationMismatchError
from .launcher import TIMEOUT


class ControlGroup:
    """A gloo group of all ranks; they make it, and end it, together.

    A thread of gloo may hold the tensors of a call for some time after it. One that lets go of them while Python ends aborts the process
    (``terminate called``, exit status -6), so the threads end first: in ``end``, or at exit where a program leaves no world.
    """

    def __init__(self) -> None:
        self._group: Any = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._rank = dist.get_rank()
        self._calls = 0
        self._process = os.getpid()
        atexit.register(self.end)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank; all of them call it."""
        values: list[Any] = [None] * dist.get_world_size()
        self._call(lambda: dist.all_gather_object(values, value, group=self._group))
        return values

    def gather_among(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """Everyone's ``value``, in the order of ``ranks``; each of them calls it, and no other rank.

        The first rank collects and sends the whole back. A rank that makes the call of another team at this point is found by what it
        sends. Raises AllocationMismatchError, naming the two teams.
        """
        ranks = tuple(ranks)
        return [value] if len(ranks) == 1 else self._call(lambda: self._gather_among(ranks, value))

    def end(self) -> None:
        """End the group. Its threads are waited for, except where a call of it still waits for other ranks.

        Nothing is wrong if it is gone: the program may have ended all groups, and made new ones.
        """
        atexit.unregister(self.end)
        if self._group is None or os.getpid() != self._process:  # a child has no thread that could be waited for
            return
        if dist.is_initialized():
            with contextlib.suppress(ValueError, RuntimeError):  # torch does not know it any more; its connections are broken
                dist.destroy_process_group(self._group)
        if not self._calls:
            self._group = None

    # ------------------------------------------------------------------ inside

    def _call(self, act: Callable[[], Any]) -> Any:
        self._calls += 1
        try:
            return act()
        finally:
            self._calls -= 1

    def _gather_among(self, ranks: tuple[int, ...], value: Any) -> list[Any]:
        root = ranks[0]
        if self._rank != root:
            self._send((ranks, value), root)
            return self._answer(self._receive(root), ranks, root)
        sent = {root: (ranks, value)} | {peer: self._receive(peer) for peer in ranks[1:]}
        strangers = [peer for peer, (team, _) in sent.items() if team != ranks]
        answer: Any = [sent[peer][1] for peer in ranks]
        if strangers:
            answer = f"rank {strangers[0]} made a collective call of ranks {list(sent[strangers[0]][0])}"
        for peer in ranks[1:]:
            self._send((ranks, answer), peer)
        return self._answer((ranks, answer), ranks, root)

    def _send(self, message: Any, peer: int) -> None:
        dist.send_object_list([message], dst=peer, group=self._group)

    def _receive(self, peer: int) -> Any:
        received: list[Any] = [None]
        dist.recv_object_list(received, src=peer, group=self._group)
        return received[0]

    def _answer(self, message: tuple[tuple[int, ...], Any], ranks: tuple[int, ...], root: int) -> list[Any]:
        team, answer = message
        if team == ranks and isinstance(answer, list):
            return answer
        other = answer if team == ranks else f"rank {root} made a collective call of ranks {list(team)}"
        raise AllocationMismatchError(
            f"rank {self._rank} made a collective call of the ranks {list(ranks)}, but {other}; "
            "ranks that are in several teams must make the calls of these teams in the same order"
        )
