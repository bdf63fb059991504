"""ag_gemm against torch in float64, on every world size, dtype, method and several schedules; and what its twins do wrong.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.differences import relative_error
from tests.ops.twins import twin_of
from tests.pairs import every_pair
from triton_dist import errors
from triton_dist.ops import ag_gemm
from triton_dist.ops.gemm import ag_gemm as module
from triton_dist.ops.gemm import ag_gemm_kernels, library
from triton_dist.ops.gemm.plan import METHODS, OWN_METHODS, Plan, Rates, Tiles, check_tiles, choose_plan, fused_time, split_time
from triton_dist.runtime.world import require_world

ROOT = Path(__file__).parents[2]
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float8_e4m3fn: 8e-3, torch.float8_e5m2: 8e-3}
LOADS = Tiles(m=16, n=16, k=32, blocks=2, tma=False)
FP8_ZEROS = torch.zeros(4, 4).to(torch.float8_e4m3fn)
DESCRIPTORS = Tiles(m=16, n=32, k=32, blocks=2, blocks_per_wait=1, programs=5, group=2)
"""For operands that suit TMA; few programs, so that each has tiles of several blocks."""


def make_a(call: int, rows: int, depth: int, dtype: torch.dtype) -> torch.Tensor:
    size = triton_dist.world_size()
    return torch.randn(size * rows, depth, generator=torch.Generator().manual_seed(call)).to(triton_dist.device(), dtype)


def make_b(call: int, columns: int, depth: int, dtype: torch.dtype, by_columns: bool = False) -> torch.Tensor:
    """(depth, columns); by_columns: the transpose of a contiguous matrix, as a linear layer's weights are."""
    generator = torch.Generator().manual_seed(1000 + 10 * call + triton_dist.rank())
    b = torch.randn(depth, columns, generator=generator).to(triton_dist.device(), dtype)
    return b.t().contiguous().t() if by_columns else b


def body(rows: int, columns: int, depth: int, dtype: torch.dtype, calls: int = 3, by_columns: bool = False, **options) -> float:
    """One rank: several calls on the same buffers, back to back, with other data each; the worst relative error."""
    rank = triton_dist.rank()
    products = []
    for call in range(calls):
        a, b = make_a(call, rows, depth, dtype), make_b(call, columns, depth, dtype, by_columns)
        products.append((ag_gemm(a[rank * rows : (rank + 1) * rows], b, **options), a.double() @ b.double()))
    return max(relative_error(out, reference) for out, reference in products)


@pytest.mark.parametrize(("world_size", "dtype", "method"), every_pair([1, 2, 3, 4, 8], module.DTYPES, OWN_METHODS))
def test_matches_torch(world, world_size, dtype, method):
    """Odd sizes, three tiles and more along each axis, several signals a shard."""
    errors_seen = world(body, world_size, args=(50, 37, 70, dtype), kwargs={"method": method, "tiles": LOADS}, seed=world_size)
    assert max(errors_seen) < TOLERANCE[dtype]


@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("dtype", module.DTYPES)
@pytest.mark.parametrize("world_size", [1, 2])
def test_what_is_chosen_matches_torch(world, world_size, dtype, by_columns):
    """On one GPU that is the library's product: there is nothing to gather."""
    assert max(world(body, world_size, args=(48, 64, 80, dtype), kwargs={"by_columns": by_columns})) < TOLERANCE[dtype]


def test_products_that_the_library_does_not_know():
    """cuBLAS multiplies e5m2 by e4m3 and the other way round, but not by itself."""
    small, large = torch.float8_e4m3fn, torch.float8_e5m2
    assert library.knows(small, small) and library.knows(small, large) and library.knows(large, small)
    assert library.knows(torch.bfloat16, torch.bfloat16) and not library.knows(large, large)


