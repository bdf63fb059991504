"""The symmetric heap on CUDA: what the driver maps, and memory of other libraries that is mapped a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...errors import TritonDistError
from ..context_layout import MEMBERS_PER_TEAM
from ..process_heap import TEAMS_ALWAYS_THERE, ProcessHeap, view_of_block
from ..team import Team
from ..wait_board import BlockName
from . import driver
from .adoption import adopt_memory, describe_ordinary, inspect
from .mapping import AddressMap

if TYPE_CHECKING:
    from .world import CudaWorld


class CudaHeap(ProcessHeap):
    """This process's view of all heaps on the GPUs. Made by all ranks together.

    size: bytes of each rank's heap, the same on all ranks; rounded up to what the driver maps.
    Raises InvalidArgumentError, HeapFullError, AddressInUseError, UnreachablePeerError: the same on every rank.
    """

    def __init__(self, world: CudaWorld, size: int) -> None:
        device = world.device.index or 0
        self._cuda_world = world
        super().__init__(
            world,
            size,
            driver.granularity(device),
            lambda rounded: AddressMap(device, world.rank, world.world_size, rounded, world.gather),
        )

    def _publish(self) -> None:
        """Tensors, and the words in which the ranks of each team meet: the wait board names them."""
        size = 4 * MEMBERS_PER_TEAM
        numbers = sorted({*range(TEAMS_ALWAYS_THERE), *self.team_numbers()})
        words = [BlockName(f"arrived_at_barrier_of_team_{number}", self.words_offset + number * size, size) for number in numbers]
        self._cuda_world.publish_blocks([*self._blocks, *words])

    def _describe_ordinary(self, tensor: torch.Tensor) -> str:
        return describe_ordinary(tensor, self._world.device)

    def _adopt_ordinary(self, team: Team, tensor: torch.Tensor, name: str | None, asked: str) -> torch.Tensor:
        world = self._cuda_world
        found = problem = None
        try:
            found = inspect(tensor, world.device)
            asked += f", {found.skip} bytes into an allocation of {found.size}"
        except TritonDistError as error:
            problem = error

        try:
            state, calls = self._meet(team, "adoption", asked, failure=problem)
            if found is None:  # its problem was raised on all ranks
                raise TritonDistError("symm_adopt: the tensor's memory was not found")
            above = [[(self._rounded(max(start, self._words.stop)), end) for start, end in call.free] for call in calls]
            above = [[(start, end) for start, end in ranges if start < end] for ranges in above]
            offset, undo = adopt_memory(found, world, team.ranks, above, self._unit)
        finally:
            if found is not None:
                found.release()
        span = self._rounded(found.size)
        self._offsets.take(offset, span)
        block = self._add(state, offset, found.size, span, name, asked)
        # Its first owner must not give the memory to others while the adopted tensor lives.
        block.release, block.keeps = undo.run, tensor
        return view_of_block(block.storage(world.rank, world.device), tensor, found.skip)
