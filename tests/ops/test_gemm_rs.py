"""gemm_rs and gemm_ar against torch in float64, on every world size, dtype, method and several schedules; and what their twins do wrong.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.differences import relative_error
from tests.ops.twins import twin_of
from tests.pairs import every_pair
from triton_dist import errors
from triton_dist.ops import gemm_ar, gemm_rs
from triton_dist.ops.gemm import gemm_rs_kernels, pieces, scatter_plan, scattering, slots, small
from triton_dist.ops.gemm.plan import Tiles
from triton_dist.runtime.team import Team
from triton_dist.runtime.world import require_world

module = importlib.import_module("triton_dist.ops.gemm.gemm_rs")
RS_OWN = ("pipelined", "direct", "split", "small")
AR_OWN = ("split", "two_shot", "small", "all_reduce", "pipelined")
EVERY = [*((gemm_rs, method) for method in RS_OWN), *((gemm_ar, method) for method in AR_OWN)]
NAMES = [f"{operator.__name__}-{method}" for operator, method in EVERY]
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float8_e4m3fn: 8e-3, torch.float8_e5m2: 8e-3}
TILES = Tiles(m=16, n=32, k=32, programs=5, group=2)
"""Few programs, so that each has tiles for several owners."""
FP8_ZEROS = torch.zeros(4, 4).to(torch.float8_e4m3fn)


def matrix(seed: int, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """On the CPU, the same on every rank for a seed."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands_of(rank: int, call: int, rows: int, columns: int, depth: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return matrix(1000 * call + rank, rows, depth, dtype), matrix(1000 * call + 500 + rank, depth, columns, dtype)


