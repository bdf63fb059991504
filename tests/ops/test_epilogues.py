"""Epilogues of ag_gemm, gemm_rs and gemm_ar against torch in float64, on every method, world size and dtype; and what is refused."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
from tests.differences import relative_error
from tests.ops.test_gemm_rs import TOLERANCE, operands_of, reference_of
from triton_dist import errors
from triton_dist.ops import ag_gemm, gemm_ar, gemm_rs
from triton_dist.ops.gemm import epilogues
from triton_dist.ops.gemm.epilogues import Epilogue
from triton_dist.ops.gemm.plan import Tiles

OWN = [
    *((ag_gemm, method) for method in ("fused", "fused_kernel", "pipelined", "split")),
    *((gemm_rs, method) for method in ("pipelined", "direct", "split", "small")),
    *((gemm_ar, method) for method in ("split", "two_shot", "small", "all_reduce", "pipelined")),
]
BY_LIBRARY = [(ag_gemm, "nccl"), (gemm_rs, "library"), (gemm_ar, "library")]
BY_DESCRIPTORS = [(ag_gemm, "fused"), (ag_gemm, "fused_kernel"), (gemm_rs, "fused")]
TILES = Tiles(m=16, n=32, k=32, programs=5, group=2)
KINDS = ("gelu", "residual", "own")


def names(pairs) -> list[str]:
    return [f"{operator.__name__}-{method}" for operator, method in pairs]


@triton.jit
def clamped_by_row(tile, row, column, inside, limits, columns, slope):
    """A function as a caller might write it: what it does depends on the row, on the column and on the caller's tensors and numbers."""
    limit = tl.load(limits + row, mask=inside, other=0.0).to(tl.float32)
    kept = tl.minimum(tile, limit)
    return tl.where(column == columns - 1, tile, kept * slope + row)


@triton.jit
def halved_without_last(tile, row, column, inside):
    return tl.where(column == 0, tile, tile * 0.5)


@triton.jit
def of_another_shape(tile):
    return tl.sum(tile, axis=1)


def epilogue_of(kind: str, like: torch.Tensor):
    """One for a result like ``like``, (rows, columns), and what it does in float64."""
    rows, columns = like.shape
    if kind == "gelu":
        return epilogues.gelu, torch.nn.functional.gelu
    if kind == "residual":  # by columns, and not of the whole memory
        residual = torch.randn(columns, rows + 3, generator=torch.Generator().manual_seed(5)).to(like)[:, :rows].t()
        return epilogues.add(residual), lambda result: result + residual.cpu().double()
    limits = torch.linspace(-1, 1, rows).to(like)

    def reference(result: torch.Tensor) -> torch.Tensor:
        row = torch.arange(rows).double()[:, None]
        changed = torch.minimum(result, limits.cpu().double()[:, None]) * 0.25 + row
        return torch.cat([changed[:, :-1], result[:, -1:]], dim=1)

    return Epilogue(clamped_by_row, (limits, columns, 0.25)), reference


def body(operator, method: str, kind: str, dtype: torch.dtype, calls: int = 2, rows: int = 15, **options) -> float:
    """One rank: calls back to back with other data each; the worst relative error. rows: a rank."""
    if method in ("library", "nccl") and not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    columns, depth, checks = 37 if "tiles" not in options else 112, 70 if "tiles" not in options else 80, []
    for call in range(calls):
        if operator is ag_gemm:
            shards = [operands_of(other, call, rows, columns, depth, dtype)[0] for other in range(size)]
            a, b = shards[rank], operands_of(0, call, rows, columns, depth, dtype)[1]
            expected = torch.cat(shards).double() @ b.double()
        else:
            a, b = operands_of(rank, call, rows * size, columns, depth, dtype)
            expected = reference_of(operator, call, rows * size, columns, depth, dtype)
        b = b.t().contiguous().t() if "tiles" in options else b
        out_dtype = torch.bfloat16 if dtype.itemsize == 1 else dtype
        bias = torch.linspace(-2, 2, columns).to(out_dtype)
        epilogue, reference = epilogue_of(kind, torch.empty(expected.shape, dtype=out_dtype, device=device))
        extra = {} if operator is ag_gemm else {"bias": bias.to(device)}
        out = operator(a.to(device), b.to(device), method=method, epilogue=epilogue, **extra, **options)
        checks.append((out, reference(expected if operator is ag_gemm else expected + bias.double())))
    return max(relative_error(out, expected) for out, expected in checks)


@pytest.mark.parametrize(("operator", "method"), OWN, ids=names(OWN))
@pytest.mark.parametrize("kind", KINDS)
def test_epilogues_match_torch(world, kind, operator, method):
    assert max(world(body, 3, args=(operator, method, kind, torch.bfloat16))) < 1.2e-2