@pytest.mark.parametrize(
    ("world_size", "dtype", "method", "by_columns"),
    every_pair([1, 2, 3, 4, 8], [torch.float16, torch.bfloat16, torch.float8_e4m3fn], ["fused", "fused_kernel"], [True, False]),
)
def test_matches_torch_by_descriptors(world, world_size, dtype, method, by_columns):
    """Sizes that no tile divides; weights as a linear layer keeps them, and the other way (which fp8 does not take)."""
    options = {"method": method, "tiles": DESCRIPTORS, "by_columns": by_columns}
    assert max(world(body, world_size, args=(72, 112, 80, dtype), kwargs=options, seed=world_size)) < TOLERANCE[dtype]


@pytest.mark.parametrize("per_wait", [None, 1, 2, 5])
@pytest.mark.parametrize("programs", [1, 4, 7, 64])
@pytest.mark.parametrize("parts", [True, False])
def test_every_way_to_group_blocks_and_to_split_the_last_turn(per_wait, programs, parts):
    """The last turn of the grid is split only in tiles that are wide enough, so these are; 4 x 4 x 2 x 3 of them."""
    tiles = Tiles(16, 128, 32, blocks=2, blocks_per_wait=per_wait, programs=programs, group=3, split_tail=parts)
    options = {"method": "fused", "tiles": tiles, "by_columns": True, "calls": 2}
    assert max(triton_dist.simulate(body, 4, args=(64, 384, 64, torch.bfloat16), kwargs=options, seed=programs)) < 8e-3


def one_call(method: str, tiles: Tiles) -> torch.Tensor:
    rank = triton_dist.rank()
    a = make_a(0, 48, 48, torch.bfloat16)
    return ag_gemm(a[rank * 48 : (rank + 1) * 48], make_b(0, 40, 48, torch.bfloat16), tiles=tiles, method=method)


@pytest.mark.parametrize("tiles", [LOADS, DESCRIPTORS])
@pytest.mark.parametrize("method", OWN_METHODS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("world_size", [2, 4])
def test_every_schedule_gives_the_same_bits(world, world_size, seed, method, tiles):
    reference = world(one_call, world_size, args=(method, tiles), schedule="round_robin")
    for out, expected in zip(world(one_call, world_size, args=(method, tiles), seed=seed), reference, strict=True):
        assert torch.equal(out, expected)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 200, 16), (130, 17, 33), (64, 128, 64), (3, 5, 257), (128, 256, 64)])
@pytest.mark.parametrize("world_size", [2, 3])
def test_shapes_with_chosen_tiles(world, world_size, shape):
    for dtype in (torch.float32, torch.bfloat16):
        assert max(world(body, world_size, args=(*shape, dtype), kwargs={"calls": 2})) < TOLERANCE[dtype]


def growing_and_changing() -> float:
    """Calls of changing sizes and methods share the workspace, which grows in between."""
    sizes = [(16, 32, 32), (48, 16, 64), (8, 40, 48), (80, 32, 96), (16, 32, 32)]
    return max(body(*size, torch.bfloat16, calls=1, method=method) for size in sizes for method in OWN_METHODS)


@pytest.mark.parametrize("world_size", [2, 4])
def test_sizes_and_methods_change_from_call_to_call(world, world_size):
    assert max(world(growing_and_changing, world_size)) < 8e-3


def test_few_programs_and_a_small_gpu():
    """A persistent grid smaller than the number of tiles; with the kernel producer the SMs just suffice."""
    gpu = triton_dist.sim.gpus.GPU("small", 90, 10, 232_448)
    for method in OWN_METHODS:
        results = triton_dist.simulate(body, 2, args=(64, 64, 32, torch.float32), kwargs={"tiles": LOADS, "method": method}, gpu=gpu)
        assert max(results) < 1e-6


def scaled(method: str) -> float:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    a, b = make_a(0, 32, 64, torch.float8_e4m3fn), make_b(0, 48, 64, torch.float8_e4m3fn, by_columns=True)
    scales = [torch.tensor(value, device=triton_dist.device()) for value in (0.5, 3.0)]
    out = ag_gemm(a[rank * 32 : (rank + 1) * 32], b, method=method, scale_a=scales[0], scale_b=scales[1], tiles=Tiles(16, 16, 32))
    assert out.dtype == torch.bfloat16 and out.shape == (32 * size, 48)
    return relative_error(out, a.double() @ b.double() * 1.5)


