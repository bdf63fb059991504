"""torch's symmetric memory among ranks that are processes: where the pieces lie, how the ranks find each other's, and meet in operators.

``empty`` is no collective call: each rank takes memory from its own heap by itself. At a rendezvous the ranks tell each other where it
lies. Programs that allocate alike have it at one offset, which multicast and NVSHMEM's functions need.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.utils import _pytree as pytree

from ...errors import AllocationMismatchError
from ...runtime.address_map import rank_of
from ...runtime.symmetric import address_of
from ...runtime.team import Team
from ..address_space import data_base
from ..context import RankContext
from ..symmetric_memory.allocations import PAD_WORD, Members, Piece, Place, SymmetricAllocations
from ..symmetric_memory.meeting import Meetings, Part, Run, mismatch

if TYPE_CHECKING:
    from ..memory import Allocation
    from .heap import CpuHeap
    from .memory import GuardedMemory
    from .world import CpuWorld

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""A dtype by the size of its elements, which reports count in."""


@dataclass(eq=False)
class HeapPlace:
    """Memory in one rank's heap. keeps: this rank's own tensor over it, whose end gives the memory back. freed: its world has ended."""

    rank: int
    offset: int
    nbytes: int
    name: str
    keeps: torch.Tensor | None = None
    freed: bool = False

    def buffer(self, rank: int) -> Any:
        """A ctypes buffer over it."""
        buffer = (ctypes.c_ubyte * max(self.nbytes, 1)).from_address(data_base(self.rank) + self.offset)
        weakref.finalize(buffer, _nothing, self).atexit = False  # keeps this place as long as the buffer lives
        return buffer


def _nothing(place: HeapPlace) -> None:
    """Called when a buffer has gone."""


@dataclass(frozen=True)
class _Brought:
    """What a rank says of its piece. block, pad: offset, bytes and name. itemsize: of the elements.

    backend: of torch's symmetric memory. done: numbers of earlier meetings of these ranks whose memory it does not use any more.
    """

    block: tuple[int, int, str]
    pad: tuple[int, int, str]
    itemsize: int
    backend: str
    done: tuple[int, ...]


@dataclass(eq=False)
class _Met:
    """A rendezvous that was: this rank's memory stays as long as some rank of the group may use it."""

    own: tuple[Place, Place]
    members: weakref.ref[Members] | None = None

    @property
    def done(self) -> bool:
        return self.members is not None and self.members() is None


