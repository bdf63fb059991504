"""What operators need of a team (``runtime.team``), and the memory that they keep between calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from ..runtime.team import Team, find_team
from ..runtime.world import require_world

__all__ = ["Team", "find_team", "workspace", "world_ranks_tensor"]


def workspace(what: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """The memory of an operator for this rank, stream and ``key``, made by ``make`` at the first call and kept as long as the world.

    Calls of one operator on one stream follow each other, so they can share it; other streams have their own.
    key: the team's ranks, or a tuple that begins with them: ``free_team`` drops the workspaces of its team.
    """
    context = require_world(what)
    full_key = (what, context.stream, key)
    if full_key not in context.workspaces:
        context.workspaces[full_key] = make()
    return context.workspaces[full_key]


def world_ranks_tensor(team: Team, device: torch.device) -> torch.Tensor:
    """The team's world ranks, int32, for a kernel that notifies its peers."""
    return torch.tensor(team.ranks, dtype=torch.int32, device=device)