@pytest.mark.parametrize("method", OWN_METHODS)
def test_fp8_is_scaled(world, method):
    assert max(world(scaled, 2, args=(method,))) < 8e-3


def by_nccl() -> float:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return max(body(24, 40, 48, dtype, method="nccl") for dtype in (torch.bfloat16, torch.float8_e4m3fn))


def test_by_torch_distributed():
    assert max(triton_dist.simulate(by_nccl, 3)) < 8e-3


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
    out = ag_gemm(a[index * 18 : (index + 1) * 18], b, group=group, tiles=LOADS)
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
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), method="dma"), "use 'auto' or one of"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), method="torch"), "on GPUs"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), method="nccl"), "init_process_group"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), out_dtype=torch.int8), "can't be torch.int8"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), scale_a=torch.ones(1), scale_b=torch.ones(1)), "fp8 inputs"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), out=torch.empty(4, 4)), "it has to be (8, 4)"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), tiles=Tiles(8, 16, 16)), "powers of 2"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), tiles=Tiles(16, 16, 16, blocks=9)), "between 1 and 8"),
        (lambda: ag_gemm(FP8_ZEROS, FP8_ZEROS, tiles=Tiles(16, 16, 16)), "at least 32"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), group=3), "process group"),
        (lambda: ag_gemm(torch.randn(4, 4), torch.randn(4, 4), tiles=Tiles(16, 16, 16, programs=0)), "at least 1"),
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
    """In a world whose operators have no memory yet: only an allocation compares what the ranks want."""
    require_world("a test").workspaces.clear()
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
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_chosen_plans_are_allowed(rows, itemsize):
    for columns in (1, 30, 4096):
        for size in (1, 2, 3, 8):
            plan = choose_plan("auto", size, rows, columns, 512, itemsize, "cuda")
            check_tiles(plan.tiles, module.MAX_BLOCKS, itemsize)
            assert plan.method in METHODS
            assert not plan.tiles.tma or rows % plan.tiles.blocks == 0


def test_the_choice_follows_the_costs():
    """Few rows: latency; many rows and columns: overlap; a slow link never makes the split method better for these."""
    assert choose_plan("auto", 4, 16, 7168, 4096, 2, "cuda").method == "split"
    assert choose_plan("auto", 4, 2048, 14336, 8192, 2, "cuda").method == "fused"
    assert choose_plan("auto", 4, 16, 7168, 4096, 2, "cpu") == Plan("fused", choose_plan("fused", 4, 16, 7168, 4096, 2, "cpu").tiles)
    shape = (4, 2048, 14336, 8192, 2)
    for link in (0.1e6, 0.345e6, 1e6):
        assert fused_time(Tiles(), *shape, Rates(link=link)) < split_time(*shape, Rates(gather=link))
    times = [fused_time(Tiles(), 4, rows, 14336, 8192, 2) for rows in (512, 1024, 2048, 4096)]
    assert times == sorted(times) and all(math.isfinite(time) for time in times)


# Twins of the kernels: right but for one line, and caught.

WRONG = {
    "the flags keep their 1, so the next call reads rows that have not arrived": (
        "tl.store(flags + offset, tl.zeros((CAPACITY,), tl.int32), mask=offset < size * MAX)",
        "pass",
    ),
    "rows are used before they have arrived": (
        'dl.wait(flags + (index + size - place // blocks) % size * MAX + place % blocks, 1, "sys", "acquire", waitValue=1)',
        "pass",
    ),
    "rows are used before they have arrived, by loads": (
        'token = dl.wait(flags + source_index * MAX + block, 1, "sys", "acquire", waitValue=1)',
        "token = block",
    ),
    "rows are pushed while the peer still reads those of the call before": (
        'token = dl.wait(ready + receiver, 1, "sys", "acquire", waitValue=1, cmp="ge")',
        "token = block",
    ),
    "the peer's word stays set, so the next push does not wait": (
        'tl.atomic_add(ready + receiver, -1, sem="acq_rel", scope="sys")',
        "pass",
    ),
}
HANGS = {
    "nobody says that rows may be pushed": (
        'dl.notify(ready + index, peer, signal=blocks, sig_op="set", comm_scope="intra_node")',
        "pass",
    ),
    "nobody says that rows have arrived": (
        'dl.notify(flags + index * MAX + block, peer, signal=1, sig_op="set", comm_scope="intra_node")',
        "pass",
    ),
}


