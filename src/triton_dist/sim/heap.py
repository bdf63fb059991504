"""The symmetric heap of a simulation: collective allocation, tensors over it, and when memory may be used again.

An allocation has the same offset in the heap of each rank of its team. Its memory is reused only when no tensor of any rank refers
to it any more, in this simulation or after it; until then it stays readable even if it was freed.
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import (
    AllocationMismatchError,
    HeapFullError,
    InvalidArgumentError,
    NotSymmetricError,
    TritonDistError,
    UnreachablePeerError,
    UseAfterFreeError,
)
from ..runtime.address_map import GUARD_BYTES, STRIDE, rank_of
from ..runtime.arena import Arena
from ..runtime.lazy_views import lazily_like
from ..runtime.meeting import capture_error
from ..runtime.offsets import OffsetAllocator, Range
from ..runtime.symmetric import address_of
from ..runtime.team import Team
from . import context as rank_context
from .address_space import data_base, ensure_mapped, release_pages
from .context import RankContext
from .memory import POISON

DEFAULT_HEAP_SIZE = 1 << 30
"""Bytes of each rank's heap unless ``simulate(heap_size=...)`` or TRITON_DIST_HEAP_SIZE says otherwise."""

POISON_LIMIT = 4 << 20
"""``symm_empty`` fills allocations up to this many bytes with 0xFF (NaN, or -1), so that using them unwritten is noticed."""

_heap_maps: dict[int, OffsetAllocator] = {}
"""What is free in each rank's heap. It outlives a simulation, as tensors do."""

_dead_buffers: deque[Block] = deque()
"""One entry for each buffer that the garbage collector took. A finalizer may run anywhere, so it only appends here."""


class Block:
    """One symmetric allocation: the same ``offset`` in the heaps of all ranks of its ``arena``'s team.

    freed: ``symm_free`` was called, or the last tensor is gone; kernels may not touch it any more.
    foreign: the backend of torch's symmetric memory that it belongs to, until it is adopted.
    """

    foreign = ""

    def __init__(self, offset: int, nbytes: int, arena: Arena, name: str) -> None:
        self.offset = offset
        self.nbytes = nbytes
        self.arena = arena
        self.ranks = arena.ranks
        self.name = name
        self.freed = False
        self.references = 0

    def buffer(self, rank: int) -> Any:
        """A ctypes buffer over this block on ``rank``, which keeps the memory from being used again while it lives."""
        buffer = (ctypes.c_ubyte * max(self.nbytes, 1)).from_address(data_base(rank) + self.offset)
        self.references += 1
        weakref.finalize(buffer, _dead_buffers.append, self).atexit = False
        return buffer


def collect_dead_blocks() -> list[Block]:
    """Give the offsets of blocks to which nothing refers any more back; returns those blocks."""
    dead = []
    while _dead_buffers:
        block = _dead_buffers.popleft()
        block.references -= 1
        if not block.references:
            for rank in block.ranks:
                release_pages(rank, block.offset, OffsetAllocator.padded(block.nbytes))
            block.arena.free(block.offset, OffsetAllocator.padded(block.nbytes))
            dead.append(block)
    return dead


