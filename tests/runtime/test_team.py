"""Teams on simulated ranks: from what they are made, who may use them, and their part of the heap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import triton_dist
from triton_dist.errors import (
    AllocationMismatchError,
    DeadlockError,
    HeapFullError,
    InvalidArgumentError,
    NotInTeamError,
    NotSymmetricError,
    UnreachablePeerError,
)
from triton_dist.ops import ag_gemm
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.runtime.team import Team, find_team, stride_of

MEBIBYTE = 1 << 20
ROOT = Path(__file__).parents[2]


def offset(tensor):
    return tensor.data_ptr() % (1 << 39)


def test_strides():
    assert [stride_of(ranks) for ranks in ((4,), (0, 1, 2), (1, 3, 5), (6, 3, 0), (0, 1, 3))] == [1, 1, 2, -3, None]


def test_what_a_team_is_made_from():
    def fn():
        dist.init_process_group("gloo")
        rank = triton_dist.rank()
        mesh = dist.init_device_mesh("cpu", (2, 3), mesh_dim_names=("outer", "inner"))
        row = find_team((mesh, "inner"), "test")
        assert row == find_team(mesh["inner"], "test") == find_team((mesh, 1), "test") == find_team(mesh.get_group("inner"), "test")
        assert row == triton_dist.make_team(range(rank // 3 * 3, rank // 3 * 3 + 3)) == find_team(row, "test")
        column = triton_dist.make_team((mesh, "outer"))
        return row, column, triton_dist.make_team(None)

    for rank, (row, column, everyone) in enumerate(triton_dist.simulate(fn, 6)):
        first = rank // 3 * 3
        assert row == Team(rank % 3, (first, first + 1, first + 2)) and row.stride == 1
        assert column == Team(rank // 3, (rank % 3, rank % 3 + 3)) and (column.size, column.stride) == (2, 3)
        assert everyone == Team(rank, tuple(range(6)))


def test_what_is_no_team():
    def fn():
        dist.init_process_group("gloo")
        mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("outer", "inner"))
        for wrong, text in ((mesh, "2 dimensions"), ((mesh, "depth"), "no dimension 'depth'"), ((mesh, 2), "no dimension 2")):
            with pytest.raises(InvalidArgumentError, match=text):
                triton_dist.symm_zeros(1, group=wrong)
        for wrong in ("inner", 3, object(), [0, 1]):
            with pytest.raises(InvalidArgumentError, match="must be a torch.distributed process group"):
                triton_dist.symm_zeros(1, group=wrong)
        for wrong in ([], [0, 0], [0, 2], [-1, 0]):
            with pytest.raises(InvalidArgumentError, match="different ranks from 0 to 1"):
                triton_dist.make_team(wrong)
        with pytest.raises(InvalidArgumentError, match="make_team: group='01' must be"):
            triton_dist.make_team("01")
        for wrong in (-1, 0.5, None):
            with pytest.raises(InvalidArgumentError, match="arena_size"):
                triton_dist.make_team([0, 1], arena_size=wrong)
        with pytest.raises(InvalidArgumentError, match="not all in this world of 2 ranks"):
            triton_dist.symm_zeros(1, group=Team(triton_dist.rank(), (0, 1, 5)))

    triton_dist.simulate(fn, 2)


def test_only_members_may_use_a_team():
    def fn():
        if triton_dist.rank() < 2:
            tensor = triton_dist.symm_zeros(4, group=triton_dist.make_team([1, 0]))
            with pytest.raises(UnreachablePeerError, match="not on rank 2"):
                triton_dist.symm_peer(tensor, 2)
            return
        for call in (
            lambda: triton_dist.make_team([0, 1]),
            lambda: triton_dist.symm_zeros(4, group=Team(0, (1, 0))),
            lambda: triton_dist.free_team(Team(0, (1, 0))),
            lambda: barrier(Team(0, (1, 0))),
        ):
            with pytest.raises(NotInTeamError, match=r"rank 2 is not in the team of ranks \[\d, \d\]; only its members may call this"):
                call()

    triton_dist.simulate(fn, 3)


def test_disjoint_teams_allocate_at_the_same_offsets():
    """In a process of its own: tensors of earlier tests that only some of the ranks have would lie in the way."""
    command = [sys.executable, "-c", f"from {__name__} import disjoint_teams; disjoint_teams()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def disjoint_teams():
    """Each is free to do what the other one does not."""

    def fn():
        rank = triton_dist.rank()
        team = triton_dist.make_team([0, 1] if rank < 2 else [3, 2])
        tensors = [triton_dist.symm_zeros(1000, torch.int32, group=team) for _ in range(1 + rank // 2)]
        for tensor in tensors:
            triton_dist.symm_peer(tensor, team.ranks[1 - team.index]).fill_(rank + 1)
        barrier(team)
        other = triton_dist.symm_zeros(1000, torch.int32)
        return offset(tensors[0]), offset(other), [tensor.unique().tolist() for tensor in tensors], other.sum().item()

    results = triton_dist.simulate(fn, 4)
    assert len({first for first, *_ in results}) == 1
    assert len({other for _, other, *_ in results}) == 1
    assert [values for _, _, values, _ in results] == [[[2]], [[1]], [[4]] * 2, [[3]] * 2]
    assert all(total == 0 for *_, total in results)


def test_operators_take_teams():
    def fn():
        rank = triton_dist.rank()
        team = triton_dist.make_team([0, 2] if rank % 2 == 0 else [3, 1])
        a = torch.full((16, 16), 1.0 + rank)
        result = ag_gemm(a, torch.eye(16), group=team)[::16, 0].tolist()
        barrier(team)
        triton_dist.free_team(team)  # with what the operators kept for it
        assert not triton_dist.runtime.world.require_world("test").workspaces
        return result

    assert triton_dist.simulate(fn, 4) == [[1, 3], [4, 2], [1, 3], [4, 2]]


def test_arenas():
    def fn():
        rank = triton_dist.rank()
        team = triton_dist.make_team([0, 1] if rank < 2 else [2], arena_size=4 * MEBIBYTE)
        rest = triton_dist.symm_empty(11 * MEBIBYTE, torch.int8)
        with pytest.raises(HeapFullError, match="make_team"):
            triton_dist.symm_empty(MEBIBYTE, torch.int8)
        kept = [triton_dist.symm_empty(MEBIBYTE, torch.int8, group=team) for _ in range(3)]
        with pytest.raises(HeapFullError, match=rf"ranks \[{', '.join(map(str, team.ranks))}\] all have free"):
            triton_dist.symm_empty(2 * MEBIBYTE, torch.int8, group=team)
        with pytest.raises(InvalidArgumentError, match="still live: .*'kept'"):
            triton_dist.free_team(team)
        del kept
        triton_dist.free_team(team)
        more = triton_dist.symm_empty(4 * MEBIBYTE, torch.int8)
        return rest, more

    for _ in range(2):  # the second simulation has the whole heap again
        triton_dist.simulate(fn, 3, heap_size=16 * MEBIBYTE)


def test_a_tensor_of_a_team_outlives_its_simulation():
    def fn(value):
        team = triton_dist.make_team([0, 1], arena_size=MEBIBYTE)
        return triton_dist.symm_full(1000, value, group=team)

    kept = triton_dist.simulate(fn, 2, args=(1.0,))
    later = triton_dist.simulate(fn, 2, args=(2.0,))
    assert all((tensor == 1.0).all() for tensor in kept)
    assert not {tensor.data_ptr() for tensor in kept} & {tensor.data_ptr() for tensor in later}


def test_members_must_agree():
    def sizes():
        triton_dist.make_team([0, 1], arena_size=1 + triton_dist.rank())

    with pytest.raises(AllocationMismatchError, match=r"make_team\(arena_size=1\)"):
        triton_dist.simulate(sizes, 2)

    def one_only():
        if triton_dist.rank() == 0:
            triton_dist.make_team([0, 1])

    with pytest.raises(DeadlockError, match=r"symmetric make_team.*waits for ranks \[1\]"):
        triton_dist.simulate(one_only, 2)

    def everyone():
        triton_dist.free_team(triton_dist.make_team(None))

    with pytest.raises(InvalidArgumentError, match="as long as the world"):
        triton_dist.simulate(everyone, 2)


def test_ordinary_memory_is_not_adopted_in_the_simulator():
    def fn():
        own = triton_dist.symm_zeros(4)
        assert triton_dist.symm_adopt(own[1:]).data_ptr() == own[1:].data_ptr()
        with pytest.raises(NotSymmetricError, match=r"shape \[3\] is in ordinary memory"):
            triton_dist.symm_adopt(torch.zeros(3))

    triton_dist.simulate(fn, 2)


@pytest.mark.parametrize("shape", [2.5, (1, "2"), None, 1 << 63])
def test_shapes_that_are_none(shape):
    with pytest.raises(InvalidArgumentError, match="integer|64 bits"):
        triton_dist.simulate(lambda: triton_dist.symm_zeros(shape), 1)


@pytest.mark.parametrize("heap_size", [0, -5, 1.5, True, 1 << 39])
def test_heap_sizes_that_are_none(heap_size):
    with pytest.raises(InvalidArgumentError, match="heap_size="):
        triton_dist.simulate(lambda: None, 1, heap_size=heap_size)
