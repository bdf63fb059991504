"""Teams: some of the ranks, in an order, that communicate and allocate among themselves."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError, NotInTeamError
from .context_layout import MAX_TEAMS
from .world import require_world

TEAMS_OF_NVSHMEM = 3
"""Teams with the same number here and in NVSHMEM: all ranks, those that share memory, those of one host."""


@dataclass(frozen=True)
class Team:
    """Ranks that work together. Two teams of the same ranks in the same order are one team.

    index: this rank's place among them. ranks: their world ranks, in team order.
    """

    index: int
    ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def stride(self) -> int | None:
        """World ranks from one member to the next; None if that is not the same everywhere. 1 for a team of one rank."""
        return stride_of(self.ranks)

    @property
    def others(self) -> list[int]:
        """Places of the other ranks, the next one first: where all send in this order, every rank sends to another one at any time."""
        return [(self.index + distance) % self.size for distance in range(1, self.size)]


def stride_of(ranks: Sequence[int]) -> int | None:
    """The distance from each rank to the next one, or None if the ranks are not evenly spaced."""
    if len(ranks) == 1:
        return 1
    steps = {after - before for before, after in zip(ranks, ranks[1:], strict=False)}
    return steps.pop() if len(steps) == 1 else None


def find_team(group: object, what: str) -> Team:
    """The team that ``group`` stands for, which this rank has to be in.

    group: None for all ranks; a ``Team``; a ``torch.distributed`` process group; a DeviceMesh with one dimension, or (mesh, name of a
    dimension). what: the function that asks, for the messages. Raises InvalidArgumentError, NotInTeamError, NotInitializedError.
    """
    world = require_world(what)
    return _all_ranks(world.rank, world.world_size) if group is None else _checked(_ranks_of(group, what), what)


@functools.lru_cache
def _all_ranks(rank: int, world_size: int) -> Team:
    return Team(rank, tuple(range(world_size)))


def make_team(members: object, *, arena_size: int = 0) -> Team:
    """Make the team of ``members``, with a part of the symmetric heap of its own. Every member calls it, and nobody else.

    members: what ``find_team`` takes (a process group, a DeviceMesh dimension), or a sequence of world ranks.
    arena_size: bytes of each member's heap to set aside for tensors with ``group=`` this team; it can always have them, and nobody else
        can. By default none: the team then shares the heap with all others, as it does beyond its ``arena_size``.

    Tensors are allocated for a team by ``symm_empty(..., group=team)``, a call of its members only, at the same offset in their heaps;
    what other teams do does not matter, except that members make their collective calls in an order that suits all their teams.
    Making a team again gives the same one, with the larger arena. Disjoint teams may be made at the same time.
    Raises NotInTeamError on a rank that is not a member; HeapFullError, AllocationMismatchError on all members.
    """
    world = require_world("make_team")
    if members is None or isinstance(members, Team) or not _is_sequence_of_ranks(members):
        team = find_team(members, "make_team")
    else:
        team = _checked(_world_ranks(members, world.world_size), "make_team")  # type: ignore[arg-type]
    if not isinstance(arena_size, int) or arena_size < 0:
        raise InvalidArgumentError(f"make_team: arena_size={arena_size!r} must be a number of bytes, 0 or more")
    world.heap.make_team(world, team, arena_size)
    return team


def team_number(group: object = None) -> int:
    """The number by which kernels name a team: what the functions of ``libshmem_device`` take as ``team``; 0 for all ranks.

    group: what ``find_team`` takes; the team was made by ``make_team``. The same number on all its ranks. Raises InvalidArgumentError for
    a team that was not made, or that has no number because there are too many teams.
    """
    world = require_world("team_number")
    team = find_team(group, "team_number")
    number = world.heap.team_number(team)
    if number is None:
        raise InvalidArgumentError(
            f"team_number: the team of ranks {list(team.ranks)} has no number; make it by triton_dist.make_team first, and free teams that "
            f"are not needed, since a rank has numbers for {MAX_TEAMS} teams"
        )
    if number >= TEAMS_OF_NVSHMEM and getattr(world, "uses_nvshmem", False):
        raise InvalidArgumentError(
            f"team_number: the team of ranks {list(team.ranks)} has the number {number} here, but NVSHMEM's device functions know the "
            'teams of all ranks and of one host only; call initialize without shmem="nvshmem" for kernels that take other teams'
        )
    return number


def free_team(team: Team) -> None:
    """Give a team's part of the symmetric heap back. Every member calls it; no rank may have a tensor of the team any more.

    Waits for this rank's device work, and drops what operators keep for the team between calls.
    Raises InvalidArgumentError, naming a rank and a tensor that lives, and NotInTeamError.
    """
    world = require_world("free_team")
    team = find_team(team, "free_team")
    if team.ranks == tuple(range(world.world_size)):
        raise InvalidArgumentError("free_team: the team of all ranks lives as long as the world; triton_dist.finalize() ends it")
    world.synchronize(why="free_team()")
    for full_key in list(world.workspaces):
        key = full_key[-1]  # type: ignore[index]
        if key == team.ranks or isinstance(key, tuple) and key[:1] == (team.ranks,):
            del world.workspaces[full_key]
    world.heap.free_team(world, team)


def without_mesh(group: object, what: str) -> Any:
    """``group``, or the process group of the mesh dimension that it names; what functions of ``torch.distributed`` and graphs can take.

    group: what ``find_team`` takes. Returns None, a ``Team`` or a process group. Raises InvalidArgumentError, NotInTeamError.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    if group is None or isinstance(group, Team | dist.ProcessGroup):
        return group
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise InvalidArgumentError(
                f"{what}: the DeviceMesh has {group.ndim} dimensions {group.mesh_dim_names}; pass (mesh, name of one of them)"
            )
        return _dimension(group, 0, what)
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return _dimension(group[0], group[1], what)
    raise InvalidArgumentError(
        f"{what}: group={group!r} must be a torch.distributed process group that this rank is in, a Team (triton_dist.make_team), "
        "a DeviceMesh with one dimension, (mesh, name of a dimension), or None"
    )


