"""The numbers of the simulated clock, and what is shared in a run for its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triton_dist.errors import InvalidArgumentError
from triton_dist.sim.cost_model import COLLECTIVE_RAMP, H100, collective_ns, matmul_time
from triton_dist.sim.gpus import GPUS
from triton_dist.sim.memory import Allocation
from triton_dist.sim.timing_machine import Cache, Server


@pytest.mark.parametrize("wrong", [{"hbm": 0.0}, {"link": -1.0}, {"signal_ns": -1.0}, {"l2_bytes": 0}])
def test_costs_that_make_no_sense(wrong):
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        replace(H100, **wrong)


def test_a_missing_kind_of_product():
    with pytest.raises(InvalidArgumentError, match="fp8"):
        replace(H100, matrix_flop_per_ns={"fp64": 1.0, "fp32": 1.0, "tf32": 1.0, "fp16": 1.0})


def test_every_gpu_has_costs_and_is_hashable():
    assert {gpu.costs for gpu in GPUS.values()} == {gpu.costs for gpu in GPUS.values()}
    assert GPUS["b200"].costs.matrix_flop_per_ns["fp16"] > GPUS["h100"].costs.matrix_flop_per_ns["fp16"]


@pytest.mark.parametrize("axis", range(3))
def test_a_larger_library_product_is_never_faster(axis):
    times = []
    for size in (16, 100, 128, 1000, 1024, 4096, 16384):
        sizes = [2048, 2048, 2048]
        sizes[axis] = size
        times.append(matmul_time(H100, 132, *sizes, 2).alone)
    assert all(after >= 0.9 * before for before, after in zip(times, times[1:], strict=False))
    assert matmul_time(H100, 132, 0, 16, 16, 2).alone == 0


def test_a_product_of_few_rows_takes_as_long_as_its_weights_come():
    m, n, k = 8, 14336, 8192
    assert matmul_time(H100, 132, m, n, k, 2).alone == pytest.approx(n * k * 2 / H100.hbm, rel=0.05)


def test_a_collective_costs_its_start_and_its_bytes():
    assert collective_ns(H100, 0) == H100.collective_ns
    large = collective_ns(H100, 2 * COLLECTIVE_RAMP) - collective_ns(H100, COLLECTIVE_RAMP)
    assert large == pytest.approx(COLLECTIVE_RAMP / H100.collective)


def test_a_server_that_nobody_else_uses():
    server = Server(2.0)
    assert server.serve(500.0, 100.0) == 550.0
    assert Server(2.0).serve(0.0, 10_000.0) == pytest.approx(5000.0)


def test_a_server_shares_its_rate_whatever_the_order_of_asking():
    for order in ((0.0, 3000.0, 0.0), (3000.0, 0.0, 0.0), (0.0, 0.0, 3000.0)):
        server = Server(1.0)
        ends = [server.serve(begin, 1500.0) for begin in order]
        # Two that begin at 0 are through at 3000; the third has the server for itself from then on.
        assert sorted(ends) == pytest.approx([1500.0, 3000.0, 4500.0])


def test_many_small_requests_fill_a_server():
    server = Server(10.0)
    ends = [server.serve(0.0, 7.0) for _ in range(10_000)]
    assert max(ends) == pytest.approx(7_000.0)
    assert server.serve(1_000_000.0, 10.0) == pytest.approx(1_000_001.0)


def test_tiles_stay_in_the_cache_until_others_have_come():
    cache, large = Cache(1000), Allocation(0, 1 << 20, "x")
    assert cache.missing(0, 400.0, 0.0, large) == 400.0
    cache.used(0, 10.0)
    assert cache.missing(0, 400.0, 5.0, large) == 0.0
    for address in (1000, 2000, 3000):
        assert cache.missing(address, 400.0, 20.0, large) == 400.0
        cache.used(address, 30.0)
    assert cache.missing(0, 400.0, 40.0, large) == 400.0


def test_a_tile_in_use_is_shared_though_it_is_larger_than_the_cache():
    cache, large = Cache(100), Allocation(0, 1 << 20, "x")
    assert cache.missing(0, 4000.0, 0.0, large) == 4000.0
    cache.used(0, 50.0)
    assert cache.missing(0, 4000.0, 49.0, large) == 0.0


def test_a_small_tensor_comes_from_memory_once():
    cache, small = Cache(1000), Allocation(0, 600, "x")
    assert [cache.missing(address, 400.0, 0.0, small) for address in (0, 100, 200)] == [400.0, 200.0, 0.0]