class SymmetricHeap:
    """The symmetric allocations of one simulation. Its methods are called by the ranks' host functions."""

    def __init__(self, machine: Any, heap_size: int) -> None:
        self.size = heap_size
        self._machine = machine
        self._blocks: dict[int, list[Block]] = {rank: [] for rank in range(machine.world_size)}
        self._arenas: dict[tuple[int, ...], Arena] = {}
        self._registered: dict[Block, list[Any]] = {}
        self._rendezvous = _Rendezvous()
        self._gathered: dict[int, Any] = {}
        self._unnamed = 0
        collect_dead_blocks()

    def close(self) -> None:
        """Give everything that no tensor refers to back; called when the simulation has ended."""
        collect_dead_blocks()
        for arena in self._arenas.values():
            arena.close()

    def forget_meetings(self, ranks: Sequence[int]) -> None:
        """Give up collective calls that some of ``ranks`` have made and others not, and never will."""
        self._rendezvous.forget(ranks)

    def allocate(
        self, context: RankContext, team: Team, shape: Sequence[int], dtype: torch.dtype, name: str | None, *, zero: bool
    ) -> torch.Tensor:
        """Allocate the same tensor on every rank of ``team``; every one of them must call. Returns this rank's tensor.

        zero: fill with zeros; otherwise the contents are unspecified.
        Raises AllocationMismatchError, naming two ranks, if they ask for different things, and HeapFullError.
        """
        _refuse_capture(context, "allocation")
        shape, ranks = tuple(shape), team.ranks
        if any(size < 0 for size in shape):
            raise InvalidArgumentError(f"shape {shape} has a negative size")
        request = (shape, dtype, zero)
        asked = f"{_dtype_name(dtype)}{list(shape)}" + (" of zeros" if zero else "")
        count = 1
        for size in shape:
            count *= size
        nbytes = count * dtype.itemsize

        def create() -> dict[int, Any]:
            block = self.new_block(ranks, nbytes, name, dtype.itemsize, zero)
            return {rank: block.buffer(rank) for rank in ranks}

        buffers = self._rendezvous.meet(context, ranks, "allocation", request, asked, create)
        flat = torch.frombuffer(buffers.pop(context.rank), dtype=torch.uint8)[:nbytes]
        return flat.view(dtype).view(shape)

    def gather(self, context: RankContext, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank; all ranks call it."""
        ranks = tuple(range(context.world_size))
        self._gathered[context.rank] = value
        # What the last one to come collects stays, while others already put down what the next call is for.
        return self._rendezvous.meet(context, ranks, "gather", None, "gather", lambda: [self._gathered[rank] for rank in ranks])

    def make_team(self, context: RankContext, team: Team, arena_size: int) -> None:
        """Set ``arena_size`` bytes of the heaps of a team's ranks aside for it; every one of them must call. Raises HeapFullError."""

        def create() -> None:
            self._forget(collect_dead_blocks())
            arena = self._arena(team.ranks)
            arena.reserve(arena_size, self._free_ranges(team.ranks))
            self._machine.teams.enter(team.ranks)

        self._rendezvous.meet(context, team.ranks, "make_team", arena_size, f"make_team(arena_size={arena_size})", create)

    def free_team(self, context: RankContext, team: Team) -> None:
        """Give the arena of a team back; every one of its ranks must call. Raises InvalidArgumentError if a tensor of it lives."""

        def act() -> None:
            for rank in team.ranks:
                context.simulation.contexts[rank].release_done()
            gc.collect()
            self._forget(collect_dead_blocks())
            arena = self._arenas.get(team.ranks)
            living = [block.name for block in self._blocks[context.rank] if block.arena is arena]
            if living:
                raise InvalidArgumentError(
                    f"free_team: tensors of the team of ranks {list(team.ranks)} still live: {living}; drop every reference to them first"
                )
            if arena is not None:
                self._arenas.pop(team.ranks).close()
            self._machine.teams.leave(team.ranks)

        self._rendezvous.meet(context, team.ranks, "free_team", None, "free_team", act)

    def team_number(self, team: Team) -> int | None:
        """The number by which kernels name a team; None if it has none."""
        return self._machine.teams.number(team.ranks)

    def adopt(self, context: RankContext, team: Team, tensor: torch.Tensor, name: str | None) -> torch.Tensor:
        """``tensor`` if it is symmetric already; there is nothing else to adopt. Raises NotSymmetricError."""
        block = self.lookup(address_of(tensor))
        if block is None or block.freed:
            raise NotSymmetricError(
                f"symm_adopt: a tensor of shape {list(tensor.shape)} is in ordinary memory; allocate it by triton_dist.symm_empty, or by "
                "torch.distributed._symmetric_memory.empty on every rank"
            )
        if block.foreign:
            request = (block, address_of(tensor) - data_base(context.rank), tuple(tensor.shape), tensor.dtype)
            asked = f"{block.name!r} (a tensor of shape {list(tensor.shape)})"
            self._rendezvous.meet(context, team.ranks, "adoption", request, asked, lambda: self._adopted(block))
        return tensor

    def _adopted(self, block: Block) -> None:
        """Memory of torch's symmetric memory is like this heap's own from now on."""
        block.foreign = ""
        for allocation in self._registered.get(block, ()):
            allocation.foreign = ""

    def meet(self, context: RankContext, ranks: Sequence[int], kind: str, request: Any, asked: str, act: Any) -> Any:
        """A collective call of the hosts of ``ranks``, in order with their allocations: as ``_Rendezvous.meet``."""
        return self._rendezvous.meet(context, ranks, kind, request, asked, act)

    def _arena(self, ranks: Sequence[int]) -> Arena:
        """The arena of the team of these ranks."""
        ranks = tuple(ranks)
        if ranks not in self._arenas:
            maps = [_heap_maps.setdefault(rank, OffsetAllocator()) for rank in ranks]
            self._arenas[ranks] = Arena(ranks, maps, self.size, from_top=False)
        return self._arenas[ranks]

    def _free_ranges(self, ranks: Sequence[int]) -> list[list[Range]]:
        return [_heap_maps[rank].free_ranges(0, self.size) for rank in ranks]

    def new_block(self, ranks: Sequence[int], nbytes: int, name: str | None, itemsize: int, zero: bool, foreign: str = "") -> Block:
        """Take ``nbytes`` at one offset of the heaps of ``ranks``; not collective. The caller makes its ``buffer``s at once.

        name: None for the next of symm0, symm1, ...; a second live block of a name gets a number.
        itemsize: bytes of the elements that reports count in. foreign: as a Block's.
        """
        self.forget_dead()
        if name is None:
            name, self._unnamed = f"symm{self._unnamed}", self._unnamed + 1
        name = self._distinct(name)
        arena = self._arena(ranks)
        block = Block(self._take_offset(arena, nbytes), nbytes, arena, name)
        for rank in ranks:
            ensure_mapped(rank, block.offset + OffsetAllocator.padded(nbytes))
            # New and given-back pages are zero.
            if not zero and nbytes <= POISON_LIMIT:
                ctypes.memset(data_base(rank) + block.offset, POISON, nbytes)
        memory = self._machine.memory
        self._registered[block] = [
            memory.register_range(data_base(rank) + block.offset, nbytes, name=name, rank=rank, symmetric=True, itemsize=itemsize)
            for rank in ranks
        ]
        block.foreign = foreign
        for allocation in self._registered[block]:
            allocation.foreign = foreign
            allocation.poisoned = not zero and nbytes <= POISON_LIMIT
        for rank in ranks:
            bisect.insort(self._blocks[rank], block, key=lambda item: item.offset)
        return block

    def _take_offset(self, arena: Arena, nbytes: int) -> int:
        """An offset with room; tensors that only reference cycles still hold are collected before the heap counts as full."""
        try:
            return arena.allocate(nbytes, self._free_ranges(arena.ranks))
        except HeapFullError:
            gc.collect()
            self._forget(collect_dead_blocks())
            return arena.allocate(nbytes, self._free_ranges(arena.ranks))

    def _distinct(self, name: str) -> str:
        """``name``, or ``name#2`` and so on while a live block has it (one line in a loop makes many)."""
        taken = {block.name for block in self._registered}
        number = 1
        distinct = name
        while distinct in taken:
            number += 1
            distinct = f"{name}#{number}"
        return distinct

    def free(self, context: RankContext, tensor: torch.Tensor) -> None:
        """Free the allocation that ``tensor`` lies in, on all ranks that have it; every one of them must call.

        Kernels that touch it afterwards raise UseAfterFreeError. Waits for nothing on the device.
        """
        _refuse_capture(context, "free")
        block = self.find(tensor, "symm_free")
        if block.freed:
            raise UseAfterFreeError(f"symm_free: {block.name!r} was freed before")
        self._rendezvous.meet(context, block.ranks, "free", block, f"symm_free({block.name!r})", lambda: self._forget([block]))

    def forget_dead(self) -> None:
        """Take blocks to which nothing refers any more for freed."""
        self._forget(collect_dead_blocks())

    def _forget(self, blocks: list[Block]) -> None:
        for block in blocks:
            block.freed = True
            for allocation in self._registered.pop(block, ()):
                self._machine.memory.unregister(allocation)
            for rank in block.ranks if not block.references else ():
                # A block of an earlier simulation is not among ours.
                if block in self._blocks.get(rank, ()):
                    self._blocks[rank].remove(block)

    def peer(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """The same view of the same allocation in the heap of world rank ``rank``."""
        block = self.find(tensor, "symm_peer")
        if block.freed:
            raise UseAfterFreeError(f"symm_peer: {block.name!r} was freed before")
        if rank not in block.ranks:
            raise UnreachablePeerError(f"symm_peer: {block.name!r} exists on ranks {list(block.ranks)}, not on rank {rank}")
        here, node = rank_context.current(), self._machine.node_of(rank)
        if here is not None and node != here.node:
            raise UnreachablePeerError(
                f"symm_peer: rank {rank} is on node {node}, rank {here.rank} on node {here.node}; use a put or a signal"
            )
        start = address_of(tensor) % STRIDE - GUARD_BYTES - block.offset
        if start % tensor.element_size():
            raise InvalidArgumentError(f"symm_peer: a {tensor.dtype} view can't start at byte {start} of {block.name!r}")
        whole = torch.frombuffer(block.buffer(rank), dtype=torch.uint8)[: block.nbytes // tensor.element_size() * tensor.element_size()]
        view = whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), start // tensor.element_size())
        return lazily_like(view, tensor)

    def find(self, tensor: torch.Tensor, what: str) -> Block:
        """The block that ``tensor`` lies in, freed or not. Raises NotSymmetricError."""
        block = self.lookup(address_of(tensor))
        if block is None:
            raise NotSymmetricError(
                f"{what} needs a symmetric tensor, but a tensor of shape {list(tensor.shape)} is in ordinary memory; "
                "allocate it by triton_dist.symm_empty or symm_zeros"
            )
        if block.foreign:
            raise NotSymmetricError(
                f"{what} of {block.name!r}, which is torch's symmetric memory; adopt it by triton_dist.symm_adopt and pass what that gives"
            )
        return block

    def lookup(self, address: int) -> Block | None:
        """The block that holds ``address`` in some rank's heap, or None."""
        owner = rank_of(address)
        if owner is None:
            return None
        offset, blocks = address - data_base(owner), self._blocks.get(owner, [])
        at = bisect.bisect_right(blocks, offset, key=lambda item: item.offset) - 1
        if at < 0:
            return None
        block = blocks[at]
        return block if offset < block.offset + max(block.nbytes, 1) else None


class _Rendezvous:
    """Where the ranks' heap calls meet: the n-th call of each rank belongs to the n-th of the others in the same set of ranks."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, tuple[int, ...]], int] = {}
        self._meetings: dict[tuple, _HeapCall] = {}

    def forget(self, ranks: Sequence[int]) -> None:
        """Count the calls among some of ``ranks`` alike again, and drop those that only some have made."""
        teams = {team for _, team in self._counts if set(team) <= set(ranks)}
        for team in teams:
            most = max(self._counts.get((rank, team), 0) for rank in team)
            self._counts.update({(rank, team): most for rank in team})
        self._meetings = {key: call for key, call in self._meetings.items() if key[1] not in teams}

    def meet(self, context: RankContext, ranks: Sequence[int], kind: str, request: Any, asked: str, act: Any) -> Any:
        """Block until every rank of ``ranks`` made the same call, let the last one ``act()``, and return what it returned."""
        ranks = tuple(ranks)
        number = self._counts.get((context.rank, ranks), 0)
        self._counts[context.rank, ranks] = number + 1
        call = self._meetings.setdefault((number, ranks), _HeapCall(context.rank, kind, request, asked))
        if (kind, request) != (call.kind, call.request):
            raise AllocationMismatchError(
                f"symmetric {kind} number {number}: rank {context.rank} asked for {asked}, but rank {call.first} asked for {call.asked}; "
                "all ranks must make the same symmetric allocations and frees in the same order"
            )
        call.arrived.add(context.rank)
        races = context.machine.races
        if races is not None:
            call.known.append(races.host(context.rank).publish())
        if len(call.arrived) == len(ranks):
            del self._meetings[number, ranks]
            try:
                call.result = act()
            except TritonDistError as error:
                call.error = error
            call.done = True
        else:

            def what() -> str:
                missing = [rank for rank in ranks if rank not in call.arrived]
                return f"symmetric {kind} of {asked}: waits for ranks {missing}"

            context.block(what, lambda: call.done)
        if call.error is not None:
            raise type(call.error)(*call.error.args)
        if races is not None:
            for known in call.known:
                races.host(context.rank).learn(known)
        return call.result


class _HeapCall:
    """One collective call of the heap while its ranks arrive; the first rank's request is what the others must ask for."""

    def __init__(self, first: int, kind: str, request: Any, asked: str) -> None:
        self.first = first
        self.kind = kind
        self.request = request
        self.asked = asked
        self.arrived: set[int] = set()
        self.known: list[Any] = []
        """What each host had done, for ``check``: a collective call orders the hosts."""
        self.done = False
        self.result: Any = None
        self.error: TritonDistError | None = None


def _refuse_capture(context: RankContext, kind: str) -> None:
    """Raises CaptureError where a CUDA graph is captured, as on GPUs."""
    if context.streams.capturing:
        raise capture_error(kind)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
