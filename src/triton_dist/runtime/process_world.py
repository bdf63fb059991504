"""What the symmetric heap of processes asks of its surroundings: the world that it belongs to, and the memory that is mapped for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from .cuda.blocks import Block


class ProcessWorld(Protocol):
    """What the heap asks of the world that it belongs to. See ``runtime.cuda.world`` and ``sim.processes.world``."""

    rank: int
    world_size: int

    @property
    def device(self) -> torch.device: ...

    @property
    def streams(self) -> Any: ...

    def gather(self, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank."""

    def gather_among(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """The ``value`` of each of ``ranks``, in their order; called by these only."""

    def publish_blocks(self, blocks: Iterable[Block]) -> None:
        """The heap's blocks have changed."""

    def synchronize(self, stream: Any = None, why: Any = "synchronize()") -> None: ...


class Slots(Protocol):
    """The mapped address map of a process."""

    def close(self) -> None: ...
