"""Groups by name, and the rendezvous of their ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from ...errors import SymmetricMemoryError
from ...runtime.team import Team, find_team
from ..context import RankContext
from .allocations import Members
from .handle import SymmetricMemory

_GROUPS = "torch symmetric memory: groups"

_resolve: Any = c10d._resolve_process_group


def team_of(rank: RankContext, group_name: str) -> Team:
    """The ranks of a group by its name. Raises SymmetricMemoryError for a name that no group of this rank has."""
    known = rank.workspaces.setdefault(_GROUPS, {})
    if group_name in known:
        return known[group_name]
    try:
        group = _resolve(group_name)
    except Exception:
        raise SymmetricMemoryError(
            f"rank {rank.rank} is in no process group of the name {group_name!r}; pass the group_name of a group that it is in, after "
            "torch.distributed.init_process_group"
        ) from None
    return find_team(group, "torch's symmetric memory")


def set_group_info(rank: RankContext, group_name: str, group_rank: int, world_size: int, store: Any) -> None:
    """A group under a name that torch.distributed does not know: all ranks, for nothing else says which."""
    try:
        _resolve(group_name)
    except Exception:
        if (group_rank, world_size) != (rank.rank, rank.world_size):
            raise SymmetricMemoryError(
                f"set_group_info: group {group_name!r} of {world_size} ranks is no process group, and the world has {rank.world_size}; "
                "make it by torch.distributed.new_group"
            ) from None
        rank.workspaces.setdefault(_GROUPS, {})[group_name] = Team(rank.rank, tuple(range(world_size)))


def rendezvous(rank: RankContext, tensor: torch.Tensor, group_name: str | None, what: str) -> Members:
    """Meet the group's ranks. Raises NotSymmetricError for other memory, and SymmetricMemoryError without a group."""
    allocations = rank.simulation.symmetric_memory
    piece = allocations.require(tensor, what)
    name = group_name if group_name is not None else piece.group_name
    if name is None:
        raise SymmetricMemoryError(f"{what}: no group is given, and none was given when the tensor was allocated; pass the group")
    return allocations.rendezvous(rank, piece, name, team_of(rank, name))


def handle_of(rank: RankContext, tensor: torch.Tensor, group_name: str | None, what: str) -> SymmetricMemory:
    """The handle of the group that a tensor's memory is shared with."""
    members = rendezvous(rank, tensor, group_name, what)
    return SymmetricMemory(rank, rank.simulation.symmetric_memory.require(tensor, what), members, tensor)
