"""The memory of torch's symmetric memory on the simulator: one piece a rank, each with a signal pad, and the groups that share them.

``empty`` is no collective call, so ranks may allocate at different times. The k-th piece of a size of each rank lies at the same offset of
their heaps, as it does where programs allocate alike; NVSHMEM's functions and multicast need that, pointer tables do not.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ...errors import AllocationMismatchError, NotSymmetricError, SymmetricMemoryError, UnreachablePeerError
from ...runtime.address_map import MULTICAST, STRIDE, heap_base
from ...runtime.team import Team
from ..address_space import data_base
from .meeting import Meetings
from .pads import Pads

if TYPE_CHECKING:
    from ..context import RankContext
    from ..heap import Block, SymmetricHeap
    from ..machine import Machine

PAD_WORD = 4
"""Bytes of a word of a signal pad."""

_FIRST_MULTICAST_CAPABILITY = 90


class Place(Protocol):
    """Memory in the heap of a rank, or of several at the same offset."""

    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def freed(self) -> bool: ...

    def buffer(self, rank: int) -> Any:
        """A ctypes buffer over a rank's memory, which is not used again while it lives."""


@dataclass(eq=False)
class Piece:
    """One rank's memory of one ``empty``.

    nbytes: as asked for. block, pad: where data and signal pad lie.
    group_name: the group that ``empty`` was told, if any. backend: of torch's symmetric memory. pad_buffer keeps the pad.
    """

    rank: int
    nbytes: int
    block: Place
    pad: Place
    group_name: str | None
    backend: str
    pad_buffer: Any
    groups: dict[str, Members] = field(default_factory=dict)

    @property
    def address(self) -> int:
        return data_base(self.rank) + self.block.offset

    def asked(self, group_name: str) -> str:
        """A rendezvous of it in words."""
        return f"{self.block.name!r} ({self.nbytes} bytes) in group {group_name!r}"


class Members:
    """The pieces of a group that have met in a rendezvous, as one rank knows them.

    team: this rank's place and the world ranks. blocks, pads: of each member, in the order of the group.
    multicast: the address of all pieces at once, 0 where there is none.
    """

    def __init__(self, machine: Machine, group_name: str, team: Team, pieces: list[Piece], multicast: int) -> None:
        self.group_name = group_name
        self.team = team
        self.nbytes = pieces[team.index].nbytes
        self.name = pieces[team.index].block.name
        self.blocks = [piece.block for piece in pieces]
        self.pads = [piece.pad for piece in pieces]
        self.multicast = multicast
        self.buffer_table = PointerTable(machine, [self.address(place) for place in range(team.size)], f"buffer_ptrs of {self.name}")
        self.pad_table = PointerTable(machine, [self.pad_address(place) for place in range(team.size)], f"signal_pad_ptrs of {self.name}")

    def address(self, place: int) -> int:
        """Where the data of a member lies."""
        return data_base(self.team.ranks[place]) + self.blocks[place].offset

    def pad_address(self, place: int) -> int:
        """Where the signal pad of a member lies."""
        return data_base(self.team.ranks[place]) + self.pads[place].offset


class PointerTable:
    """Addresses that kernels read from memory, as int64 words. It is known to the machine as long as this object lives.

    Its own address is passed to kernels as a number, which Triton takes for an int32 where it fits into one: as addresses of a GPU do not,
    nor those of a mapping. Those of small pieces of ordinary memory may, in a python whose program lies at a fixed address.
    """

    def __init__(self, machine: Machine, addresses: list[int], name: str) -> None:
        self.words = np.frombuffer(mmap.mmap(-1, 8 * max(1, len(addresses))), np.int64)[: len(addresses)]
        self.words[:] = addresses
        self.address = self.words.ctypes.data
        known = machine.memory.register_range(self.address, self.words.nbytes, name=name, rank=None, symmetric=False, itemsize=8)
        weakref.finalize(self, _unregister, weakref.ref(machine.memory), known).atexit = False


def _unregister(memory: weakref.ref, allocation: Any) -> None:
    alive = memory()
    if alive is not None:
        alive.unregister(allocation)


