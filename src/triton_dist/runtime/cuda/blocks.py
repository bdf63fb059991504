"""The symmetric allocations that a process knows: where they lie, and which of them nothing refers to any more."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ..address_map import rank_of
from ..arena import Arena
from ..offsets import Range
from . import device_memory
from .mapping import data_base

_dropped: deque[Block] = deque()
"""One entry for each storage that is gone. A finalizer may run anywhere and in any thread, so it only appends here."""

_left_over: list[Block] = []
"""Blocks of worlds that have ended to which tensors of this process still refer."""


@dataclass(eq=False)
class Block:
    """One symmetric allocation: the same ``offset`` on all ranks of its ``arena``'s team.

    number: its place in the order of the team's allocations. span: bytes that it takes from the heap, or of adopted mappings.
    itemsize: bytes of the elements that reports count in.
    freed: ``symm_free`` was called, or its world has ended. settled: no kernel of this rank uses it any more.
    references: storages of this process over it, on any rank.
    release, keeps: of adopted memory: unmaps it, and the tensor that it came from. world_ended, before: this is no allocation of this
    world; its offsets stay unused because of tensors of earlier ones, ``before`` in this process.
    """

    number: int
    offset: int
    nbytes: int
    span: int
    arena: Arena
    name: str
    itemsize: int = 1
    freed: bool = False
    settled: bool = False
    references: int = 0
    release: Callable[[], None] | None = None
    keeps: torch.Tensor | None = None
    world_ended: bool = False
    before: Sequence[Block] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.arena.ranks

    @property
    def dead(self) -> bool:
        """Whether no tensor of this process refers to it."""
        return not self.references and all(block.dead for block in self.before)

    def storage(self, rank: int, device: torch.device) -> torch.Tensor:
        """A new storage over the whole block in ``rank``'s memory, as uint8. Its views keep the block from being used again."""
        self.references += 1
        return device_memory.tensor_over(data_base(rank) + self.offset, max(self.nbytes, 1), device, partial(_dropped.append, self))[
            : self.nbytes
        ]

    def let_go(self) -> None:
        """Unmap it if it is adopted memory; its world ends."""
        release, self.release = self.release, None
        try:
            if release is not None:
                release()
        finally:
            self.keeps = None


def count_dropped() -> None:
    """Take the storages that are gone off the references of their blocks."""
    while _dropped:
        _dropped.popleft().references -= 1


class BlockTable:
    """The blocks of one world, found by team and number and by address."""

    def __init__(self) -> None:
        self._by_offset: list[Block] = []
        self._by_team: dict[tuple[int, ...], dict[int, Block]] = {}

    def add(self, block: Block) -> None:
        bisect.insort(self._by_offset, block, key=lambda item: item.offset)
        self._by_team.setdefault(block.ranks, {})[block.number] = block

    def remove(self, block: Block) -> None:
        self._by_offset.remove(block)
        del self._by_team[block.ranks][block.number]

    def of_team(self, ranks: tuple[int, ...]) -> dict[int, Block]:
        """The blocks of a team by number."""
        return self._by_team.setdefault(ranks, {})

    def __iter__(self) -> Iterator[Block]:
        return iter(self._by_offset)

    def at(self, address: int) -> Block | None:
        """The block that an address in the heap of any of its ranks lies in."""
        rank = rank_of(address)
        if rank is None:
            return None
        offset = address - data_base(rank)
        at = bisect.bisect_right(self._by_offset, offset, key=lambda item: item.offset) - 1
        if at < 0:
            return None
        block = self._by_offset[at]
        return block if offset < block.offset + max(block.nbytes, 1) and rank in block.ranks else None


def leave_behind(blocks: Sequence[Block]) -> None:
    """Remember the blocks of a world that ends for as long as tensors refer to them."""
    count_dropped()
    for block in blocks:
        block.freed = True
    own = [block for block in blocks if not block.world_ended]  # the others stand for some that are left over already
    _left_over[:] = [block for block in (*_left_over, *own) if not block.dead]


def left_over_ranges() -> list[Range]:
    """Offsets of earlier worlds at which tensors of this process still lie; a new world must not put others there."""
    count_dropped()
    _left_over[:] = [block for block in _left_over if not block.dead]
    return merged([(block.offset, block.offset + block.span) for block in _left_over])


def left_over_in(start: int, end: int) -> list[Block]:
    """The blocks of earlier worlds that lie between two offsets."""
    return [block for block in _left_over if block.offset < end and block.offset + block.span > start]


def merged(ranges: Sequence[Range]) -> list[Range]:
    """The same offsets as ranges that do not overlap or touch."""
    result: list[Range] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result
