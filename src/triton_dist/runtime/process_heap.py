"""The symmetric heap of a world of processes: collective allocation among the ranks of a team, and when memory may be used again.

Every call is a meeting of the ranks of one team, at which each of them says what it asks for, which of the team's blocks nothing refers
to any more on it, and what is free in its heap. All of them then decide the same without another word. The memory of a block is used
again once no rank has a tensor there, freed or not.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import (
    HeapFullError,
    InvalidArgumentError,
    NotInitializedError,
    NotSymmetricError,
    TritonDistError,
    UnreachablePeerError,
    UseAfterFreeError,
)
from .address_map import MAX_HEAP_SIZE, rank_of
from .agreement import raise_first
from .arena import Arena
from .context_layout import MEMBERS_PER_TEAM, SHMEM_BYTES, SHMEM_EPOCHS
from .cuda import device_memory
from .cuda.blocks import Block, BlockTable, count_dropped, leave_behind, left_over_in, left_over_ranges, merged
from .cuda.mapping import data_base
from .cuda.team_table import TeamTable
from .cuda.undo import run_all
from .lazy_views import lazily_like
from .meeting import Call, capture_error, check_all_meet, check_same, with_free
from .offsets import OffsetAllocator, Range
from .process_world import ProcessWorld, Slots
from .symmetric import address_of
from .team import Team

TEAMS_ALWAYS_THERE = 3
"""Numbers of the teams of all ranks, of those that share memory and of those of this host; all ranks of a world are on one host."""


@dataclass
class _TeamState:
    """A team as its ranks know it. count: allocations made so far. record: in the table of teams. last: the last allocation, in words."""

    team: Team
    arena: Arena
    count: int = 0
    record: int | None = None
    last: str = "nothing yet"


class ProcessHeap:
    """This process's view of all heaps. Made by all ranks together; what is special to a kind of memory is a subclass's.

    size: bytes of each rank's heap, the same on all ranks; rounded up to a multiple of ``unit``, what can be mapped.
    make_slots: maps all heaps, given the rounded size; all ranks call it together.
    Raises InvalidArgumentError, and what ``make_slots`` does: the same on every rank.
    """

    def __init__(self, world: ProcessWorld, size: int, unit: int, make_slots: Callable[[int], Slots]) -> None:
        self._world = world
        self._process = os.getpid()
        sizes = world.gather(size)
        if set(sizes) != {size}:
            other = next(rank for rank, there in enumerate(sizes) if there != sizes[0])
            raise InvalidArgumentError(
                f"heap_size is {sizes[0]} on rank 0 but {sizes[other]} on rank {other}; all ranks must ask for the same (argument or "
                "TRITON_DIST_HEAP_SIZE)"
            )
        self._unit = unit
        self.size = self._rounded(size)
        # Behind the heap that was asked for lie the words of the device barriers, which peers write.
        self._words = range(self.size, self.size + self._rounded(SHMEM_BYTES))
        if self._words.stop > MAX_HEAP_SIZE:
            most = MAX_HEAP_SIZE - len(self._words)
            raise InvalidArgumentError(
                f"heap_size={size}: a rank's slot has room for {most} bytes beside the words of device barriers; ask for less"
            )
        self._map = make_slots(self._words.stop)
        self._offsets = OffsetAllocator.of_ranges([(0, MAX_HEAP_SIZE)])
        self._blocks = BlockTable()
        self._teams: dict[tuple[int, ...], _TeamState] = {}
        try:
            self._table = TeamTable(self.bytes_at)
            everyone = Team(world.rank, tuple(range(world.world_size)))
            self._enter(everyone, [self._table.free])
            for _ in range(1, TEAMS_ALWAYS_THERE):
                self._table.enter(everyone, [self._table.free])
            self.bytes_at(self.words_address, len(self._words)).zero_()
            self._keep_clear(everyone.ranks)
        except BaseException:
            self._map.close()
            raise

    def close(self) -> None:
        """Unmap everything; all ranks call it. Tensors that still exist are UseAfterFreeError wherever this package gets them."""
        blocks = list(self._blocks)
        steps = [self._world.synchronize, *(block.let_go for block in blocks), lambda: leave_behind(blocks), self._map.close]
        run_all(steps)  # a device on which a kernel has failed can't be waited for, but the next world needs the addresses

    @property
    def mapped_bytes(self) -> int:
        """Bytes of a rank's heap as it is mapped, from its data base on: what was asked for, and the words of the device barriers."""
        return self._words.stop

    @property
    def words_address(self) -> int:
        """Address of this process's words of the device barriers."""
        return data_base(self._world.rank) + self.words_offset

    @property
    def words_offset(self) -> int:
        """Where the words of the device barriers begin in each rank's heap."""
        return self._words.start

    def _rounded(self, nbytes: int) -> int:
        """Up to a multiple of what can be mapped."""
        return -(-nbytes // self._unit) * self._unit

    def bytes_at(self, address: int, nbytes: int) -> torch.Tensor:
        """A uint8 tensor over mapped device memory."""
        return device_memory.tensor_over(address, nbytes, self._world.device)

    # ------------------------------------------------------------------ teams

    def make_team(self, world: ProcessWorld, team: Team, arena_size: int) -> None:
        """Set ``arena_size`` bytes aside for a team; all its ranks call it. See ``runtime.team.make_team``."""
        state, calls = self._meet(team, "make_team", f"arena_size={arena_size}")
        state.arena.reserve(arena_size, [call.free for call in calls])

    def free_team(self, world: ProcessWorld, team: Team) -> None:
        """Give the arena of a team back; all its ranks call it. Raises InvalidArgumentError if a tensor of it lives on one of them."""
        gc.collect()
        state, calls = self._meet(team, "free_team", "")
        living = self._blocks.of_team(team.ranks)
        if living:
            number, block = next(iter(living.items()))
            rank = next(rank for rank, call in zip(team.ranks, calls, strict=True) if number not in call.dead)
            raise InvalidArgumentError(
                f"free_team: tensors of the team of ranks {list(team.ranks)} still live: rank {rank} refers to {block.name!r}; "
                "drop every reference to them first"
            )
        state.arena.close()
        self._table.remove(state.record)
        if state.record is not None:
            self._clear_words(state.record)
        del self._teams[team.ranks]

    def team_number(self, team: Team) -> int | None:
        """The number by which kernels name a team; None if it has none."""
        state = self._teams.get(team.ranks)
        return None if state is None else state.record

    def members_of(self, number: int) -> tuple[int, ...] | None:
        """World ranks of the team that kernels name by ``number``, in team order; None if this rank is in no such team."""
        return next((ranks for ranks, state in self._teams.items() if state.record == number), None)

    def team_numbers(self) -> list[int]:
        """The numbers by which kernels name the teams that were made."""
        return [state.record for state in self._teams.values() if state.record is not None]

    def _publish(self) -> None:
        """Tell the world what lies where."""
        self._world.publish_blocks(self._blocks)

    def clear_words(self, ranks: Sequence[int]) -> None:
        """Begin the device barriers of teams all of whose members are in ``ranks`` anew; each of these calls it, with nothing queued.

        The caller lets the ranks meet before and after.
        """
        for number in sorted({*range(TEAMS_ALWAYS_THERE), *self.team_numbers()}):
            members = self.members_of(number) or tuple(range(self._world.world_size))
            if set(members) <= set(ranks):
                self._clear_words(number)

    def _clear_words(self, number: int) -> None:
        """Begin the device barriers of a team's number anew, for the next team. No rank of the old one uses them any more, and the next
        one's ranks only after a meeting with this rank."""
        size = 4 * MEMBERS_PER_TEAM
        self.bytes_at(self.words_address + number * size, size).zero_()
        self.bytes_at(self.words_address + SHMEM_EPOCHS + 4 * number, 4).zero_()
        self._world.synchronize()

    def _enter(self, team: Team, free_records: Sequence[int]) -> _TeamState:
        """Begin to keep book of a team at its first meeting."""
        arena = Arena(team.ranks, [self._offsets], self.size, from_top=team.size < self._world.world_size)
        state = _TeamState(team, arena, record=self._table.enter(team, free_records))
        self._teams[team.ranks] = state
        self._publish()
        return state

    def _keep_clear(self, everyone: tuple[int, ...]) -> None:
        """Leave the offsets unused at which some rank still has tensors of an earlier world, until it drops them."""
        state = self._teams[everyone]
        by_rank = self._world.gather(left_over_ranges())
        for start, end in merged([there for ranges in by_rank for there in ranges]):
            end = min(end, MAX_HEAP_SIZE)
            self._offsets.take(start, end - start)
            block = Block(state.count, start, end - start, end - start, state.arena, "memory of a world that has ended", freed=True)
            block.world_ended, block.before = True, left_over_in(start, end)
            state.count += 1
            self._blocks.add(block)

    # ------------------------------------------------------------------ meetings

    def _meet(
        self,
        team: Team,
        kind: str,
        asked: str,
        check: Callable[[], Any] | None = None,
        *,
        request: Any = None,
        failure: TritonDistError | None = None,
    ) -> tuple[_TeamState, list[Call]]:
        """Meet the ranks of ``team``, see that all make the same call, and free what nobody refers to any more.

        asked: the call in words; it has to be the same on all ranks, or ``request`` has to be, if given.
        check: of this rank's arguments. An error of it, or ``failure``, found before, is raised on all ranks.
        Raises AllocationMismatchError. Free ranges in the calls are those after the freeing.
        """
        if os.getpid() != self._process:
            raise NotInitializedError(
                f"{kind}: this process was forked from rank {self._world.rank} and is no rank itself; make collective calls in the rank"
            )
        cause = failure
        if self._world.streams.capturing:
            cause = capture_error(kind)
        if check is not None:
            try:
                check()
            except TritonDistError as error:
                cause = error
        calls = self._world.gather_among(team.ranks, self._say(team, kind, asked if request is None else request, asked, cause))
        check_all_meet(team.ranks, calls, f"symmetric {kind} of {asked}")
        # First what is wrong with the arguments: it may be why the calls differ.
        raise_first([call.failure for call in calls], team.ranks, f"symmetric {kind}", cause)
        check_same(team.ranks, calls)
        state = self._teams.get(team.ranks) or self._enter(team, [call.records for call in calls])
        freed = [self._forget(team, number) for number in sorted(set.intersection(*(set(call.dead) for call in calls)))]
        given_back = [there for there in freed if not state.arena.set_aside_at(there[0])]
        return state, [with_free(call, given_back) for call in calls] if given_back else calls

    def _say(self, team: Team, kind: str, request: Any, asked: str, cause: TritonDistError | None) -> Call:
        count_dropped()
        blocks = self._blocks.of_team(team.ranks)
        # A call that fails frees nothing; in a capture it could not wait for the device.
        dead = {} if cause is not None else {number: block for number, block in blocks.items() if block.dead}
        if not all(block.settled for block in dead.values()):
            # Kernels that were queued before the tensors went may still use the memory.
            self._world.synchronize()
            for block in dead.values():
                block.settled = True
        state = self._teams.get(team.ranks)
        places = hash(tuple((number, block.offset, block.span) for number, block in sorted(blocks.items())))
        return Call(
            kind,
            request,
            asked,
            None if cause is None else (type(cause), str(cause)),
            tuple(dead),
            self._offsets.free_ranges(),
            self._table.free,
            (places, "nothing yet" if state is None else state.last),
        )

    def _forget(self, team: Team, number: int) -> Range:
        """Let the memory of a block be used again. Returns its offsets."""
        block = self._blocks.of_team(team.ranks)[number]
        block.freed = True
        self._blocks.remove(block)
        if block.release is not None:
            block.release()
        block.arena.free(block.offset, block.span)
        self._given_back(block)
        return block.offset, block.offset + block.span

    def _given_back(self, block: Block) -> None:
        """Called when no rank refers to the memory of a block any more."""

    # ------------------------------------------------------------------ tensors

    def allocate(
        self, world: ProcessWorld, team: Team, shape: Sequence[int], dtype: torch.dtype, name: str | None, *, zero: bool
    ) -> torch.Tensor:
        """Allocate the same tensor on every rank of ``team``; all of them call it. See ``runtime.symmetric.symm_empty``."""
        sizes = tuple(shape)
        asked = f"{_dtype_name(dtype)}{list(sizes)}" + (" of zeros" if zero else "")

        def check() -> None:
            if any(size < 0 for size in sizes):
                raise InvalidArgumentError(f"shape {sizes} has a negative size")

        nbytes = dtype.itemsize
        for size in sizes:
            nbytes *= size
        block = self._place(team, asked, nbytes, name, dtype.itemsize, check)
        flat = block.storage(world.rank, world.device)
        if self._initialize(flat, zero):
            world.synchronize(world.streams.current())
            world.gather_among(team.ranks, "initialized")
        return flat.view(dtype).view(sizes)

    def _initialize(self, new: torch.Tensor, zero: bool) -> bool:
        """Write what a new tensor holds, on this rank; whether the ranks have to meet before one of them uses it."""
        if zero:
            new.zero_()
        return zero

    def _place(self, team: Team, asked: str, nbytes: int, name: str | None, itemsize: int, check: Callable[[], Any]) -> Block:
        """A new block; tensors that only reference cycles still hold are collected before the heap counts as full."""
        state, calls = self._meet(team, "allocation", asked, check)
        try:
            offset = state.arena.allocate(nbytes, [call.free for call in calls])
        except HeapFullError:
            gc.collect()
            state, calls = self._meet(team, "allocation", asked)
            offset = state.arena.allocate(nbytes, [call.free for call in calls])
        return self._add(state, offset, nbytes, OffsetAllocator.padded(nbytes), name, asked, itemsize)

    def _add(self, state: _TeamState, offset: int, nbytes: int, span: int, name: str | None, asked: str, itemsize: int = 1) -> Block:
        block = Block(state.count, offset, nbytes, span, state.arena, name or f"symm{state.count}", itemsize)
        state.count += 1
        state.last = f"{asked} at offset {offset}"
        self._blocks.add(block)
        self._publish()
        return block

    def adopt(self, world: ProcessWorld, team: Team, tensor: torch.Tensor, name: str | None) -> torch.Tensor:
        """A symmetric tensor over another library's memory; all ranks of ``team`` call it. See ``runtime.symmetric.symm_adopt``."""
        asked = f"{_dtype_name(tensor.dtype)}{list(tensor.shape)} with strides {list(tensor.stride())}"
        if rank_of(address_of(tensor)) is not None:
            self._meet(team, "adoption", f"{asked}, symmetric already", lambda: self.find(tensor, "symm_adopt"))
            return tensor
        return self._adopt_ordinary(team, tensor, name, asked)

    def _adopt_ordinary(self, team: Team, tensor: torch.Tensor, name: str | None, asked: str) -> torch.Tensor:
        """``adopt`` of memory outside the heaps. asked: the tensor in words. Raises NotSymmetricError on every rank."""
        raise NotImplementedError

    def _describe_ordinary(self, tensor: torch.Tensor) -> str:
        """Why a tensor is not symmetric and what to do, for the end of a sentence."""
        raise NotImplementedError

    def lookup(self, address: int) -> Block | None:
        """The block that an address of any rank's heap lies in, freed or not."""
        return self._blocks.at(address)

    def find(self, tensor: torch.Tensor, what: str) -> Block:
        """The block that a tensor lies in. Raises NotSymmetricError, UseAfterFreeError."""
        address = address_of(tensor)
        block = self.lookup(address)
        if block is not None and not block.freed:
            return block
        self.check_alive(tensor, what)
        raise NotSymmetricError(
            f"{what} needs a symmetric tensor, but a tensor of shape {list(tensor.shape)} {self._describe_ordinary(tensor)}"
        )

    def check_alive(self, tensor: torch.Tensor, what: str) -> None:
        """Raise UseAfterFreeError if a tensor lies in symmetric memory that was freed or whose world has ended. Any tensor may be given."""
        address = address_of(tensor)
        if rank_of(address) is None:
            return
        block = self.lookup(address)
        if block is not None and not block.freed:
            return
        if block is not None and not block.world_ended:
            raise UseAfterFreeError(f"{what}: {block.name!r} was freed before")
        raise UseAfterFreeError(
            f"{what}: a tensor of shape {list(tensor.shape)} lies in the symmetric memory of a world that has ended (finalize), "
            "or of a tensor that was freed; allocate it again after initialize()"
        )

    def peer(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """A tensor over the same elements in ``rank``'s memory."""
        block = self.find(tensor, "symm_peer")
        if rank not in block.ranks:
            raise UnreachablePeerError(f"symm_peer: {block.name!r} exists on ranks {list(block.ranks)}, not on rank {rank}")
        address = address_of(tensor)
        owner = rank_of(address) or 0
        if owner == rank:
            return tensor
        return view_of_block(block.storage(rank, self._world.device), tensor, address - data_base(owner) - block.offset)

    def free(self, world: ProcessWorld, tensor: torch.Tensor) -> None:
        """Free the block of a tensor on all its ranks; all of them call it."""
        block = self.find(tensor, "symm_free")
        team = Team(block.ranks.index(world.rank), block.ranks)
        self._meet(team, "free", f"{block.name!r}", request=block.number)
        block.freed = True
        self._publish()


def view_of_block(whole: torch.Tensor, like: torch.Tensor, skip: int) -> torch.Tensor:
    """The elements of ``like``, with its strides, ``skip`` bytes behind the start of a uint8 tensor."""
    itemsize = like.element_size()
    usable = (whole.numel() - skip) // itemsize * itemsize
    return lazily_like(whole[skip : skip + usable].view(like.dtype).as_strided(like.shape, like.stride()), like)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