class SymmetricAllocations:
    """All pieces of one simulation. Its methods are called by the ranks' host functions."""

    def __init__(self, machine: Machine, heap: SymmetricHeap) -> None:
        self._machine = machine
        self._heap = heap
        self._pieces: weakref.WeakValueDictionary[int, Piece] = weakref.WeakValueDictionary()
        self._counts: dict[tuple[int, tuple], int] = {}
        self._shared: dict[tuple[int, tuple], tuple[Block, Block]] = {}
        self._meetings: dict[tuple[int, tuple[int, ...]], int] = {}
        self._brought: dict[tuple[int, tuple[int, ...]], dict[int, Piece]] = {}
        self._dropped: deque[tuple[int, Any, Piece]] = deque()
        """What no tensor refers to any more. Torch waits for the device before it gives such memory back, so it lives as long as that."""
        self.meetings = Meetings()
        self.pads = Pads(machine)
        self._persistent: dict[tuple[int, int], tuple[Piece, Any, weakref.ref]] = {}

    def close(self) -> None:
        """Drop what is kept for persistent allocations."""
        self._persistent.clear()
        self._shared.clear()
        self._dropped.clear()
        self.pads.close()

    def allocate(
        self, context: RankContext, nbytes: int, itemsize: int, name: str | None, group_name: str | None, backend: str, pad_size: int
    ) -> torch.Tensor:
        """New memory of this rank, as bytes; no other rank has to call. itemsize: of the elements that reports count in."""
        return self._tensor(self._new_piece(context, nbytes, itemsize, name, group_name, backend, pad_size))[0]

    def allocate_again(self, context: RankContext, alloc_id: int, nbytes: int, *more: Any) -> torch.Tensor:
        """The memory of an ``alloc_id``, new when this rank asks for it first. more: as for ``allocate``.

        Raises SymmetricMemoryError while a tensor over it lives, and for another size than before.
        """
        key = (context.rank, alloc_id)
        known = self._persistent.get(key)
        if known is None:
            piece = self._new_piece(context, nbytes, *more)
            keeper = piece.block.buffer(context.rank)
        else:
            piece, keeper, user = known
            if user() is not None or piece.nbytes != nbytes:
                why = "is still in use" if user() is not None else f"has {piece.nbytes} bytes, not {nbytes}"
                raise SymmetricMemoryError(f"empty_strided_p2p: the tensor of alloc_id={alloc_id} {why} on rank {context.rank}")
        tensor, buffer = self._tensor(piece)
        self._persistent[key] = piece, keeper, weakref.ref(buffer)
        return tensor

    def _new_piece(
        self, context: RankContext, nbytes: int, itemsize: int, name: str | None, group_name: str | None, backend: str, pad_size: int
    ) -> Piece:
        block, pad = self._blocks(context, nbytes, itemsize, name, pad_size, backend)
        piece = Piece(context.rank, nbytes, block, pad, group_name, backend, pad.buffer(context.rank))
        self._pieces[piece.address] = piece
        return piece

    def _tensor(self, piece: Piece) -> tuple[torch.Tensor, Any]:
        """A tensor of bytes over a piece, which lives as long as it at least, and the buffer beneath."""
        buffer, keeper = piece.block.buffer(piece.rank), piece.block.buffer(piece.rank)
        weakref.finalize(buffer, self._dropped.append, (piece.rank, keeper, piece)).atexit = False
        return torch.frombuffer(buffer, dtype=torch.uint8)[: piece.nbytes], buffer

    def _blocks(
        self, context: RankContext, nbytes: int, itemsize: int, name: str | None, pad_size: int, backend: str
    ) -> tuple[Place, Place]:
        """Where a new piece of a rank lies. NVSHMEM allocates on all ranks at once, so that their n-th pieces have to be alike."""
        self._release_dropped(context)
        kind: tuple = (backend,) if backend == "NVSHMEM" else (backend, nbytes, pad_size)
        number = self._counts[context.rank, kind] = self._counts.get((context.rank, kind), 0) + 1
        found = self._shared.get((number, kind))
        if found is None or found[0].freed or found[1].freed:
            everyone = range(context.world_size)
            block = self._heap.new_block(everyone, nbytes, name, itemsize, zero=False, foreign=backend)
            pad = self._heap.new_block(everyone, pad_size, f"signal_pad of {block.name}", PAD_WORD, zero=True, foreign=backend)
            found = self._shared[number, kind] = block, pad
            self.pads.add(pad, block.name)
        if found[0].nbytes != nbytes:
            raise AllocationMismatchError(
                f"allocation number {number} of symmetric memory by NVSHMEM: rank {context.rank} asked for {nbytes} bytes, another one for "
                f"{found[0].nbytes}; all ranks must make the same allocations in the same order"
            )
        return found

    def _release_dropped(self, context: RankContext) -> None:
        """Give back what was dropped on ranks that have nothing queued."""
        for other in context.simulation.contexts:
            other.release_done()
        for _ in range(len(self._dropped)):
            dropped = self._dropped.popleft()
            if self._machine.busy(dropped[0]):
                self._dropped.append(dropped)
        self._forget_dead()

    def _forget_dead(self) -> None:
        """Let kernels that still touch what was given back be named."""
        self._heap.forget_dead()

    def find(self, tensor: torch.Tensor) -> Piece | None:
        """The piece that a tensor lies in, if ``empty`` made it on this rank."""
        return self._pieces.get(tensor.untyped_storage().data_ptr())

    def rendezvous(self, context: RankContext, piece: Piece, group_name: str, team: Team) -> Members:
        """Meet the other ranks of a group with a piece each; every one of them must call. At once if they have met before.

        Raises AllocationMismatchError where sizes differ, and UnreachablePeerError where ranks are on different nodes.
        """
        if group_name in piece.groups:
            return piece.groups[group_name]
        if piece.backend == "CUDA" and len({self._machine.node_of(rank) for rank in team.ranks}) > 1:
            raise UnreachablePeerError(
                f"rendezvous of {piece.block.name!r}: the ranks {list(team.ranks)} of group {group_name!r} are on different nodes, which "
                'torch\'s "CUDA" backend does not span; use a group of one node, or set_backend("NVSHMEM")'
            )
        pieces = self._meet(context, piece, group_name, team)
        self._release_dropped(context)
        members = piece.groups[group_name] = Members(self._machine, group_name, team, pieces, self._multicast(team, pieces))
        self.members_made(members)
        return members

    def members_made(self, members: Members) -> None:
        """Called at the end of a rendezvous."""

    def _meet(self, context: RankContext, piece: Piece, group_name: str, team: Team) -> list[Piece]:
        """The pieces that the group's ranks bring, in its order."""
        count = self._meetings.get((context.rank, team.ranks), 0)
        self._meetings[context.rank, team.ranks] = count + 1
        key = (count, team.ranks)
        brought = self._brought.setdefault(key, {})
        brought[context.rank] = piece

        def act() -> list[Piece]:
            del self._brought[key]
            self._machine.teams.enter(team.ranks)
            return [brought[rank] for rank in team.ranks]

        asked = piece.asked(group_name)
        return self._heap.meet(context, team.ranks, "rendezvous", (piece.nbytes, group_name), asked, act)

    def _multicast(self, team: Team, pieces: list[Piece]) -> int:
        """The multicast address of pieces that lie at one offset; 0 on a GPU without multicast."""
        number = self._machine.teams.number(team.ranks)
        alike = len({piece.block.offset for piece in pieces}) == 1 and len({self._machine.node_of(rank) for rank in team.ranks}) == 1
        if number is None or not alike or not self.has_multicast:
            return 0
        return MULTICAST + number * STRIDE + pieces[0].address - heap_base(pieces[0].rank)

    @property
    def has_multicast(self) -> bool:
        """Whether the pretended GPU has it, and the script has not turned it off as one does for torch."""
        turned_off = os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST") == "1"
        return self._machine.gpu.capability >= _FIRST_MULTICAST_CAPABILITY and not turned_off

    def require(self, tensor: torch.Tensor, what: str) -> Piece:
        """The piece that a tensor lies in. Raises NotSymmetricError for other memory."""
        piece = self.find(tensor)
        if piece is None:
            raise NotSymmetricError(
                f"{what}: a tensor of shape {list(tensor.shape)} is not in torch's symmetric memory; allocate it by "
                "torch.distributed._symmetric_memory.empty"
            )
        return piece