def reference_of(operator, call: int, rows: int, columns: int, depth: int, dtype: torch.dtype) -> torch.Tensor:
    """This rank's result in float64, without the bias."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    total = sum(a.double() @ b.double() for a, b in (operands_of(other, call, rows, columns, depth, dtype) for other in range(size)))
    return total[rank * rows // size : (rank + 1) * rows // size] if operator is gemm_rs else total


def body(operator, rows_a_rank: int, columns: int, depth: int, dtype: torch.dtype, calls: int = 3, turned: str = "", **options) -> float:
    """One rank: several calls on the same buffers, back to back, with other data each; the worst relative error.

    turned: the operands, "a", "b" or "ab", that lie in memory by columns.
    """
    rank, rows, device = triton_dist.rank(), rows_a_rank * triton_dist.world_size(), triton_dist.device()
    results = []
    for call in range(calls):
        a, b = (operand.to(device) for operand in operands_of(rank, call, rows, columns, depth, dtype))
        a = a.t().contiguous().t() if "a" in turned else a
        b = b.t().contiguous().t() if "b" in turned else b
        results.append((operator(a, b, **options), reference_of(operator, call, rows, columns, depth, dtype)))
    return max(relative_error(out, reference) for out, reference in results)


@pytest.mark.parametrize(("world_size", "dtype", "pair"), every_pair([1, 2, 3, 4, 8], DTYPES, EVERY))
def test_sums_of_products_match_torch(world, world_size, dtype, pair):
    """Odd sizes; several tiles along each axis where there are tiles."""
    operator, method = pair
    rows = 50 if method != "small" else 15
    found = world(body, world_size, args=(operator, rows, 37, 70, dtype), kwargs={"method": method}, seed=world_size)
    assert max(found) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("operator", "method"), [*EVERY, (gemm_rs, "auto"), (gemm_ar, "auto")], ids=[*NAMES, "gemm_rs-auto", "gemm_ar-auto"]
)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8_weights_of_linear_layers(world, dtype, operator, method):
    """What cuBLAS takes where sizes are multiples of 16, but not two matrices of e5m2."""
    options = {"calls": 2, "turned": "b", "method": method}
    assert max(world(body, 2, args=(operator, 16, 64, 48, dtype), kwargs=options)) < TOLERANCE[dtype]


@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 200, 16), (17, 2100, 33), (3, 5, 257), (40, 128, 128)])
def test_sums_of_products_of_odd_shapes(world, shape, operator, method):
    options = {"calls": 2, "turned": "ab", "method": method}
    for dtype in (torch.float32, torch.bfloat16):
        assert max(world(body, 3, args=(operator, *shape, dtype), kwargs=options)) < TOLERANCE[dtype]


@pytest.mark.parametrize(("operator", "method"), [(gemm_rs, "split"), (gemm_ar, "split"), (gemm_ar, "two_shot")])
def test_pushed_sums_of_more_tiles_than_programs(world, operator, method):
    """Several tiles of each part for a program, and a last one that is not whole."""
    rows, size = (200, 3) if method == "two_shot" else (700, 2)
    options = {"calls": 1, "method": method}
    assert max(world(body, size, args=(operator, rows, 2100, 16, torch.bfloat16), kwargs=options)) < 8e-3


@pytest.mark.parametrize("turned", ["", "b"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_scattered_tiles_match_torch(world, world_size, dtype, turned):
    """Sizes that no tile divides; weights as a linear layer keeps them, and the other way (which fp8 does not take)."""
    if dtype == torch.float8_e4m3fn:
        turned = "b"
    options = {"method": "fused", "tiles": TILES, "turned": turned}
    assert max(world(body, world_size, args=(gemm_rs, 72, 112, 80, dtype), kwargs=options, seed=world_size)) < TOLERANCE[dtype]


@pytest.mark.parametrize("programs", [1, 4, 7, 64])
@pytest.mark.parametrize("parts", [True, False])
def test_every_way_to_split_the_last_turn_of_scattered_tiles(programs, parts):
    """The last turn of the grid is split only in tiles that are wide enough, so these are; 3 x 4 x 3 of them."""
    options = {"method": "fused", "tiles": Tiles(16, 128, 32, programs=programs, group=3, split_tail=parts), "turned": "b", "calls": 2}
    assert max(triton_dist.simulate(body, 3, args=(gemm_rs, 64, 384, 64, torch.bfloat16), kwargs=options, seed=programs)) < 8e-3


def scattered_in_a_team() -> float:
    """Of ranks 1 and 3: descriptors begin at the lowest of them."""
    rank, device = triton_dist.rank(), triton_dist.device()
    if rank not in (1, 3):
        return 0.0
    parts = [operands_of(other, 0, 64, 96, 32, torch.bfloat16) for other in (1, 3)]
    team = Team(rank // 2, (1, 3))
    out = gemm_rs(*(part.to(device) for part in parts[rank // 2]), group=team, method="fused", tiles=TILES)
    total = sum(a.double() @ b.double() for a, b in parts)
    return relative_error(out, total[rank // 2 * 32 :][:32])


def test_scattered_tiles_of_a_team(world):
    assert max(world(scattered_in_a_team, 4)) < 8e-3


def test_scattered_tiles_have_no_data_race():
    options = {"method": "fused", "tiles": TILES, "turned": "b"}
    for seed in range(3):
        triton_dist.simulate(body, 3, args=(gemm_rs, 40, 112, 48, torch.bfloat16), kwargs=options, seed=seed, check="race")


def one_call(operator, method: str) -> torch.Tensor:
    a, b = operands_of(triton_dist.rank(), 0, 48, 40, 64, torch.bfloat16)
    return operator(a.to(triton_dist.device()), b.to(triton_dist.device()), method=method)


@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world_size", [2, 4])
def test_sums_of_products_have_the_same_bits_on_every_schedule(world, world_size, seed, operator, method):
    reference = world(one_call, world_size, args=(operator, method), schedule="round_robin")
    outs = world(one_call, world_size, args=(operator, method), seed=seed)
    assert all(torch.equal(out, expected) for out, expected in zip(outs, reference, strict=True))
    if operator is gemm_ar:
        assert all(torch.equal(out, outs[0]) for out in outs), "the ranks differ"


def added_up_in_rank_order(operator, method: str) -> bool:
    """Whether the result is what the module promises, bit for bit: rounded products, in fp32 from the first rank to the last."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    parts = [operands_of(other, 0, 24, 33, 40, torch.bfloat16) for other in range(size)]
    out = operator(*(part.to(device) for part in parts[rank]), method=method).cpu()
    products = [operator(*(part.to(device) for part in pair), method=method, group=alone()).cpu() for pair in parts]
    total = products[0].float()
    for product in products[1:]:
        total += product.float()
    if operator is gemm_rs:
        total = total[rank * 24 // size : (rank + 1) * 24 // size]
    return torch.equal(out, total.to(torch.bfloat16))


def alone() -> Team:
    """Of this rank only: a product is just that in it."""
    return Team(0, (triton_dist.rank(),))


@pytest.mark.parametrize(("operator", "method"), [pair for pair in EVERY if pair[1] != "small"])
def test_the_order_of_the_sum_is_that_of_the_ranks(operator, method):
    """On the simulator, where a product of some rows has the bits of the whole product's."""
    assert all(triton_dist.simulate(added_up_in_rank_order, 4, args=(operator, method)))


@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
@pytest.mark.parametrize("world_size", [2, 3])
def test_sums_of_products_have_no_data_race(world_size, operator, method):
    for seed, schedule in ((0, "random"), (1, "straggler")):
        options = {"seed": seed, "schedule": schedule, "check": "race"}
        triton_dist.simulate(body, world_size, args=(operator, 12, 40, 48, torch.bfloat16), kwargs={"method": method}, **options)


def growing_and_changing() -> float:
    """Calls of changing sizes and methods share workspaces, which grow in between."""
    sizes = [(16, 32, 32), (30, 16, 64), (8, 40, 48), (24, 1200, 40), (16, 32, 32)]
    return max(body(operator, *size, torch.bfloat16, calls=1, method=method) for size in sizes for operator, method in EVERY)


@pytest.mark.parametrize("world_size", [2, 4])
def test_sums_of_products_of_changing_sizes_and_methods(world, world_size):
    assert max(world(growing_and_changing, world_size)) < 8e-3


def with_bias(operator, method: str, dtype: torch.dtype) -> float:
    if method == "library" and not dist.is_initialized():
        dist.init_process_group("gloo")
    device, rank, size = triton_dist.device(), triton_dist.rank(), triton_dist.world_size()
    bias = matrix(7, 1, 80, torch.float32)[0].to(torch.bfloat16 if dtype.itemsize == 1 else dtype)
    a, b = (operand.to(device) for operand in operands_of(rank, 0, 24, 80, 48, dtype))
    out_rows = 24 // size if operator is gemm_rs else 24
    given = torch.full((out_rows, 80), math.nan, dtype=bias.dtype, device=device)
    side = triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    with triton_dist.stream(side):
        returned = operator(a, b, bias=bias.to(device), out=given, method=method)
    triton_dist.synchronize()
    assert returned is given
    return relative_error(given, reference_of(operator, 0, 24, 80, 48, dtype) + bias.double())


@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_bias_output_and_stream(world, operator, method, dtype):
    assert max(world(with_bias, 2, args=(operator, method, dtype))) < TOLERANCE[dtype]


@pytest.mark.parametrize("operator", [gemm_rs, gemm_ar])
def test_sums_of_products_by_torch_distributed(operator):
    """On simulated ranks only: NCCL wants a GPU for each."""
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
        assert max(triton_dist.simulate(with_bias, 3, args=(operator, "library", dtype))) < TOLERANCE[dtype]


def scaled(operator, method: str) -> float:
    """Each rank has scales of its own."""
    device, rank, size = triton_dist.device(), triton_dist.rank(), triton_dist.world_size()
    parts = [operands_of(other, 0, 32, 48, 64, torch.float8_e4m3fn) for other in range(size)]
    a, b = parts[rank][0].to(device), parts[rank][1].to(device).t().contiguous().t()
    scales = [torch.tensor(value, device=device) for value in (0.5, 1.0 + rank)]
    out = operator(a, b, method=method, scale_a=scales[0], scale_b=scales[1])
    assert out.dtype == torch.bfloat16
    total = sum(a.double() @ b.double() * 0.5 * (1 + other) for other, (a, b) in enumerate(parts))
    return relative_error(out, total[rank * 32 // size : (rank + 1) * 32 // size] if operator is gemm_rs else total)


@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
def test_fp8_products_are_scaled_before_they_are_added(world, operator, method):
    assert max(world(scaled, 2, args=(operator, method))) < 8e-3


def of_subgroups(operator, method: str) -> float:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank, device = triton_dist.rank(), triton_dist.device()
    a, b = operands_of(rank, 0, 36, 19, 20, torch.float32)
    out = operator(a.to(device), b.to(device), group=groups[rank % 2], method=method)
    total = sum(
        x.double() @ y.double() for x, y in (operands_of(other, 0, 36, 19, 20, torch.float32) for other in (rank % 2, rank % 2 + 2))
    )
    return relative_error(out, total[rank // 2 * 18 : (rank // 2 + 1) * 18] if operator is gemm_rs else total)


@pytest.mark.parametrize(("operator", "method"), EVERY, ids=NAMES)
def test_sums_of_products_in_subgroups_side_by_side(world, operator, method):
    assert max(world(of_subgroups, 4, args=(operator, method))) < 1e-6


def with_empty_sizes() -> list:
    with torch.device(triton_dist.device()):
        bias = torch.arange(4.0)
        found = []
        for operator in (gemm_rs, gemm_ar):
            nothing = operator(torch.empty(0, 8), torch.randn(8, 4))
            no_depth = operator(torch.empty(4, 0), torch.empty(0, 4), bias=bias)
            no_columns = operator(torch.randn(4, 8), torch.empty(8, 0))
            found += [tuple(nothing.shape), no_depth[-1].tolist(), tuple(no_depth.shape), tuple(no_columns.shape)]
    return found


def test_empty_sizes_of_sums(world):
    rs, ar = [(0, 4), [0.0, 1.0, 2.0, 3.0], (2, 4), (2, 0)], [(0, 4), [0.0, 1.0, 2.0, 3.0], (4, 4), (4, 0)]
    assert world(with_empty_sizes, 2) == [rs + ar] * 2


def square(**options) -> torch.Tensor:
    return gemm_rs(torch.randn(4, 4), torch.randn(4, 4), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gemm_rs(torch.randn(4), torch.randn(4, 4)), "gemm_rs: a has to be a matrix"),
        (lambda: gemm_ar(torch.randn(4, 4), [[1.0]]), "gemm_ar: b has to be a tensor"),
        (lambda: gemm_rs(torch.randn(4, 4), torch.randn(5, 4)), "inner sizes"),
        (lambda: gemm_rs(torch.randn(4, 4), torch.randn(4, 4).half()), "both have to be one of"),
        (lambda: gemm_rs(torch.randn(5, 4), torch.randn(4, 4)), "append 1 rows of zeros"),
        (lambda: square(method="dma"), "use 'auto' or one of"),
        (lambda: gemm_ar(torch.randn(4, 4), torch.randn(4, 4), method="direct"), "use 'auto' or one of"),
        (lambda: square(method="library"), "init_process_group"),
        (lambda: square(method="torch"), "on GPUs"),
        (lambda: square(out_dtype=torch.int8), "can't be torch.int8"),
        (lambda: square(scale_a=torch.ones(1), scale_b=torch.ones(1)), "fp8 inputs"),
        (lambda: gemm_rs(FP8_ZEROS, FP8_ZEROS, scale_a=torch.ones(1)), "go together"),
        (lambda: square(out=torch.empty(4, 4)), "it has to be (2, 4)"),
        (lambda: square(out=torch.empty(4, 2).t()), "contiguous"),
        (lambda: square(bias=torch.ones(3)), "bias is (3,)"),
        (lambda: square(bias=torch.ones(4, dtype=torch.float64)), "it has to be (4,) torch.float32"),
        (lambda: square(group=3), "process group"),
        (lambda: gemm_rs(torch.randn(256, 4), torch.randn(4, 4), method="small"), "up to 128 rows, not 256"),
        (lambda: square(method="fused"), "needs operands of fp16, bf16 or fp8"),
        (lambda: square(tiles=Tiles(8, 16, 16)), "powers of 2"),
        (lambda: square(tiles=Tiles(16, 16, 16, blocks=2)), "between 1 and 1"),
        (lambda: gemm_ar(torch.randn(1, 4), torch.randn(4, 4), method="pipelined"), "at least 2 rows"),
        (lambda: square(pieces=9), "a number from 1 to 8"),
        (lambda: gemm_ar(torch.randn(4, 4), torch.randn(4, 4), pieces=True), "a number from 1 to 8"),
    ],
)
def test_bad_input_of_sums_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


@pytest.mark.parametrize("operator", [gemm_rs, gemm_ar])
def test_sums_need_a_world(operator):
    with pytest.raises(errors.NotInitializedError, match="simulate"):
        operator(torch.randn(4, 4), torch.randn(4, 4))


def with_different_shapes(operator) -> torch.Tensor:
    """In a world whose operators have no memory yet: only an allocation compares what the ranks want."""
    require_world("a test").workspaces.clear()
    with torch.device(triton_dist.device()):
        return operator(torch.randn(64, 16), torch.randn(16, 64 * (1 + triton_dist.rank())), method="split")


@pytest.mark.parametrize("operator", [gemm_rs, gemm_ar])
def test_ranks_with_different_shapes_of_sums_are_named(world, operator):
    with pytest.raises(errors.AllocationMismatchError):
        world(with_different_shapes, 2, args=(operator,))


# Twins: right but for one line, and caught.

KERNEL_TWINS = {
    "blocks are added up before they have arrived": (
        'dl.wait(flags + (index + distance) % SIZE, 1, "sys", "acquire", waitValue=expected, cmp="ge")',
        "pass",
        "pipelined",
    ),
    "the flags keep their 1, so the next call adds up what has not arrived": (
        "tl.store(flags + word, tl.zeros((CAPACITY,), tl.int32), mask=word < SIZE)",
        "pass",
        "pipelined",
    ),
    "pushed tiles are added up before they have arrived": (
        "slots = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, now, WORDS)) + begin",
        "slots = staging + begin",
        "split",
    ),
    "tiles of a small product are added up before they have arrived": (
        "slots = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, now, WORDS)) + now % 2 * capacity",
        "slots = staging + now % 2 * capacity",
        "small",
    ),
    "tiles are stored before the owner has read those of the call before": (
        'dl.wait(ready + owner, 1, "sys", "acquire", waitValue=1, cmp="ge")',
        "pass",
        "fused",
    ),
    "the owner's word stays set, so the next call does not wait": (
        'tl.atomic_add(ready + owner, -mine, sem="relaxed", scope="sys")',
        "pass",
        "fused",
    ),
}
SUM_TWINS = {
    "parts are added up before they have arrived": (
        "brought = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, before + 1, WORDS))",
        "brought = staging",
    ),
    "results are read before they have arrived": (
        "results = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, before + 2, WORDS)) + capacity",
        "results = staging + capacity",
    ),
}
"""Of gemm_ar's "two_shot"."""
HANGING = ('dl.notify(flags + index, peer, signal=mine, sig_op="add", comm_scope="intra_node")', "pass")
SCHEDULES = [(seed, schedule) for seed in range(4) for schedule in ("random", "straggler")]


def outcomes(method: str, operator=gemm_rs, **options) -> Iterator[str]:
    """What goes wrong, schedule by schedule: "wrong", "right" or the name of an error. Who has seen enough need not ask for all."""
    for seed, schedule in SCHEDULES:
        try:
            how = {"calls": 4, "method": method} | ({"tiles": TILES} if method == "fused" else {})
            arguments = (operator, 16, 48, 64, torch.bfloat16)
            found = triton_dist.simulate(body, 3, args=arguments, kwargs=how, seed=seed, schedule=schedule, **options)
            yield "wrong" if max(found) > 1e-2 or any(map(math.isnan, found)) else "right"
        except errors.TritonDistError as error:
            yield type(error).__name__


def use_twin(monkeypatch, tmp_path, right: str, wrong: str) -> None:
    twin = twin_of(gemm_rs_kernels, tmp_path, right, wrong)
    monkeypatch.setattr(scattering, "scattering_gemm_kernel", twin.scattering_gemm_kernel)
    monkeypatch.setattr(slots, "add_arrived_kernel", twin.add_arrived_kernel)
    monkeypatch.setattr(small, "push_and_add_kernel", twin.push_and_add_kernel)
    monkeypatch.setattr(small, "small_product_kernel", twin.small_product_kernel)
    monkeypatch.setattr(small, "two_shot_sum_kernel", twin.two_shot_sum_kernel)


def test_a_hanging_twin_of_scattered_tiles_is_named(monkeypatch, tmp_path):
    use_twin(monkeypatch, tmp_path, *HANGING)
    assert set(outcomes("fused")) == {"DeadlockError"}


@pytest.mark.parametrize("name", KERNEL_TWINS)
def test_racy_twins_of_sums_are_wrong_under_some_schedule(monkeypatch, tmp_path, name):
    right, wrong, method = KERNEL_TWINS[name]
    use_twin(monkeypatch, tmp_path, right, wrong)
    assert any(outcome in {"wrong", "DeadlockError"} for outcome in outcomes(method))
    assert "DataRaceError" in outcomes(method, check="race")


@pytest.mark.parametrize("name", SUM_TWINS)
def test_racy_twins_of_two_shot_sums_are_wrong_under_some_schedule(monkeypatch, tmp_path, name):
    use_twin(monkeypatch, tmp_path, *SUM_TWINS[name])
    assert any(outcome in {"wrong", "DeadlockError"} for outcome in outcomes("two_shot", gemm_ar))
    assert "DataRaceError" in outcomes("two_shot", gemm_ar, check="race")


@pytest.mark.parametrize("method", ["pipelined", "direct"])
def test_blocks_sent_before_the_slot_is_free_are_a_race(monkeypatch, method):
    """The stream does not wait for the peer's word."""
    where = pieces if method == "pipelined" else module
    queue = where.signal_batch

    def forget(steps, *side_stream):
        queue([step for step in steps if not isinstance(step, where.Wait)], *side_stream)

    monkeypatch.setattr(where, "signal_batch", forget)
    assert "DataRaceError" in outcomes(method, check="race")


def test_the_choice_follows_the_costs(monkeypatch):
    """Few rows: one product; many, and a product that takes longer than the link: blocks; where little is won: the library."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)

    def chosen(rows: int, columns: int, depth: int, device: str = "cuda") -> str:
        return scatter_plan.choose_rs_method("auto", 4, rows, columns, depth, 2, device)

    assert chosen(2, 8192, 2048) == "split" and chosen(512, 4096, 3584) == "pipelined" and chosen(128, 12288, 12288) == "library"
    # From so many multiplications on torch's operator, which takes numbers of 16 bits.
    assert chosen(1024, 4096, 3584) == "torch" == chosen(256, 8192, 7168) and chosen(255, 8192, 7168) != "torch"
    assert scatter_plan.choose_rs_method("auto", 4, 1024, 4096, 3584, 1, "cuda") != "torch"
    assert chosen(2, 8192, 2048, "cpu") == "pipelined"
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    assert chosen(128, 12288, 12288) == "split" and chosen(2048, 12288, 12288) == "pipelined"
    times = [scatter_plan.pipelined_time(4, rows, 8192, 7168, 2) for rows in (256, 512, 1024, 2048)]
    assert times == sorted(times)
    assert scatter_plan.choose_ar_method("auto") == "all_reduce" and scatter_plan.choose_ar_method("small") == "small"


def test_the_choice_between_two_ranks():
    """By what was measured."""

    def chosen(rows: int, columns: int, itemsize: int = 2) -> str:
        return scatter_plan.choose_rs_method("auto", 2, rows, columns, 4096, itemsize, "cuda")

    assert chosen(1, 4096) == chosen(511, 12288) == chosen(512, 4096) == "split"
    assert chosen(512, 5120) == chosen(768, 4096) == chosen(8192, 12288) == "pipelined"
    assert chosen(2048, 8192, itemsize=1) in scatter_plan.RS_METHODS


def test_the_choice_for_sums_on_all_ranks():
    """By the bytes of the result; pieces are larger where a product is short."""

    def chosen(size: int, nbytes: int, rows: int = 1024) -> str:
        return scatter_plan.choose_ar_method("auto", size, rows, nbytes // rows, "cuda")

    sums = [chosen(2, mib << 20) for mib in (1, 2, 8, 9, 16, 17)]
    assert sums == ["all_reduce", "split", "split", "two_shot", "two_shot", "pipelined"]
    sums = [chosen(4, kib << 10) for kib in (256, 512, 32 << 10, 33 << 10)]
    assert sums == ["all_reduce", "two_shot", "two_shot", "pipelined"] and chosen(4, 64 << 20, rows=2) == "two_shot"
    # A heap of 1 GiB, the default, has no room for larger ones.
    rooms = [scatter_plan.choose_ar_method("auto", 2, 1024, mib << 10, "cuda", 1 << 30) for mib in (256, 257)]
    assert rooms == ["pipelined", "all_reduce"]
    deep = [scatter_plan.choose_ar_method("auto", 2, 1024, mib << 10, "cuda", 1 << 30, kib << 10) for mib in (17, 257) for kib in (28, 48)]
    assert deep == ["pipelined", "two_shot", "all_reduce", "all_reduce"]
    counts = [scatter_plan.pieces_of_sum(2, 8192, rows, 16384) for rows in (1, 2048, 4096, 8192, 1 << 20)]
    assert counts == [1, 1, 2, 4, scatter_plan.MAX_PIECES] and scatter_plan.pieces_of_sum(2, 8192, 8192, 4096) == 2


def odd_memory(dtype: torch.dtype, depth: int, which: str) -> float:
    """ "fused" with operands on one rank that no descriptor describes, and then again."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    generator = torch.Generator().manual_seed(depth)
    everyone = [torch.randint(-3, 3, (2, 32, depth), generator=generator).float() for _ in range(size)]
    (a, b), truth = everyone[rank], sum(one[0] @ one[1].t() for one in everyone)
    a, b = a.to(device, dtype), b.to(device, dtype).t()
    if rank == size - 1:
        shifted = torch.empty(a.numel() + 1, dtype=dtype, device=device)
        if which == "address":
            a = shifted[1:].view(a.shape).copy_(a)
        elif which == "columns":
            a = a.t().contiguous().t()
        else:
            b = shifted[1:].view(b.t().shape).copy_(b.t()).t()
    own = truth[32 // size * rank : 32 // size * (rank + 1)]
    return max(relative_error(gemm_rs(a, b, method="fused", out_dtype=torch.bfloat16).float().cpu(), own) for _ in range(3))


@pytest.mark.parametrize("which", ["address", "columns", "b"])
@pytest.mark.parametrize(("dtype", "depth"), [(torch.bfloat16, 64), (torch.bfloat16, 40), (torch.float8_e4m3fn, 64)])
def test_fused_takes_any_strides(world, dtype, depth, which):
    """Also where only one rank's need a copy, and the others wait for it."""
    assert max(world(odd_memory, 2, args=(dtype, depth, which))) < 8e-3
