"""Teams by the numbers under which kernels know them, too: three that always exist, and those that a rank has split off."""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass

from ..errors import InvalidArgumentError
from ..runtime.team import Team, free_team, make_team, team_number
from ..runtime.world import World, require_world

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


def _split_teams(world: World) -> dict[int, Team]:
    return world.workspaces.setdefault("nvshmem teams", {})


def number_of(team: object, what: str) -> int:
    """The number of a team. Raises InvalidArgumentError for what is no handle of one."""
    try:
        return operator.index(team)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"{what}: {team!r} is not the handle of a team, such as Teams.TEAM_WORLD") from None


def ranks_of_team(team: int, what: str) -> tuple[int, ...]:
    """World ranks of a team, in its order. Raises InvalidArgumentError for a handle that this rank does not have."""
    world = require_world(what)
    number = number_of(team, what)
    if number == Teams.TEAM_WORLD:
        return tuple(range(world.world_size))
    if number in (Teams.TEAM_SHARED, Teams.TEAM_NODE):
        first = world.node * world.local_world_size
        return tuple(range(first, first + world.local_world_size))
    split = _split_teams(world).get(number)
    if split is None:
        raise InvalidArgumentError(
            f"{what}: rank {world.rank} has no team {team!r}; it has 0 (world), 1 (shared), 2 (node) and those that it split off"
        )
    return split.ranks


def find(team: int, what: str) -> Team:
    """The team as ``triton_dist`` takes it. Raises InvalidArgumentError where this rank is not a member."""
    ranks, rank = ranks_of_team(team, what), require_world(what).rank
    if rank not in ranks:
        raise InvalidArgumentError(f"{what}: rank {rank} is not in team {team!r} of ranks {list(ranks)}")
    return Team(ranks.index(rank), ranks)


def new_team(ranks: tuple[int, ...], what: str) -> int:
    """Make a team, if this rank is a member, and return its number; TEAM_INVALID on other ranks. Every member calls it."""
    world = require_world(what)
    if world.rank not in ranks:
        return TEAM_INVALID
    team = make_team(ranks)
    number = team_number(team)
    _split_teams(world)[number] = team
    return number


def destroy(team: int, what: str) -> None:
    """Give a team that was split off back; every member calls it. Raises InvalidArgumentError for any other."""
    split = _split_teams(require_world(what)).pop(number_of(team, what), None)
    if split is None:
        raise InvalidArgumentError(f"{what}: team {team!r} is not one that this rank split off")
    free_team(split)


def translate(source: int, index: int, destination: int) -> int:
    """The place in team ``destination`` of the rank at place ``index`` of team ``source``; -1 if it is not a member."""
    ranks, others = ranks_of_team(source, "team_translate_pe"), ranks_of_team(destination, "team_translate_pe")
    if not 0 <= number_of(index, "team_translate_pe, place") < len(ranks) or ranks[index] not in others:
        return TEAM_INVALID
    return others.index(ranks[index])
