"""``ag_gemm`` that gives the gathered rows, too: what it gives by every method, call after call on the same memory."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.differences import relative_error
from tests.ops.test_ag_gemm import DESCRIPTORS, LOADS, TOLERANCE, make_a, make_b
from triton_dist.ops.gemm import custom_ops
from triton_dist.ops.gemm.ag_gemm import run_ag_gemm
from triton_dist.ops.gemm.plan import OWN_METHODS

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn]


def gathers_and_multiplies(rows: int, columns: int, depth: int, dtype: torch.dtype, calls: int = 3, **options) -> float:
    """One rank: the worst relative error of several calls' products; the gathered rows have to be all ranks' bits."""
    rank, products, same = triton_dist.rank(), [], []
    for call in range(calls):
        a, b = make_a(call, rows, depth, dtype), make_b(call, columns, depth, dtype)
        gathered = torch.empty_like(a)
        out = run_ag_gemm(a[rank * rows : (rank + 1) * rows], b, gathered=gathered, **options)
        products.append((out, a.double() @ b.double()))
        same.append((gathered.view(torch.uint8), a.view(torch.uint8)))
    assert all(torch.equal(*pair) for pair in same)
    return max(relative_error(out, reference) for out, reference in products)


@pytest.mark.parametrize("method", OWN_METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_gathered_rows(world, world_size, dtype, method):
    options = {"method": method, "tiles": LOADS}
    assert max(world(gathers_and_multiplies, world_size, args=(50, 37, 70, dtype), kwargs=options, seed=world_size)) < TOLERANCE[dtype]


@pytest.mark.parametrize("method", ["fused", "fused_kernel"])
def test_gathered_rows_by_descriptors(world, method):
    options = {"method": method, "tiles": DESCRIPTORS}
    assert max(world(gathers_and_multiplies, 3, args=(72, 112, 80, torch.bfloat16), kwargs=options)) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("method", OWN_METHODS)
def test_no_race_with_the_next_call(method):
    """The copy of what was gathered comes before the peers push the next call's rows."""
    options = {"method": method, "tiles": LOADS}
    for seed in range(3):
        triton_dist.simulate(gathers_and_multiplies, 3, args=(20, 16, 40, torch.float32), kwargs=options, seed=seed, check="race")


def by_library() -> bool:
    dist.init_process_group("gloo")
    return gathers_and_multiplies(20, 16, 40, torch.float32, method="nccl") < TOLERANCE[torch.float32]


def test_gathered_by_the_library():
    assert all(triton_dist.simulate(by_library, 2))


def nothing_to_multiply() -> list[tuple[int, ...]]:
    found = []
    for rows, depth in ((0, 8), (4, 0)):
        gathered = torch.empty(rows * triton_dist.world_size(), depth)
        out = run_ag_gemm(torch.ones(rows, depth), torch.ones(depth, 4), gathered=gathered)
        found.append((*out.shape, int(out.abs().sum())))
    return found


def test_no_rows_and_no_depth():
    assert triton_dist.simulate(nothing_to_multiply, 2) == [[(0, 4, 0), (8, 4, 0)]] * 2


def as_operator() -> bool:
    """The form for graphs, behind work that is queued: torch's operators in it keep the stream's order, too."""
    a, b = make_a(0, 20, 40, torch.float32), make_b(0, 16, 40, torch.float32)
    rank = triton_dist.rank()
    out = torch.empty(0)
    for method in OWN_METHODS:
        out, gathered = custom_ops.ag_gemm_gathered_op(a[rank * 20 : (rank + 1) * 20] * 1, b, "", method, None, None, None)
        if relative_error(gathered + 1, (a + 1).double()) > 0 or relative_error(out, a.double() @ b.double()) > 1e-6:
            return False
    faked = torch.ops.triton_dist.ag_gemm_gathered(a.to("meta"), b.to("meta"), "", "auto", None, None, None)
    size = triton_dist.world_size()
    return [each.shape for each in faked] == [(size * len(a), 16), (size * len(a), 40)] and faked[0].dtype == out.dtype


@pytest.mark.parametrize("world_size", [1, 3])
def test_as_an_operator_of_torch_library(world_size):
    assert all(triton_dist.simulate(as_operator, world_size))