@pytest.mark.parametrize(("operator", "method"), OWN, ids=names(OWN))
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_epilogues_on_every_world_size(world, world_size, operator, method):
    dtype = (torch.float32, torch.float16, torch.float8_e4m3fn)[world_size.bit_length() % 3]
    assert max(world(body, world_size, args=(operator, method, "own", dtype), seed=world_size)) < max(TOLERANCE[dtype], 1e-6) * 1.5


@pytest.mark.parametrize(("operator", "method"), BY_DESCRIPTORS, ids=names(BY_DESCRIPTORS))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e5m2])
def test_epilogues_of_tiles_that_descriptors_store(world, kind, operator, method, dtype):
    """Sizes that no tile divides."""
    options = {"rows": 72, "tiles": TILES}
    assert max(world(body, 3, args=(operator, method, kind, dtype), kwargs=options)) < TOLERANCE[dtype] * 1.5


@pytest.mark.parametrize(("operator", "method"), BY_LIBRARY, ids=names(BY_LIBRARY))
@pytest.mark.parametrize("kind", KINDS)
def test_epilogues_behind_libraries(kind, operator, method):
    """On simulated ranks only: NCCL wants a GPU for each."""
    assert max(triton_dist.simulate(body, 3, args=(operator, method, kind, torch.bfloat16))) < 1.2e-2


@pytest.mark.parametrize(("operator", "method"), OWN, ids=names(OWN))
def test_epilogues_pass_the_checks(operator, method):
    for seed, schedule in ((0, "random"), (1, "straggler")):
        options = {"seed": seed, "schedule": schedule, "check": "race"}
        triton_dist.simulate(body, 3, args=(operator, method, "own", torch.bfloat16), **options)


