"""Kernels collected from runs on the simulator, and checked as they were launched."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.races.corpus import CASES, load_case
from triton_dist.compiled_checks.verify import verify
from triton_dist.kernels.nvidia.common_ops import BarrierAllContext, barrier_all_on_stream
from triton_dist.kernels.nvidia.reduce_scatter import ring_reduce
from triton_dist.ops import ag_gemm, all_gather, all_reduce, all_to_all, broadcast, gemm_ar, gemm_rs, reduce_scatter
from triton_dist.ops.gemm.plan import Tiles
from triton_dist.sim import launch
from triton_dist.tools.check.collect import Kernels


def operators() -> None:
    """One rank's host function: every operator of the package once."""
    rank, world_size = triton_dist.rank(), triton_dist.world_size()
    generator = torch.Generator().manual_seed(rank)
    a = torch.randn(128, 128, generator=generator, dtype=torch.bfloat16)
    b = torch.randn(128, 128, generator=generator, dtype=torch.bfloat16)
    for method in ("fused", "fused_kernel"):
        ag_gemm(a, b.T.contiguous().T, method=method, tiles=Tiles(m=128, n=128, k=64))
    ag_gemm(a[:50, :40].contiguous(), b[:40, :70].contiguous())
    for method in ("pipelined", "fused", "split", "small"):
        gemm_rs(a, b.T.contiguous().T, method=method)
    gemm_ar(a, b, method="split")
    gemm_ar(a, b, method="small")
    gemm_ar(a, b, method="two_shot")
    for method in ("ll", "one_shot"):
        all_gather(torch.full((64,), rank), method=method)
        reduce_scatter(torch.full((64,), rank), method=method)
        all_to_all(torch.full((64,), rank), method=method)
        broadcast(torch.full((64,), rank), 1, method=method)
    all_reduce(torch.full((64,), rank), method="two_shot")
    all_to_all(torch.full((64,), rank), torch.ones(world_size, dtype=torch.int64), capacity=64)
    ring_reduce(torch.ones(2 * world_size, 8), torch.zeros(2, 8), 0, world_size)
    barrier_all_on_stream(BarrierAllContext(is_intra_node=True))
    barrier_all_on_stream(None)


def test_operators_are_clean_as_they_are_launched():
    kernels = Kernels()
    with kernels.watching():
        triton_dist.simulate(operators, 2)
    names = {kernel.name for kernel in kernels.found.values()}
    assert names >= {
        "gathered_gemm_kernel",
        "any_gemm_kernel",
        "add_arrived_kernel",
        "scattering_gemm_kernel",
        "push_and_add_kernel",
        "small_product_kernel",
        "two_shot_sum_kernel",
        "two_shot_kernel",
        "low_latency_kernel",
        "low_latency_broadcast_kernel",
        "all_gather_kernel",
        "all_to_all_kernel",
        "broadcast_kernel",
        "reduce_scatter_kernel",
        "_sum_kernel",
        "barrier_all_intra_node_atomic_cas_block",
    }
    for kernel in kernels.found.values():
        assert verify(kernel.source, kernel.options) == [], kernel.name
    assert launch.launched is None, "nothing is collected afterwards"


def test_launch_options_come_along():
    kernels = Kernels()
    with kernels.watching():
        triton_dist.simulate(operators, 2)
    gemm = next(kernel for kernel in kernels.found.values() if kernel.name == "gathered_gemm_kernel")
    assert gemm.options["num_warps"] == 8 and "arch" not in gemm.options and "extern_libs" not in gemm.options


@pytest.mark.parametrize("name", CASES)
def test_right_programs_of_the_races_are_clean(name, tmp_path):
    program = load_case(name, tmp_path, wrong=False)
    kernels = Kernels()
    with kernels.watching():
        triton_dist.simulate(program.run, 2)
    for kernel in kernels.found.values():
        assert verify(kernel.source, kernel.options) == [], kernel.name
