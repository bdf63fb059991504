"""The handles of collectives and transfers among simulated ranks, whose waits give up the baton."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import NotInitializedError
from . import context
from .collectives import Tensor
from .context import RankContext


class HostWork(dist.Work):
    """The handle of a collective: ``wait`` lets the other ranks and the machine run until it is done."""

    def __init__(
        self,
        done: Callable[[], bool],
        what: Callable[[], str],
        tensors: list[Tensor],
        source: Callable[[], int] | None = None,
        known: Callable[[], Any] = lambda: None,
    ) -> None:
        super().__init__()
        self._done = done
        self._what = what
        self._tensors = tensors
        self._source = source
        self._known = known
        self.held: Callable[[], bool] = lambda: False
        """Whether it is still put off by ``_coalescing_manager``, in which waits do not wait."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        if self.held():
            return True
        if not self._done():
            rank_context(self._what()).block(self._what, self._done)
        self._learn()
        return True

    def _learn(self) -> None:
        """The host of the rank has seen that it is done."""
        rank, known = context.current(), self._known()
        if rank is not None and known is not None and rank.machine.races is not None:
            rank.machine.races.host(rank.rank).learn(known)

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._done():
            rank_context(self._what()).poll(self._what())
        if self._done():
            self._learn()
        return self._done()

    def is_success(self) -> bool:
        return self._done()

    def exception(self) -> None:
        return None

    def result(self) -> list[Tensor]:
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        self.wait()
        return self._source() if self._source is not None else -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """A future that is already set: it waits first."""
        self.wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class CoalescedWork(HostWork):
    """The handle of everything that was called inside ``_coalescing_manager``."""

    def __init__(self, works: Sequence[HostWork]) -> None:
        super().__init__(
            lambda: all(work._done() for work in works),
            lambda: next((work._what() for work in works if not work._done()), "_coalescing_manager"),
            [tensor for work in works for tensor in work._tensors],
        )
        self._works = works

    def _learn(self) -> None:
        for work in self._works:
            work._learn()


def rank_context(what: str) -> RankContext:
    rank = context.current()
    if rank is None:
        raise NotInitializedError(f"{what}: a simulated process group works only in the thread of a rank, inside simulate")
    return rank
