"""A barrier of all ranks in stream order, made of signals that streams write and wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .address_space import data_base
from .work import WaitValue, WriteValue

if TYPE_CHECKING:
    from .context import RankContext
    from .heap import Block, SymmetricHeap

_WORD = 8
"""Bytes of a signal word."""


class StreamBarrier:
    """One symmetric array ``barrier_all`` of ``world_size`` int64 words; word ``i`` of rank ``r`` is how many barriers ``i`` has reached.

    Only rank ``i`` writes word ``i`` (of every rank), counting up from 1; it is never reset.
    """

    def __init__(self, heap: SymmetricHeap, world_size: int) -> None:
        self._heap = heap
        self._world_size = world_size
        self._entered = [0] * world_size
        self._block: Block | None = None
        self._buffers: list[Any] = []

    def enqueue(self, context: RankContext, stream: int | None) -> None:
        """Queue this rank's part of its next barrier on ``stream`` (default: the current one)."""
        number = context.stream if stream is None else stream
        if context.capture is not None and context.capture.takes(number):
            # A replay is another barrier, with a count of its own.
            context.capture.add(number, lambda place: self.enqueue(context, place))
            return
        block = self._words()
        self._entered[context.rank] += 1
        count = self._entered[context.rank]
        # Own word last: the peers' reports then name the rank that is late, not one that is a few writes behind.
        peers = [(context.rank + 1 + i) % self._world_size for i in range(self._world_size)]
        for peer in peers:
            context.submit(WriteValue(data_base(peer) + block.offset + _WORD * context.rank, count, 64), stream=stream)
        for peer in peers:
            context.submit(WaitValue(data_base(context.rank) + block.offset + _WORD * peer, count, "ge", 64), stream=stream)

    def release(self) -> None:
        """Give the memory of the words back; called when the simulation has ended."""
        self._buffers.clear()

    def _words(self) -> Block:
        if self._block is None:
            ranks = range(self._world_size)
            self._block = self._heap.new_block(ranks, _WORD * self._world_size, "barrier_all", _WORD, zero=True)
            self._buffers = [self._block.buffer(rank) for rank in ranks]
        return self._block