def _ranks_of(group: object, what: str) -> tuple[int, ...]:
    """World ranks of anything but None that ``find_team`` takes."""
    import torch.distributed as dist

    if isinstance(group, int) and group == dist.GroupMember.NON_GROUP_MEMBER:
        raise NotInTeamError(f"{what}: rank {require_world(what).rank} is not in the process group that new_group made")
    found = without_mesh(group, what)
    return found.ranks if isinstance(found, Team) else tuple(dist.get_process_group_ranks(found))


_looked_at: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
"""Dimensions of meshes whose order was compared with that of their groups, by mesh."""


def _dimension(mesh: Any, name: object, what: str) -> Any:
    """The process group of one dimension of a mesh."""
    if mesh.get_coordinate() is None:
        raise NotInTeamError(f"{what}: rank {require_world(what).rank} is not in the DeviceMesh of ranks {mesh.mesh.flatten().tolist()}")
    names = mesh.mesh_dim_names or ()
    if not (isinstance(name, int) and 0 <= name < mesh.ndim) and name not in names:
        raise InvalidArgumentError(f"{what}: the DeviceMesh has no dimension {name!r}; its dimensions are {names or mesh.ndim}")
    group, seen = mesh.get_group(name), _looked_at.setdefault(mesh, set())
    if name not in seen:
        _check_order(mesh, name if isinstance(name, int) else names.index(name), group, what)
        seen.add(name)
    return group


def _check_order(mesh: Any, dimension: int, group: Any, what: str) -> None:
    """Raises InvalidArgumentError where a mesh counts its ranks otherwise than its process group, which sorts them."""
    import torch.distributed as dist

    line = [slice(None) if place == dimension else index for place, index in enumerate(mesh.get_coordinate())]
    in_mesh, in_group = mesh.mesh[tuple(line)].tolist(), dist.get_process_group_ranks(group)
    if in_mesh != in_group:
        raise InvalidArgumentError(
            f"{what}: the DeviceMesh has ranks in the order {in_mesh}, but their process group in the order {in_group}, so parts would go "
            f"to other ranks than the mesh says; make the mesh with ascending ranks, or pass triton_dist.make_team({in_mesh})"
        )


def _is_sequence_of_ranks(members: object) -> bool:
    return isinstance(members, (Sequence, range)) and not isinstance(members, str) and all(hasattr(item, "__index__") for item in members)


def _world_ranks(members: Sequence[int], world_size: int) -> tuple[int, ...]:
    ranks = tuple(operator.index(item) for item in members)
    if not ranks or len(set(ranks)) != len(ranks) or not all(0 <= rank < world_size for rank in ranks):
        raise InvalidArgumentError(f"make_team: members={list(ranks)} must be different ranks from 0 to {world_size - 1}, at least one")
    return ranks


def _checked(ranks: tuple[int, ...], what: str) -> Team:
    """The team of these ranks as this rank sees it."""
    world = require_world(what)
    if world.rank not in ranks:
        raise NotInTeamError(f"{what}: rank {world.rank} is not in the team of ranks {list(ranks)}; only its members may call this")
    if max(ranks) >= world.world_size:
        raise InvalidArgumentError(f"{what}: ranks {list(ranks)} are not all in this world of {world.world_size} ranks")
    return Team(ranks.index(world.rank), ranks)
