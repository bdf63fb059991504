"""ag_gemm against torch in float64, on every world size, dtype, producer and several schedules; and what its twins do wrong.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.ops import ag_gemm
from triton_dist.ops.gemm import ag_gemm as module
from triton_dist.ops.gemm.ag_gemm import Tiles, choose_tiles

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
SMALL = Tiles(m=16, n=16, k=16, rows_per_signal=32)


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    return ((out.double() - reference).abs().max() / reference.abs().max()).item()


def make_a(call: int, rows: int, depth: int, dtype: torch.dtype) -> torch.Tensor:
    size = triton_dist.world_size()
    return torch.randn(size * rows, depth, generator=torch.Generator().manual_seed(call)).to(triton_dist.device(), dtype)


def make_b(call: int, columns: int, depth: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 + 10 * call + triton_dist.rank())
    return torch.randn(depth, columns, generator=generator).to(triton_dist.device(), dtype)


def body(rows: int, columns: int, depth: int, dtype: torch.dtype, calls: int = 3, **options) -> float:
    """One rank: several calls on the same buffers, back to back, with other data each; the worst relative error."""
    rank = triton_dist.rank()
    products = []
    for call in range(calls):
        a, b = make_a(call, rows, depth, dtype), make_b(call, columns, depth, dtype)
        products.append((ag_gemm(a[rank * rows : (rank + 1) * rows], b, **options), a.double() @ b.double()))
    return max(relative_error(out, reference) for out, reference in products)


@pytest.mark.parametrize("producer", module.PRODUCERS)
@pytest.mark.parametrize("dtype", module.DTYPES)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_matches_torch(world, world_size, dtype, producer):
    """Odd sizes, three tiles and more along each axis, several signals a shard."""
    errors_seen = world(body, world_size, args=(50, 37, 70, dtype), kwargs={"producer": producer, "tiles": SMALL}, seed=world_size)
    assert max(errors_seen) < TOLERANCE[dtype]


def one_call(producer: str) -> torch.Tensor:
    rank = triton_dist.rank()
    a = make_a(0, 40, 48, torch.bfloat16)
    return ag_gemm(a[rank * 40 : (rank + 1) * 40], make_b(0, 33, 48, torch.bfloat16), tiles=SMALL, producer=producer)


@pytest.mark.parametrize("producer", module.PRODUCERS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("world_size", [2, 4])
def test_every_schedule_gives_the_same_bits(world, world_size, seed, producer):
    reference = world(one_call, world_size, args=(producer,), schedule="round_robin")
    for out, expected in zip(world(one_call, world_size, args=(producer,), seed=seed), reference, strict=True):
        assert torch.equal(out, expected)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 200, 16), (130, 17, 33), (64, 128, 64), (3, 5, 257)])
@pytest.mark.parametrize("world_size", [2, 3])
def test_shapes_with_chosen_tiles(world, world_size, shape):
    assert max(world(body, world_size, args=(*shape, torch.float32), kwargs={"calls": 2})) < 1e-6


def test_few_programs_and_a_small_gpu():
    """A persistent grid smaller than the number of tiles; with the kernel producer the SMs just suffice."""
    gpu = triton_dist.sim.gpus.GPU("small", 90, 10, 232_448)
    for producer in module.PRODUCERS:
        results = triton_dist.simulate(body, 2, args=(64, 64, 32, torch.float32), kwargs={"tiles": SMALL, "producer": producer}, gpu=gpu)
        assert max(results) < 1e-6


def given_output_and_stream() -> float:
    rank = triton_dist.rank()
    a = make_a(0, 20, 32, torch.float32)
    b = make_b(0, 24, 32, torch.float32).t().contiguous().t()
    out = torch.full((40, 30), -1.0, device=triton_dist.device())[:, :24]
    side = triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    with triton_dist.stream(side):
        returned = ag_gemm(a[rank * 20 : (rank + 1) * 20], b, out=out)
    triton_dist.synchronize()
    assert returned is out
    return relative_error(out, a.double() @ b.double())


def test_given_output_strides_and_streams(world):
    assert max(world(given_output_and_stream, 2)) < 1e-6


def in_subgroups() -> float:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank = triton_dist.rank()
    group, index = groups[rank % 2], rank // 2
    a = torch.randn(2 * 18, 20, generator=torch.Generator().manual_seed(rank % 2)).to(triton_dist.device())
    b = make_b(0, 19, 20, torch.float32)
    out = ag_gemm(a[index * 18 : (index + 1) * 18], b, group=group, tiles=SMALL)
    return relative_error(out, a.double() @ b.double())


def test_subgroups_work_side_by_side(world):
    assert max(world(in_subgroups, 4)) < 1e-6


def with_empty_sizes() -> tuple:
    with torch.device(triton_dist.device()):
        nothing = ag_gemm(torch.empty(0, 8), torch.randn(8, 4))
        no_depth = ag_gemm(torch.empty(3, 0), torch.empty(0, 4))
        no_columns = ag_gemm(torch.randn(3, 8), torch.empty(8, 0))
    return tuple(nothing.shape), no_depth.abs().sum().item(), tuple(no_depth.shape), tuple(no_columns.shape)


def test_empty_sizes(world):
    assert world(with_empty_sizes, 2) == [((0, 4), 0.0, (6, 4), (6, 0))] * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ag_gemm(torch.randn(4), torch.randn(4, 4)), "a_shard has to be a matrix"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(5, 4)), "inner sizes"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4).half()), "both have to be one of"),
        (lambda: ag_gemm(torch.ones(4, 4, dtype=torch.int32), torch.ones(4, 4, dtype=torch.int32)), "both have to be one of"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), producer="dma"), "use one of"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), out=torch.empty(4, 4)), "it has to be (8, 4)"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), tiles=Tiles(8, 16, 16, 16)), "powers of 2"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), group=3), "process group"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), num_programs=0), "at least 1"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def test_needs_a_world():
    with pytest.raises(errors.NotInitializedError, match="simulate"):
        ag_gemm(torch.randn(4, 4), torch.randn(4, 4))


def with_different_shapes() -> torch.Tensor:
    rows = 4 + triton_dist.rank()
    with torch.device(triton_dist.device()):
        return ag_gemm(torch.randn(rows, 16), torch.randn(16, 8))


def test_ranks_with_different_shapes_are_named(world):
    with pytest.raises(errors.AllocationMismatchError):
        world(with_different_shapes, 2)


def test_another_node_has_no_direct_pointer():
    with pytest.raises(errors.UnreachablePeerError, match="node"):
        triton_dist.simulate(body, 4, args=(8, 8, 16, torch.float32), num_nodes=2)


@pytest.mark.parametrize("rows", [1, 15, 16, 100, 128, 1000, 8192])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_chosen_tiles_are_allowed(rows, itemsize):
    for columns in (1, 30, 4096):
        tiles = choose_tiles(rows, columns, 512, itemsize)
        module._check_tiles(tiles)
        assert -(-rows // tiles.rows_per_signal) <= 4


# Twins of the kernels: right but for one line, and caught.


@triton.jit(do_not_specialize=["index"])
def finish_without_reset_kernel(flags, arrived, epoch, world_ranks, index, size, num_flags, BLOCK: tl.constexpr):
    """The flags keep their 1, so the next call reads rows that have not arrived."""
    module.team_barrier(arrived, epoch, world_ranks, index, size)


@triton.jit(do_not_specialize=["index"])
def finish_without_barrier_kernel(flags, arrived, epoch, world_ranks, index, size, num_flags, BLOCK: tl.constexpr):
    """Nobody waits for the others: their next push overwrites rows that are still read, or its flag is reset."""
    for begin in range(0, num_flags, BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        tl.store(flags + offset, tl.zeros((BLOCK,), tl.int32), mask=offset < num_flags)


@triton.jit(do_not_specialize=["index"])
def finish_without_notify_kernel(flags, arrived, epoch, world_ranks, index, size, num_flags, BLOCK: tl.constexpr):
    """Every rank waits, nobody says that it has come."""
    now = tl.load(epoch) + 1
    dl.wait(arrived, size, "sys", "acquire", waitValue=now, cmp="ge")
    tl.store(epoch, now)


def twin_fails(monkeypatch, kernel) -> list[str]:
    """What goes wrong with another last kernel, over several schedules: "wrong" or the name of an error."""
    monkeypatch.setattr(module, "finish_kernel", kernel)
    seen = []
    for seed, schedule in [(seed, schedule) for seed in range(3) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(
                body, 3, args=(64, 48, 64, torch.float32), kwargs={"calls": 4, "tiles": SMALL}, seed=seed, schedule=schedule
            )
            seen.append("wrong" if max(results) > 1e-5 else "right")
        except errors.TritonDistError as error:
            seen.append(type(error).__name__)
    return seen


@pytest.mark.parametrize("kernel", [finish_without_reset_kernel, finish_without_barrier_kernel])
def test_racy_twins_give_wrong_results_under_some_schedule(monkeypatch, kernel):
    seen = twin_fails(monkeypatch, kernel)
    assert "wrong" in seen or "DeadlockError" in seen


def test_hanging_twin_is_named(monkeypatch):
    assert twin_fails(monkeypatch, finish_without_notify_kernel) == ["DeadlockError"] * 6


def test_the_workspace_goes_with_the_world():
    """Simulations one after the other in a heap that has room for one: nothing of an ended world keeps its symmetric memory."""
    for _ in range(4):
        results = triton_dist.simulate(body, 2, args=(64, 16, 512, torch.float32), kwargs={"calls": 1}, heap_size=400_000)
        assert max(results) < 1e-6
