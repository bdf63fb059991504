"""What an operator needs to know of the ranks that it runs on, and the memory that it keeps between calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import CaptureError
from ..runtime.world import ranks_of_group, require_world


@dataclass(frozen=True)
class Team:
    """The ranks of a group. index: this rank's place among them; ranks: their world ranks, in group order."""

    index: int
    ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


def find_team(group: object, what: str) -> Team:
    """The ranks of a ``torch.distributed`` group; None is all ranks. Raises InvalidArgumentError, NotInitializedError."""
    ranks = ranks_of_group(group, what)
    return Team(ranks.index(require_world(what).rank), ranks)


def workspace(what: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """The memory of an operator for this rank, stream and ``key``, made by ``make`` at the first call and kept as long as the world.

    Calls of one operator on one stream follow each other, so they can share it; other streams have their own.
    Raises CaptureError where it would have to be made while the stream is captured into a CUDA graph.
    """
    context = require_world(what)
    full_key = (what, context.stream, key)
    if full_key not in context.workspaces:
        if context.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise CaptureError(
                f"{what}: the first call with these shapes on this stream allocates memory on all ranks, which a CUDA graph "
                "can't record; call it once on the stream before, and capture on the same one: torch.cuda.graph(graph, stream=stream)"
            )
        context.workspaces[full_key] = make()
    return context.workspaces[full_key]


def world_ranks_tensor(team: Team, device: torch.device) -> torch.Tensor:
    """The team's world ranks, int32, for a kernel that notifies its peers."""
    return torch.tensor(team.ranks, dtype=torch.int32, device=device)
