"""What an operator needs to know of the ranks that it runs on, and the memory that it keeps between calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InvalidArgumentError
from ..runtime.world import require_world


@dataclass(frozen=True)
class Team:
    """The ranks of a group. index: this rank's place among them; ranks: their world ranks, in group order."""

    index: int
    ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.ranks)


def find_team(group: object, what: str) -> Team:
    """The ranks of a ``torch.distributed`` group; None is all ranks. Raises InvalidArgumentError, NotInitializedError."""
    context = require_world(what)
    if group is None:
        return Team(context.rank, tuple(range(context.world_size)))
    import torch.distributed as dist

    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgumentError(f"{what}: group={group!r} must be a torch.distributed process group that this rank is in, or None")
    ranks = tuple(dist.get_process_group_ranks(group))
    return Team(ranks.index(context.rank), ranks)


def workspace(what: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """The memory of an operator for this rank, stream and ``key``, made by ``make`` at the first call and kept as long as the world.

    Calls of one operator on one stream follow each other, so they can share it; other streams have their own.
    """
    context = require_world(what)
    full_key = (what, context.stream, key)
    if full_key not in context.workspaces:
        context.workspaces[full_key] = make()
    return context.workspaces[full_key]


def world_ranks_tensor(team: Team, device: torch.device) -> torch.Tensor:
    """The team's world ranks, int32, for a kernel that notifies its peers."""
    return torch.tensor(team.ranks, dtype=torch.int32, device=device)
