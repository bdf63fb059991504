"""The symmetric heap of ranks that are CPU processes: the meetings of ``runtime.process_heap`` over shared memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ...errors import NotSymmetricError
from ...runtime.cuda.blocks import Block, leave_behind
from ...runtime.offsets import OffsetAllocator
from ...runtime.process_heap import ProcessHeap
from ...runtime.team import Team
from ..address_space import PAGE
from ..heap import POISON_LIMIT
from ..stream_barrier import StreamBarrier
from .segments import Segments
from .teams import ProcessTeams

if TYPE_CHECKING:
    from .world import CpuWorld


class CpuHeap(ProcessHeap):
    """This process's view of all heaps. Made by all ranks together.

    size: bytes of each rank's heap, the same on all ranks. Memory is taken from the system when it is first written.
    Raises InvalidArgumentError, HeapFullError, AddressInUseError: the same on every rank.
    """

    def __init__(self, world: CpuWorld, size: int, segments: Segments) -> None:
        self._segments = segments
        self._cpu_world = world
        self.foreign: weakref.WeakSet[Block] = weakref.WeakSet()
        """Blocks of torch's symmetric memory, which other ranks may have elsewhere."""
        super().__init__(world, size, PAGE, lambda rounded: segments.map_heaps(rounded, world.gather))
        for start, end in self._offsets.free_ranges(0, self.size):
            segments.release(start, end - start)  # what an earlier world left there

    def close(self) -> None:
        """Tensors that still exist stay readable, and are UseAfterFreeError wherever this package gets them."""
        leave_behind(list(self._blocks))

    def meet(self, team: Team, kind: str, asked: str, request: Any) -> None:
        """Meet the ranks of a team for a call that is not the heap's own. Raises AllocationMismatchError where they make others."""
        self._meet(team, kind, asked, request=request)

    def lookup(self, address: int) -> Block | None:
        found = super().lookup(address)
        pieces: Any = self._cpu_world.simulation.symmetric_memory
        return pieces.peer_place(address) if found is None and pieces is not None else found

    def find(self, tensor: torch.Tensor, what: str) -> Block:
        block = super().find(tensor, what)
        if block in self.foreign or not isinstance(block, Block):
            raise NotSymmetricError(
                f"{what} of {block.name!r}, which is torch's symmetric memory: on CPU processes this package's functions do not take it; "
                "allocate it by triton_dist.symm_empty"
            )
        return block

    def _initialize(self, new: torch.Tensor, zero: bool) -> bool:
        """As in the simulator: tensors that are not zeroed begin as 0xFF (NaN, or -1), so that using them unwritten is noticed.

        The ranks meet in any case: a peer must not write before this rank has given the memory of an earlier tensor back.
        """
        if zero or new.numel() <= POISON_LIMIT:
            new.fill_(0 if zero else 0xFF)
        return True

    def _clear_words(self, number: int) -> None:
        super()._clear_words(number)
        teams = self._cpu_world.machine.teams
        if isinstance(teams, ProcessTeams):
            teams.forget(number)

    def _given_back(self, block: Block) -> None:
        self._segments.release(block.offset, OffsetAllocator.padded(block.nbytes))

    def _describe_ordinary(self, tensor: torch.Tensor) -> str:
        return "is in ordinary memory; allocate it by triton_dist.symm_empty or symm_zeros"

    def _adopt_ordinary(self, team: Team, tensor: torch.Tensor, name: str | None, asked: str) -> torch.Tensor:
        problem = NotSymmetricError(
            f"symm_adopt: CPU processes have no memory of torch's symmetric memory that they could adopt, and a tensor of shape "
            f"{list(tensor.shape)} {self._describe_ordinary(tensor)}"
        )
        self._meet(team, "adoption", asked, failure=problem)
        raise problem


class ProcessStreamBarrier(StreamBarrier):
    """A stream barrier whose words are allocated by all ranks together, when the world is made."""

    def __init__(self, world: CpuWorld) -> None:
        super().__init__(world.heap, world.world_size)  # type: ignore[arg-type]
        everyone = Team(world.rank, tuple(range(world.world_size)))
        words = world.heap.allocate(world, everyone, (world.world_size,), torch.int64, "barrier_all", zero=True)
        self._block: Any = world.heap.find(words, "barrier_all")
        self._buffers = [words]