def again_with_other_contents(operator, method: str) -> float:
    """The same tensors call after call, so that GPUs replay a graph; what the epilogue reads changes in between, and then its number."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    a, b = (operand.to(device) for operand in operands_of(rank, 0, 12 * size, 48, 32, torch.bfloat16))
    expected = reference_of(gemm_rs if operator is gemm_rs else gemm_ar, 0, 12 * size, 48, 32, torch.bfloat16)
    if operator is ag_gemm:  # each rank's rows of one A, by the first rank's B
        shards = [operands_of(other, 0, 12, 48, 32, torch.bfloat16)[0] for other in range(size)]
        first = operands_of(0, 0, 12, 48, 32, torch.bfloat16)[1]
        a, b, expected = shards[rank].to(device), first.to(device), torch.cat(shards).double() @ first.double()
    residual, out = (torch.zeros(expected.shape, dtype=torch.bfloat16, device=device) for _ in range(2))
    worst = 0.0
    for call in range(5):
        residual.fill_(call)
        operator(a, b, out=out, method=method, epilogue=epilogues.add(residual))
        worst = max(worst, relative_error(out, expected + call))
    operator(a, b, out=out, method=method, epilogue=epilogues.scale(2.0))
    return max(worst, relative_error(out, 2 * expected))


@pytest.mark.parametrize(("operator", "method"), OWN, ids=names(OWN))
def test_epilogues_of_calls_that_come_again(world, operator, method):
    assert max(world(again_with_other_contents, 2, args=(operator, method))) < 1.2e-2


READY_MADE = {
    "relu": (lambda other: epilogues.relu, lambda x, other: x.relu()),
    "silu": (lambda other: epilogues.silu, lambda x, other: torch.nn.functional.silu(x)),
    "scale": (lambda other: epilogues.scale(-0.75), lambda x, other: x * -0.75),
    "scale by a tensor": (lambda other: epilogues.scale(other[0, :1]), lambda x, other: x * other[0, 0]),
    "multiply": (lambda other: epilogues.multiply(other), lambda x, other: x * other),
    "add a row": (lambda other: epilogues.add(other[1]), lambda x, other: x + other[1]),
    "add a stretched column": (lambda other: epilogues.add(other[:, :1].expand(-1, 37)), lambda x, other: x + other[:, :1]),
    "place without arguments": (
        lambda other: halved_without_last,
        lambda x, other: torch.cat([x[:, :1], x[:, 1:] * 0.5], dim=1),
    ),
}


def ready_made(name: str, operator) -> float:
    make, reference = READY_MADE[name]
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    a, b = operands_of(rank, 0, 10 * size, 37, 20, torch.float32)
    expected = reference_of(operator, 0, 10 * size, 37, 20, torch.float32)
    other = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    out = operator(a.to(device), b.to(device), epilogue=make(other.to(device)))
    return relative_error(out, reference(expected, other.double()))


@pytest.mark.parametrize("name", READY_MADE)
@pytest.mark.parametrize("operator", [gemm_rs, gemm_ar])
def test_ready_made_epilogues(world, operator, name):
    assert max(world(ready_made, 2, args=(name, operator))) < 1e-5


def not_a_number() -> bool:
    a = torch.full((2, 4), float("nan"), device=triton_dist.device())
    return bool(gemm_ar(a, a.t().contiguous(), epilogue=epilogues.relu).isnan().all())


def test_relu_keeps_what_is_not_a_number(world):
    assert all(world(not_a_number, 2))


def without_depth() -> list:
    with torch.device(triton_dist.device()):
        row = torch.arange(4.0)
        sums = [operator(torch.empty(4, 0), torch.empty(0, 4), epilogue=epilogues.add(row)) for operator in (gemm_rs, gemm_ar, ag_gemm)]
        nothing = gemm_rs(torch.empty(0, 8), torch.randn(8, 4), epilogue=epilogues.relu)
    return [*[total[-1].tolist() for total in sums], tuple(nothing.shape)]


def test_epilogues_of_empty_sizes(world):
    assert world(without_depth, 2) == [[[0.0, 1.0, 2.0, 3.0]] * 3 + [(0, 4)]] * 2


def square(operator=gemm_rs, **options) -> torch.Tensor:
    return operator(torch.randn(4, 4), torch.randn(4, 4), **options)


def onto_its_own_output() -> torch.Tensor:
    out = torch.zeros(4, 4)
    return square(gemm_ar, out=out, epilogue=epilogues.add(out))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: square(epilogue=torch.relu), "gemm_rs: an epilogue is a function with @triton.jit"),
        (lambda: square(ag_gemm, epilogue=lambda tile: tile), "ag_gemm: an epilogue is a function with @triton.jit"),
        (lambda: square(gemm_ar, epilogue=clamped_by_row), "does not go with 0 arguments; it has to take (tile)"),
        (lambda: Epilogue(clamped_by_row, (1.0,)), "(tile, row, column, inside)"),
        (lambda: Epilogue(clamped_by_row, (1.0, 2, "x")), "tensors and numbers, not 'x'"),
        (lambda: square(epilogue=epilogues.add(torch.zeros(4, 4))), "the epilogue is for a result of (4, 4), and this one is (2, 4)"),
        (lambda: square(epilogue=epilogues.multiply(torch.zeros(3))), "for a result of (None, 3)"),
        (lambda: square(epilogue=epilogues.add(torch.zeros(2, 4, device="meta"))), "is on meta and the result on cpu"),
        (onto_its_own_output, "shares its memory with out"),
        (lambda: epilogues.add(torch.zeros(2, 2, 2)), "has to be (rows, columns) or (columns,)"),
        (lambda: epilogues.multiply(2.0), "has to be (rows, columns) or (columns,)"),
        (lambda: epilogues.scale(torch.ones(2)), "a tensor of one element"),
    ],
)
def test_bad_epilogues_are_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar])
def test_an_epilogue_that_loses_the_shape_is_named(operator):
    with pytest.raises(triton.CompilationError) as caught:
        triton_dist.simulate(square, 2, args=(operator,), kwargs={"epilogue": of_another_shape})
    error, messages = caught.value, []
    while error is not None:  # Triton chains the errors of the functions that call each other
        messages.append(str(error))
        error = error.__cause__
    assert any("an epilogue has to return a tile of the shape that it got" in message for message in messages)


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar])
def test_epilogues_have_no_gradient(operator):
    def call(grad: bool) -> torch.Tensor:
        a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
        with torch.set_grad_enabled(grad):
            return operator(a, b, epilogue=epilogues.relu)

    with pytest.raises(errors.InvalidArgumentError, match="no epilogue is one that autograd knows"):
        triton_dist.simulate(call, 2, args=(True,))
    assert all((out >= 0).all() for out in triton_dist.simulate(call, 2, args=(False,)))


def test_what_an_epilogue_reads_has_no_gradient():
    row = torch.ones(4, requires_grad=True)
    with pytest.raises(errors.InvalidArgumentError, match="no epilogue is one that autograd knows"):
        triton_dist.simulate(square, 2, kwargs={"epilogue": epilogues.add(row)})


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar])
def test_epilogues_are_not_traced(monkeypatch, operator):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(errors.InvalidArgumentError, match="no epilogue is one that torch.compile traces"):
        operator(torch.randn(4, 4), torch.randn(4, 4), epilogue=epilogues.relu)


def test_what_makes_epilogues_the_same_to_a_graph():
    """Addresses, numbers and the place of the part; not the object."""
    row, other = torch.zeros(4), torch.zeros(4)
    assert epilogues.add(row).identity() == epilogues.add(row).identity()
    different = [
        epilogues.add(row), epilogues.add(other), epilogues.multiply(row), epilogues.add(row).after(2), epilogues.scale(2.0),
        epilogues.scale(3.0), epilogues.relu,
    ]  # fmt: skip
    assert len({epilogue.identity() for epilogue in different}) == len(different)
