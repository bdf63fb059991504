"""Teams: allocation by some of the ranks, arenas, and the table in the context page."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.runtime.cuda.fake_driver import (
    FakeDriver,
)
from tests.runtime.cuda.fake_world import HEAP, FakeWorld, everyone, offset_of
from triton_dist import errors
from triton_dist.runtime.address_map import CONTEXT
from triton_dist.runtime.context_layout import (
    MAX_TEAMS,
    MEMBERS_PER_TEAM,
    SHMEM_BYTES,
    SHMEM_EPOCHS,
    TEAM_MEMBERS,
    TEAM_RECORD_BYTES,
    TEAM_TABLE,
)
from triton_dist.runtime.symmetric import address_of

MEBIBYTE = 1 << 20

FIRST = 3
"""The first number that is free: all ranks, those that share memory and those of the host have the ones before."""


def teams_allocate_on_their_own(fake: FakeDriver) -> None:
    """Even and odd ranks make different calls at the same time, at the same offsets of their heaps."""
    world = FakeWorld()
    rank, size = world.rank, world.world_size
    members = list(range(rank % 2, size, 2))
    team = triton_dist.make_team(members)
    assert (team.index, team.size, list(team.ranks), team.stride) == (rank // 2, len(members), members, 2)
    count = 3 if rank % 2 == 0 else 1
    tensors = [triton_dist.symm_zeros(1000 * (1 + rank % 2), torch.int32, group=team) for _ in range(count)]
    ordinary = triton_dist.symm_zeros(1000, torch.int32)
    assert len(set(everyone(offset_of(ordinary)))) == 1
    firsts = everyone(offset_of(tensors[0]))
    assert firsts[0] == firsts[2] and firsts[1] == firsts[3]
    following = members[(team.index + 1) % team.size]
    for tensor in tensors:
        triton_dist.symm_peer(tensor, following).fill_(rank + 1)
    dist.barrier()
    before = members[team.index - 1]
    assert all((tensor == before + 1).all() for tensor in tensors)
    assert (ordinary == 0).all()
    with pytest.raises(errors.UnreachablePeerError, match=rf"exists on ranks \[{members[0]}, {members[1]}\], not on rank {1 - rank % 2}"):
        triton_dist.symm_peer(tensors[0], 1 - rank % 2)
    with pytest.raises(errors.NotInTeamError, match=f"rank {rank} is not in the team"):
        triton_dist.symm_empty(3, group=triton_dist.Team(0, (1 - rank % 2,)))
    with pytest.raises(errors.NotInTeamError, match="only its members"):
        triton_dist.make_team([(rank + 1) % size])


def groups_are_teams(fake: FakeDriver) -> None:
    """Process groups and dimensions of a DeviceMesh, without make_team; overlapping ones, too."""
    world = FakeWorld()
    rank = world.rank
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    row, column = (triton_dist.symm_empty(10, group=(mesh, name)) for name in ("rows", "columns"))
    assert world.heap.lookup(address_of(row)).ranks == (rank % 2, rank % 2 + 2)
    assert world.heap.lookup(address_of(column)).ranks == (rank // 2 * 2, rank // 2 * 2 + 1)
    assert triton_dist.symm_empty(10, group=mesh["rows"]).numel() == 10
    with pytest.raises(errors.InvalidArgumentError, match="2 dimensions.*name of one"):
        triton_dist.symm_empty(10, group=mesh)
    with pytest.raises(errors.InvalidArgumentError, match="no dimension 'depth'"):
        triton_dist.symm_empty(10, group=(mesh, "depth"))
    group = dist.new_group([0, 1, 3])
    if rank != 2:
        assert offset_of(triton_dist.symm_empty(10, group=group)) not in (offset_of(row), offset_of(column))
    else:
        with pytest.raises(errors.NotInTeamError, match="rank 2 is not in the process group"):
            triton_dist.symm_empty(10, group=group)
    with pytest.raises(errors.NotInTeamError) if rank > 1 else pytest.raises(errors.InvalidArgumentError, match="process group"):
        triton_dist.symm_empty(10, group=triton_dist.Team(0, (0, 1)) if rank > 1 else [0, 1])


def teams_check_among_themselves(fake: FakeDriver) -> None:
    world = FakeWorld()
    if world.rank == 3:
        return
    team = triton_dist.make_team([2, 0, 1])
    with pytest.raises(errors.AllocationMismatchError, match=r"rank 1 asked for .*int8\[2\], but rank 2 asked for .*int8\[1\]"):
        triton_dist.symm_empty(1 + (world.rank == 1), torch.int8, group=team)
    with pytest.raises(errors.InvalidArgumentError, match=r"rank 0: shape \(-1,\) has a negative size"):
        triton_dist.symm_empty(-1 if world.rank == 0 else 1, torch.int8, group=team)
    if world.rank != 1:
        # Two ranks, each in a call of another team.
        theirs = f"rank {world.rank} made a collective call .* but rank {2 - world.rank} made .*same order"
        with pytest.raises(errors.AllocationMismatchError, match=theirs):
            triton_dist.symm_empty(1, group=triton_dist.Team(0, (0, 2)) if world.rank == 0 else triton_dist.Team(2, (0, 1, 2)))


def arenas_are_set_aside(fake: FakeDriver) -> None:
    world = FakeWorld()
    low = triton_dist.symm_empty(MEBIBYTE, torch.int8)
    team = triton_dist.make_team([0, 1] if world.rank < 2 else [2, 3], arena_size=4 * MEBIBYTE)
    # The rest goes to everyone, but not what is set aside.
    rest = triton_dist.symm_empty(HEAP - 6 * MEBIBYTE, torch.int8)
    with pytest.raises(errors.HeapFullError, match="no room for"):
        triton_dist.symm_empty(2 * MEBIBYTE, torch.int8)
    inside = triton_dist.symm_empty(3 * MEBIBYTE, torch.int8, group=team)
    with pytest.raises(errors.HeapFullError, match=r"arena_size=") as caught:
        triton_dist.symm_empty(3 * MEBIBYTE, torch.int8, group=team)
    assert f"ranks {list(team.ranks)} all have free" in str(caught.value)
    # Beyond its arena a team takes what is free.
    beyond = triton_dist.symm_empty(900_000, torch.int8, group=team)
    more = triton_dist.symm_empty(900_000, torch.int8, group=team)
    places = sorted((offset_of(tensor), tensor.numel()) for tensor in (low, rest, inside, beyond, more))
    assert all(start + size < after for (start, size), (after, _) in zip(places, places[1:], strict=False))
    del inside, beyond, more, rest
    with pytest.raises(errors.HeapFullError, match="no room for an arena"):
        triton_dist.make_team(team.ranks, arena_size=1 << 30)
    with pytest.raises(errors.InvalidArgumentError, match="arena_size=-1"):
        triton_dist.make_team(team.ranks, arena_size=-1)
    triton_dist.free_team(team)
    assert triton_dist.symm_empty(HEAP - 3 * MEBIBYTE, torch.int8).numel()


def teams_are_freed(fake: FakeDriver) -> None:
    world = FakeWorld()
    if world.rank > 1:
        return
    published: list[str] = []
    world.publish_blocks = lambda blocks: published.__setitem__(slice(None), [block.name for block in blocks])  # type: ignore[method-assign]
    team = triton_dist.make_team([0, 1], arena_size=MEBIBYTE)
    tensor = triton_dist.symm_empty(10, group=team)
    meetings = [name for name in published if name.startswith("arrived_at")]
    assert meetings == [f"arrived_at_barrier_of_team_{number}" for number in range(FIRST + 1)]
    words = world.heap.bytes_at(world.heap.words_address, SHMEM_BYTES)
    words.fill_(7)
    if world.rank == 1:
        del tensor
    with pytest.raises(errors.InvalidArgumentError, match="rank 0 refers to 'tensor'"):
        triton_dist.free_team(team)
    tensor = None
    triton_dist.free_team(team)
    assert world.words(TEAM_TABLE + FIRST * TEAM_RECORD_BYTES, 4) == [0] * 4
    cleared = [*range(FIRST * 512, FIRST * 512 + 512), *range(SHMEM_EPOCHS + 4 * FIRST, SHMEM_EPOCHS + 4 * FIRST + 4)]
    assert (words == 0).nonzero().flatten().tolist() == cleared, "the words of its barriers, and no others"
    assert world.heap._offsets.free_ranges(0, HEAP) == [(0, HEAP)]
    with pytest.raises(errors.InvalidArgumentError, match="as long as the world"):
        triton_dist.free_team(triton_dist.Team(world.rank, tuple(range(world.world_size))))


def kernels_can_read_the_teams(fake: FakeDriver) -> None:
    """Records of the context page: start, stride, size, index, and members, under a number that a team's ranks agree on."""
    world = FakeWorld()
    rank, size = world.rank, world.world_size

    def record(number: int) -> list[int]:
        return world.words(TEAM_TABLE + number * TEAM_RECORD_BYTES, 4)

    def members(number: int, count: int) -> list[int]:
        place = CONTEXT + TEAM_MEMBERS + number * MEMBERS_PER_TEAM
        return world.heap.bytes_at(place, count).tolist()

    for number in range(FIRST):
        assert record(number) == [0, 1, size, rank] and members(number, size) == list(range(size))
    assert triton_dist.team_number() == 0
    if rank in (1, 3):
        team = triton_dist.make_team([3, 1])
        assert triton_dist.team_number(team) == FIRST
        assert record(FIRST) == [3, -2, 2, 0 if rank == 3 else 1] and members(FIRST, 2) == [3, 1]
    if rank != 2:
        triton_dist.make_team([0, 1, 3])  # not evenly spaced; FIRST is taken on ranks 1 and 3
        assert record(FIRST + 1) == [0, 0, 3, (0, 1, 0, 2)[rank]] and members(FIRST + 1, 3) == [0, 1, 3]
    triton_dist.make_team(range(size))
    if rank < 2:
        team = triton_dist.make_team([0, 1])
        assert record(FIRST + 2) == [0, 1, 2, rank] and triton_dist.team_number(team) == FIRST + 2
    with pytest.raises(errors.InvalidArgumentError, match=r"team_number: the team of ranks .* has no number; make it by"):
        triton_dist.team_number(triton_dist.Team(0, (rank,)))
    assert record(FIRST + 3) == [0] * 4
    assert everyone([bin(world.heap._table.free).count("1")]) == [[MAX_TEAMS - taken] for taken in (5, 6, 3, 5)]


SCENARIOS = [
    teams_allocate_on_their_own,
    groups_are_teams,
    teams_check_among_themselves,
    arenas_are_set_aside,
    teams_are_freed,
    kernels_can_read_the_teams,
]