class ProcessAllocations(SymmetricAllocations):
    """The pieces of this process, and those of others that it has met."""

    _heap: CpuHeap  # type: ignore[assignment]

    def __init__(self, world: CpuWorld) -> None:
        super().__init__(world.machine, world.heap)  # type: ignore[arg-type]
        self._world = world
        self._memory: GuardedMemory = world.machine.memory  # type: ignore[assignment]
        self.meetings = ProcessMeetings(world)
        self._numbers: dict[tuple[int, ...], itertools.count] = defaultdict(itertools.count)
        self._met: dict[tuple[int, ...], dict[int, _Met]] = defaultdict(dict)
        self._peers: weakref.WeakValueDictionary[tuple[int, int], HeapPlace] = weakref.WeakValueDictionary()
        self._own: weakref.WeakSet[HeapPlace] = weakref.WeakSet()
        self._itemsizes: weakref.WeakKeyDictionary[Place, int] = weakref.WeakKeyDictionary()

    def close(self) -> None:
        """The world ends: handles refuse the memory from now on."""
        super().close()
        for place in (*self._own, *self._peers.values()):
            place.freed = True
        self._met.clear()

    def _blocks(
        self, context: RankContext, nbytes: int, itemsize: int, name: str | None, pad_size: int, backend: str
    ) -> tuple[Place, Place]:
        """In the part of the heap that this rank manages alone. Waits for the current stream, which may use what was dropped."""
        context.synchronize(context.stream, "an allocation of torch's symmetric memory")
        self._release_dropped(context)
        block = self._take(nbytes, itemsize, name, backend, zero=False)
        pad = self._take(pad_size, PAD_WORD, f"signal_pad of {block.name}", backend, zero=True)
        self._mark(pad, backend, is_pad=True)
        return block, pad

    def _forget_dead(self) -> None:
        """The ranks' hosts agree on it at the next allocation."""

    def _take(self, nbytes: int, itemsize: int, name: str | None, backend: str, *, zero: bool) -> HeapPlace:
        itemsize = itemsize if itemsize in _WORDS else 1
        alone = Team(0, (self._world.rank,))
        tensor = self._heap.allocate(self._world, alone, (-(-nbytes // itemsize),), _WORDS[itemsize], name, zero=zero)
        block = self._heap.lookup(address_of(tensor))
        assert block is not None
        place = HeapPlace(self._world.rank, block.offset, nbytes, block.name, keeps=tensor)
        self._own.add(place)
        self._itemsizes[place] = itemsize
        self._heap.foreign.add(block)
        self._mark(place, backend)
        return place

    def _mark(self, place: HeapPlace, backend: str, *, is_pad: bool = False) -> None:
        """Let the machine know whose memory it is."""
        allocation = self._memory.find(data_base(place.rank) + place.offset)
        if allocation is not None:
            allocation.foreign, allocation.is_pad = backend, is_pad

    def _meet(self, context: RankContext, piece: Piece, group_name: str, team: Team) -> list[Piece]:
        asked = piece.asked(group_name)
        self._release_dropped(context)
        self._heap.meet(team, "rendezvous", asked, (piece.nbytes, group_name))
        met = self._met[team.ranks]
        brought = _Brought(
            (piece.block.offset, piece.block.nbytes, piece.block.name),
            (piece.pad.offset, piece.pad.nbytes, piece.pad.name),
            self._itemsizes[piece.block],
            piece.backend,
            tuple(number for number, known in met.items() if known.done),
        )
        said: list[_Brought] = self._world.gather_among(team.ranks, brought, f"rendezvous of {asked}")
        for number in set.intersection(*(set(theirs.done) for theirs in said)):
            del met[number]
        self._check_alike(team, piece, said)
        number = next(self._numbers[team.ranks])
        met[number] = self._newest = _Met((piece.block, piece.pad))
        return [piece if rank == piece.rank else self._piece_of(rank, theirs) for rank, theirs in zip(team.ranks, said, strict=True)]

    def _check_alike(self, team: Team, piece: Piece, said: list[_Brought]) -> None:
        if len({theirs.backend for theirs in said}) > 1:
            raise AllocationMismatchError(
                f"rendezvous of {piece.block.name!r}: the memory of ranks {list(team.ranks)} is of the backends "
                f"{[theirs.backend for theirs in said]}; call set_backend alike on all ranks"
            )
        if piece.backend == "NVSHMEM" and len({theirs.block[0] for theirs in said}) > 1:
            raise AllocationMismatchError(
                f"rendezvous of {piece.block.name!r} by NVSHMEM: it lies at different places of the heaps of ranks {list(team.ranks)}; "
                "all ranks must make the same allocations in the same order"
            )

    def members_made(self, members: Members) -> None:
        self._newest.members = weakref.ref(members)

    def peer_place(self, address: int) -> HeapPlace | None:
        """The memory of a peer that an address lies in, if this rank has met it."""
        allocation = self._memory.find(address)
        rank = rank_of(address)
        return None if allocation is None or rank is None else self._peers.get((rank, allocation.lo - data_base(rank)))

    def _piece_of(self, rank: int, theirs: _Brought) -> Piece:
        """A peer's piece; the machine checks accesses to it from now on."""
        block = self._peer_place(rank, theirs.block, theirs.itemsize, theirs.backend, is_pad=False)
        pad = self._peer_place(rank, theirs.pad, PAD_WORD, theirs.backend, is_pad=True)
        return Piece(rank, block.nbytes, block, pad, None, theirs.backend, None)

    def _peer_place(self, rank: int, where: tuple[int, int, str], itemsize: int, backend: str, *, is_pad: bool) -> HeapPlace:
        offset, nbytes, name = where
        known = self._peers.get((rank, offset))
        if known is None or known.nbytes != nbytes:
            known = self._peers[rank, offset] = HeapPlace(rank, offset, nbytes, name)
            allocation = self._memory.register_range(
                data_base(rank) + offset, nbytes, name=name, rank=rank, symmetric=True, itemsize=itemsize
            )
            allocation.foreign, allocation.is_pad = backend, is_pad
            weakref.finalize(known, _unregister, weakref.ref(self._memory), allocation).atexit = False
        return known


def _unregister(memory: weakref.ref[GuardedMemory], allocation: Allocation) -> None:
    alive = memory()
    if alive is not None:
        alive.unregister(allocation)


class ProcessMeetings(Meetings):
    """Operators that ranks do together. Each rank computes what all of them would, from copies of the others' tensors.

    They wait for the current stream, as collectives of ``torch.distributed`` on CPU tensors do, and hold the host.
    """

    def __init__(self, world: CpuWorld) -> None:
        super().__init__()
        self._world = world

    def join(self, rank: RankContext, key: Hashable, team: Team, group_name: str, part: Part, run: Run) -> None:
        what = f"{part.name} of ranks {list(team.ranks)}"
        rank.synchronize(rank.stream, what)
        called = part.describe()
        said = self._world.gather_among(team.ranks, (part.call, called), what)
        for other, theirs in zip(team.ranks, said, strict=True):
            if not isinstance(theirs, tuple) or theirs[0] != part.call:
                raise mismatch(rank.rank, called, other, theirs[1] if isinstance(theirs, tuple) else "something else", team.ranks)
        parts: list[Any] = [None] * team.size
        dist.all_gather_object(parts, pytree.tree_map_only(torch.Tensor, _Copy, part.tensors), group=_process_group(group_name))
        parts = pytree.tree_map_only(_Copy, _Copy.tensor, parts)
        parts[team.index] = part.tensors
        with torch.no_grad():
            run(parts)
        self._world.machine.memory.touch_all()


class _Copy:
    """A tensor as its bytes, which travel whatever its dtype is."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._bytes = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).numpy()
        self._dtype, self._shape = tensor.dtype, tuple(tensor.shape)

    def tensor(self) -> torch.Tensor:
        """A tensor with the same elements."""
        return torch.from_numpy(self._bytes.copy()).view(self._dtype).view(self._shape)


def _process_group(group_name: str) -> Any:
    """torch's group of a name; that of all ranks for a name that only torch's symmetric memory knows."""
    try:
        return c10d._resolve_process_group(group_name)  # type: ignore[arg-type]
    except Exception:
        return c10d.group.WORLD