def outcomes(monkeypatch, tmp_path, right: str, wrong: str) -> Iterator[str]:
    """What goes wrong with a twin of the kernels, schedule by schedule: "wrong", "right" or the name of an error."""
    twin = twin_of(ag_gemm_kernels, tmp_path, right, wrong)
    for name in ("any_gemm_kernel", "gathered_gemm_kernel", "push_shard_kernel"):
        monkeypatch.setattr(module, name, getattr(twin, name))
    for seed, schedule in [(seed, schedule) for seed in range(4) for schedule in ("random", "straggler")]:
        for tiles in (LOADS, DESCRIPTORS):
            options = {"calls": 4, "tiles": tiles, "method": "fused_kernel", "by_columns": True}
            try:
                results = triton_dist.simulate(body, 3, args=(64, 48, 64, torch.bfloat16), kwargs=options, seed=seed, schedule=schedule)
                yield "wrong" if max(results) > 1e-2 or any(map(math.isnan, results)) else "right"
            except errors.TritonDistError as error:
                yield type(error).__name__


@pytest.mark.parametrize("name", WRONG)
def test_racy_twins_are_wrong_results_under_some_schedule(monkeypatch, tmp_path, name):
    """Or lose a signal, since a flag is set before it was reset."""
    assert any(outcome in {"wrong", "DeadlockError"} for outcome in outcomes(monkeypatch, tmp_path, *WRONG[name]))


@pytest.mark.parametrize("name", HANGS)
def test_hanging_twins_are_named(monkeypatch, tmp_path, name):
    assert set(outcomes(monkeypatch, tmp_path, *HANGS[name])) == {"DeadlockError"}


@pytest.mark.parametrize("forgotten", ["flags", "ready"])
def test_racy_twins_of_the_streams_signals(monkeypatch, forgotten):
    """The stream does not wait for the rows that it multiplies, or for the peer's word before it pushes."""
    queue = module.signal_batch

    def forget(steps, *side_stream):
        if bool(side_stream) == (forgotten == "ready"):
            steps = [step for step in steps if not isinstance(step, module.Wait)]
        queue(steps, *side_stream)

    monkeypatch.setattr(module, "signal_batch", forget)
    assert any(outcome in {"wrong", "DeadlockError"} for outcome in outcomes_of_the_stream())


def outcomes_of_the_stream() -> Iterator[str]:
    for seed, schedule in [(seed, schedule) for seed in range(6) for schedule in ("random", "straggler")]:
        options = {"calls": 8, "method": "pipelined"}
        try:
            results = triton_dist.simulate(body, 3, args=(64, 48, 64, torch.float32), kwargs=options, seed=seed, schedule=schedule)
            yield "wrong" if max(results) > 1e-5 or any(map(math.isnan, results)) else "right"
        except errors.TritonDistError as error:
            yield type(error).__name__


def simulations_in_a_small_heap() -> None:
    for _ in range(4):
        results = triton_dist.simulate(body, 2, args=(64, 16, 512, torch.float32), kwargs={"calls": 1}, heap_size=400_000)
        assert max(results) < 1e-6


def test_the_workspace_goes_with_the_world():
    """Simulations one after the other in a heap that has room for one: nothing of an ended world keeps its symmetric memory.

    In a process of its own: what other tests have kept alive would take room, too.
    """
    program = "from tests.ops import test_ag_gemm; test_ag_gemm.simulations_in_a_small_heap()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
