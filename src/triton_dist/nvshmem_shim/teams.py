"""Teams as NVSHMEM numbers them: three that always exist, and those that a rank has split off."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..errors import InvalidArgumentError
from ..runtime.team import Team
from ..runtime.world import World, require_world

FIRST_SPLIT_TEAM = 3
"""Handle of the first team that is split off; handles count up in the order of the calls, alike on all ranks."""

TEAM_INVALID = -1


class Teams(enum.IntEnum):
    """Handles of the teams that always exist. A node's ranks are those with direct pointers to each other."""

    TEAM_INVALID = TEAM_INVALID
    TEAM_WORLD = 0
    TEAM_SHARED = 1
    TEAM_NODE = 2


@dataclass
class TeamConfig:
    """Accepted where NVSHMEM takes one; there is nothing to configure."""

    version: int = 2
    num_contexts: int = 0


def _split_teams(world: World) -> list[tuple[int, ...] | None]:
    return world.workspaces.setdefault("nvshmem teams", [])


def ranks_of_team(team: int, what: str) -> tuple[int, ...]:
    """World ranks of a team, in its order. Raises InvalidArgumentError for a handle that this rank does not have."""
    world = require_world(what)
    number = int(team)
    if number == Teams.TEAM_WORLD:
        return tuple(range(world.world_size))
    if number in (Teams.TEAM_SHARED, Teams.TEAM_NODE):
        first = world.node * world.local_world_size
        return tuple(range(first, first + world.local_world_size))
    splits = _split_teams(world)
    ranks = splits[number - FIRST_SPLIT_TEAM] if FIRST_SPLIT_TEAM <= number < FIRST_SPLIT_TEAM + len(splits) else None
    if ranks is None:
        raise InvalidArgumentError(
            f"{what}: rank {world.rank} has no team {team!r}; it has 0 (world), 1 (shared), 2 (node) and those that it split off"
        )
    return ranks


def find(team: int, what: str) -> Team:
    """The team as ``triton_dist`` takes it. Raises InvalidArgumentError where this rank is not a member."""
    ranks, rank = ranks_of_team(team, what), require_world(what).rank
    if rank not in ranks:
        raise InvalidArgumentError(f"{what}: rank {rank} is not in team {team!r} of ranks {list(ranks)}")
    return Team(ranks.index(rank), ranks)


def new_team(ranks: tuple[int, ...], what: str) -> int:
    """Give a new team its handle; all ranks of the parent call it. TEAM_INVALID on a rank that is not a member."""
    world = require_world(what)
    splits = _split_teams(world)
    splits.append(ranks if world.rank in ranks else None)
    return FIRST_SPLIT_TEAM + len(splits) - 1 if world.rank in ranks else TEAM_INVALID


def translate(source: int, index: int, destination: int) -> int:
    """The place in team ``destination`` of the rank at place ``index`` of team ``source``; -1 if it is not a member."""
    ranks, others = ranks_of_team(source, "team_translate_pe"), ranks_of_team(destination, "team_translate_pe")
    if not 0 <= index < len(ranks) or ranks[index] not in others:
        return TEAM_INVALID
    return others.index(ranks[index])
