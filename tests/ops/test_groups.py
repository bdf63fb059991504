"""What operators take as ``group``: process groups, teams, and dimensions of a DeviceMesh, all with the same result.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import triton_dist
from triton_dist import errors
from triton_dist.ops import ag_gemm, all_gather, all_reduce, all_to_all, barrier, broadcast, gemm_ar, gemm_rs, reduce_scatter
from triton_dist.ops.gemm import custom_ops, scatter_plan
from triton_dist.ops.team import without_mesh
from triton_dist.runtime.team import Team, find_team

SIZE = 4
"""Ranks: two rows of two, as a mesh has them."""


def meshes() -> tuple[DeviceMesh, DeviceMesh]:
    """One with two dimensions, "rows" and "columns", and one of all ranks."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns")), dist.init_device_mesh("cpu", (SIZE,))


def operators(group: object) -> list[torch.Tensor]:
    """A result of every operator in a group."""
    rank, device = triton_dist.rank(), triton_dist.device()
    team = find_team(group, "test")
    size = team.size

    def part(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(device)

    a, b, x = part(4 * size, 8), part(8, 16), part(4 * size, 5)
    barrier(group)
    found = [ag_gemm(a, b, group=group), gemm_rs(a, b, group=group), gemm_ar(a, b, group=group)]
    found += [all_gather(x, group=group), all_reduce(x, group=group), reduce_scatter(x, group=group)]
    found += [all_to_all(x, group=group), broadcast(x, team.ranks[0], group=group)]
    return [tensor.cpu() for tensor in found]


def by_every_name() -> bool:
    """Whether all names of a row, of a column and of all ranks give the same as the team of those ranks."""
    grid, line = meshes()
    rank = triton_dist.rank()
    row, column = [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
    same = True
    for names, team in (
        ([(grid, "columns"), (grid, 1), grid["columns"], grid.get_group("columns")], Team(rank % 2, tuple(row))),
        ([(grid, "rows"), grid["rows"], grid.get_group(0)], Team(rank // 2, tuple(column))),
        ([line, (line, 0), line.get_group(), dist.group.WORLD, None], Team(rank, tuple(range(SIZE)))),
    ):
        expected = operators(team)
        same &= all(all(map(torch.equal, operators(name), expected)) for name in names)
    return same


@pytest.mark.parametrize("world_size", [SIZE])
def test_operators_take_groups_by_every_name(world, world_size):
    assert all(world(by_every_name, world_size))


def by_the_library() -> list[bool]:
    """A mesh dimension where ``torch.distributed`` does the work."""
    grid, _ = meshes()
    name, team = (grid, "columns"), triton_dist.make_team((grid, "columns"))
    a, b = torch.randn(4, 8), torch.randn(8, 16)
    pairs = [(ag_gemm, "nccl"), (gemm_rs, "library"), (gemm_ar, "library")]
    return [torch.allclose(op(a, b, group=name, method=method), op(a, b, group=team), atol=1e-4) for op, method in pairs]


def test_the_library_takes_a_mesh():
    assert triton_dist.simulate(by_the_library, SIZE) == [[True] * 3] * SIZE


def test_the_library_takes_no_team():
    def call(operator, method):
        meshes()
        operator(torch.randn(4, 8), torch.randn(8, 16), group=triton_dist.make_team([0, 1, 2, 3]), method=method)

    for operator, method in ((ag_gemm, "nccl"), (gemm_rs, "library"), (gemm_ar, "library")):
        with pytest.raises(errors.InvalidArgumentError, match=f"{operator.__name__}: this method needs a torch.distributed process group"):
            triton_dist.simulate(call, SIZE, args=(operator, method))


def test_a_team_is_not_left_to_the_library(monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    shape = (4, 128, 12288, 12288, 2, "cuda")
    assert scatter_plan.choose_rs_method("auto", *shape) == "library"
    assert scatter_plan.choose_rs_method("auto", *shape, library=False) == "split"


def test_traced_calls_name_the_group_of_a_mesh():
    def names() -> bool:
        grid, line = meshes()
        row = grid.get_group("columns").group_name
        assert custom_ops.name_of("gemm_rs", line) == line.get_group().group_name
        return custom_ops.name_of("gemm_rs", (grid, "columns")) == custom_ops.name_of("gemm_rs", grid["columns"]) == row

    assert triton_dist.simulate(names, SIZE) == [True] * SIZE


def with_mesh(make, group_of=lambda mesh: mesh) -> None:
    meshes()
    gemm_rs(torch.randn(4, 8), torch.randn(8, 16), group=group_of(make()))


@pytest.mark.parametrize(
    ("make", "group_of", "message"),
    [
        (lambda: meshes()[0], lambda mesh: mesh, r"2 dimensions \('rows', 'columns'\); pass \(mesh, name of one of them\)"),
        (lambda: meshes()[0], lambda mesh: (mesh, "depth"), "no dimension 'depth'"),
        (lambda: meshes()[0], lambda mesh: (mesh, "rows", 1), "must be a torch.distributed process group"),
        (lambda: DeviceMesh("cpu", [1, 0, 2, 3]), lambda mesh: mesh, r"in the order \[1, 0, 2, 3\].*make_team\(\[1, 0, 2, 3\]\)"),
        (lambda: DeviceMesh("cpu", [[2, 0], [3, 1]], mesh_dim_names=("a", "b")), lambda mesh: (mesh, "b"), "with ascending ranks"),
    ],
)
def test_meshes_that_are_no_group(make, group_of, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        triton_dist.simulate(with_mesh, SIZE, args=(make, group_of))


def test_a_dimension_in_order_of_a_mesh_that_is_not():
    """Along "a" the ranks ascend, so that nothing is in doubt."""

    def call() -> tuple[int, ...]:
        meshes()
        mesh = DeviceMesh("cpu", [[2, 0], [3, 1]], mesh_dim_names=("a", "b"))
        return find_team((mesh, "a"), "test").ranks

    assert triton_dist.simulate(call, SIZE) == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_a_rank_outside_of_a_mesh():
    def call() -> None:
        meshes()
        mesh = DeviceMesh("cpu", [0, 1])
        if triton_dist.rank() > 1:
            with pytest.raises(errors.NotInTeamError, match=r"not in the DeviceMesh of ranks \[0, 1\]"):
                without_mesh(mesh, "test")

    triton_dist.simulate(call, SIZE)


def test_a_rank_outside_of_a_new_group():
    def body():
        dist.init_process_group("gloo")
        group = dist.new_group([0, 2])
        if triton_dist.rank() != 1:
            return all_reduce(torch.ones(3), group=group)[0].item()
        with pytest.raises(errors.NotInTeamError, match="rank 1 is not in the process group"):
            all_reduce(torch.ones(3), group=group)
        return 2.0

    assert triton_dist.simulate(body, 3) == [2.0] * 3
