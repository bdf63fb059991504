"""reduce_scatter against sums in higher precision, on every world size, odd sizes and dtypes, from several schedules; and its twins."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.differences import relative_error
from tests.ops.test_all_reduce import FLOATS, INTEGERS, expected_of, same_bits, tensor_of
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_reduce, reduce_scatter

module = importlib.import_module("triton_dist.ops.collectives.reduce_scatter")
SHAPES = [(1,), (3,), (7, 5), (1000,), (33, 43), (2, 3, 4, 5), (1,), (70, 300)]
"""Of a part."""


def whole(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (triton_dist.world_size() * shape[0], *shape[1:])


def part_expected(call: int, shape: tuple[int, ...], dtype: torch.dtype, op: str = "sum") -> torch.Tensor:
    rank = triton_dist.rank()
    return expected_of(triton_dist.world_size(), call, whole(shape), dtype, op)[rank * shape[0] : (rank + 1) * shape[0]]


def body(dtype: torch.dtype = torch.float32, op: str = "sum", shapes=SHAPES) -> bool:
    """One rank: calls of changing sizes, back to back; whether all gave what they should."""
    rank, device = triton_dist.rank(), triton_dist.device()
    inputs = [tensor_of(rank, call, whole(shape), dtype).to(device) for call, shape in enumerate(shapes)]
    outs = [reduce_scatter(x, op=op, method="one_shot") for x in inputs]
    return all(same_bits(out, part_expected(call, shapes[call], dtype, op)) for call, out in enumerate(outs))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_sums_of_parts(world, dtype, world_size):
    assert all(world(body, world_size, args=(dtype,), seed=world_size))


@pytest.mark.parametrize("op", ["avg", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_other_reductions_of_parts(world, dtype, op):
    if op == "avg" and not dtype.is_floating_point:
        pytest.skip("an average of integers is refused; see below")
    assert all(world(body, 3, args=(dtype, op)))


def test_parts_of_more_ranks_than_are_unrolled():
    assert all(triton_dist.simulate(body, 17, args=(torch.bfloat16, "sum", [(257,), (40,), (257,)])))


def close_to_the_truth(dtype: torch.dtype) -> float:
    """The worst error beside a sum in float64, in units of the largest result."""
    rank, size, shape = triton_dist.rank(), triton_dist.world_size(), whole((500,))
    out = reduce_scatter(tensor_of(rank, 0, shape, dtype).to(triton_dist.device())).cpu().double()
    truth = sum(tensor_of(peer, 0, shape, dtype).double() for peer in range(size))[rank * 500 : (rank + 1) * 500]
    return relative_error(out, truth)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-15), (torch.float32, 3e-7), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
def test_parts_are_rounded_once(world, dtype, bound):
    assert max(world(close_to_the_truth, 3, args=(dtype,))) <= bound


def as_all_reduce_has_them() -> bool:
    rank, x = triton_dist.rank(), tensor_of(triton_dist.rank(), 0, whole((77,)), torch.bfloat16).to(triton_dist.device())
    return torch.equal(reduce_scatter(x, method="one_shot"), all_reduce(x, method="two_shot")[rank * 77 : (rank + 1) * 77])


@pytest.mark.parametrize("world_size", [2, 3])
def test_parts_have_the_bits_of_all_reduce(world, world_size):
    assert all(world(as_all_reduce_has_them, world_size))


def nan_parts() -> list[bool]:
    device, found = triton_dist.device(), []
    for op in ("sum", "max", "min"):
        x = torch.zeros(whole((5,)), device=device)
        x[2:4] = float("nan") if triton_dist.rank() == 1 else 1.0
        found.append(
            reduce_scatter(x, op=op, method="one_shot").isnan().tolist()
            == [triton_dist.rank() == 0 and place in (2, 3) for place in range(5)]
        )
    return found


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_nan_of_a_part_is_passed_on(world, world_size):
    assert all(all(found) for found in world(nan_parts, world_size))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("schedule", ["random", "straggler"])
def test_parts_on_every_schedule(seed, schedule):
    assert all(triton_dist.simulate(body, 4, seed=seed, schedule=schedule))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("check", ["race", "all"])
def test_nothing_is_found_in_reduce_scatter(world_size, check):
    shapes = [(300,), (5,), (300,), (20_000,)]
    assert all(triton_dist.simulate(body, world_size, args=(torch.float16, "sum", shapes), check=check))


def parts_in_given_memory(method: str) -> bool:
    if method == "library" and not dist.is_initialized():
        dist.init_process_group("gloo")
    size, rank, device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()
    columns = 3 * size
    truth = expected_of(size, 0, (2, columns), torch.int16, "sum").t().contiguous()[rank * 3 : rank * 3 + 3]
    odd = torch.zeros(7, dtype=torch.int16, device=device)[1:].view(3, 2)  # aligned to two bytes only
    x = tensor_of(rank, 0, (2, columns), torch.int16).to(device).t()  # not contiguous
    right = reduce_scatter(x, out=odd, method=method) is odd and same_bits(odd, truth)
    in_place = x.contiguous()
    mine = in_place[rank * 3 : rank * 3 + 3]
    right &= reduce_scatter(in_place, out=mine, method=method) is mine and same_bits(mine.clone(), truth)
    before, after = x[: rank * 3], x[rank * 3 + 3 :]
    right &= torch.equal(in_place[: rank * 3], before) and torch.equal(in_place[rank * 3 + 3 :], after)
    return right and reduce_scatter(torch.empty(2 * size, 0, device=device), method=method).shape == (2, 0)


@pytest.mark.parametrize("world_size", [2, 3])
def test_parts_of_any_alignment_and_in_place(world, world_size):
    assert all(world(parts_in_given_memory, world_size, args=("one_shot",)))


def test_in_place_parts_do_not_race():
    def many() -> None:
        x = torch.ones(whole((9000,)))
        for _ in range(3):
            reduce_scatter(x, out=x[triton_dist.rank() * 9000 :][:9000])

    triton_dist.simulate(many, 2, check="race")


def test_the_library_is_given_the_same_parts():
    """On simulated ranks only: NCCL wants a GPU for each."""
    assert all(triton_dist.simulate(parts_in_given_memory, 3, args=("library",)))


def parts_of_subgroups() -> list[float]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank, device = triton_dist.rank(), triton_dist.device()
    x = torch.arange(10.0, device=device) + 100 * rank
    team = triton_dist.make_team([2, 0] if rank % 2 == 0 else [3, 1])  # another order: part 0 is rank 2's
    return [reduce_scatter(x, group=group, method="one_shot")[3].item() for group in (groups[rank % 2], team)]


def test_parts_of_subgroups(world):
    first, last = 3 + 3 + 200.0, 8 + 8 + 200.0
    assert world(parts_of_subgroups, 4) == [[first, last], [first + 200, last + 200], [last, first], [last + 200, first + 200]]


def parts_on_two_streams() -> bool:
    """Each stream has its own memory, and calls on one do not wait for those on the other."""
    rank, device = triton_dist.rank(), triton_dist.device()
    side, outs = triton_dist.Stream(), []
    inputs = [tensor_of(rank, call, whole((300,)), torch.float32).to(device) for call in range(6)]
    side.wait_stream(triton_dist.current_stream())
    for call, x in enumerate(inputs):
        if call % 2:
            with triton_dist.stream(side):
                outs.append(reduce_scatter(x, method="one_shot"))
        else:
            outs.append(reduce_scatter(x, method="one_shot"))
    triton_dist.current_stream().wait_stream(side)
    triton_dist.synchronize()
    return all(same_bits(out, part_expected(call, (300,), torch.float32)) for call, out in enumerate(outs))


@pytest.mark.parametrize("world_size", [2, 3])
def test_parts_on_two_streams(world, world_size):
    assert all(world(parts_on_two_streams, world_size))


def test_the_method_of_reduce_scatter_goes_by_bytes():
    sizes = [2**power for power in range(4, 31)]
    order = [module.choose_method(nbytes, 4) for nbytes in sizes]
    places = [module.METHODS.index(method) for method in order]
    assert set(order) == {"ll", "one_shot", "library"} and places == sorted(places)
    assert [module.choose_method(nbytes, 2) for nbytes in (1 << 10, 1 << 22, 1 << 30)] == ["ll", "one_shot", "library"]
    assert {module.choose_method(nbytes, 4, exact=True) for nbytes in sizes} == {"ll", "one_shot"}
    assert {module.choose_method(nbytes, 1) for nbytes in sizes[:10]} == {"one_shot"}


def taken(dtype: torch.dtype, exact: bool, group: str) -> str:
    """Which method "auto" takes for a tensor beyond the threshold."""
    if group != "no library":
        dist.init_process_group("gloo")
    kernels: list[str] = []
    launch = module.reduce_scatter_launch
    module.reduce_scatter_launch = lambda *arguments: kernels.append("one_shot") or launch(*arguments)
    try:
        team = triton_dist.make_team([0]) if group == "team" else None
        reduce_scatter(torch.ones(64, dtype=dtype), exact=exact, group=team)
    finally:
        module.reduce_scatter_launch = launch
    return kernels[0] if kernels else "library"


@pytest.mark.parametrize(
    ("dtype", "exact", "group", "method"),
    [
        (torch.float32, False, "world", "library"),
        (torch.float32, True, "world", "one_shot"),
        (torch.int16, False, "world", "one_shot"),  # NCCL has no 16-bit integers
        (torch.float32, False, "team", "one_shot"),  # of which torch.distributed knows nothing
        (torch.float32, False, "no library", "one_shot"),
    ],
)
def test_the_library_is_taken_where_it_can(monkeypatch, dtype, exact, group, method):
    monkeypatch.setattr(module, "choose_method", lambda nbytes, size, exact=False: "one_shot" if exact else "library")
    assert triton_dist.simulate(taken, 1, args=(dtype, exact, group)) == [method]


def overlapping() -> None:
    x = torch.ones(8)
    reduce_scatter(x, out=x[1:5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: reduce_scatter(3), "has to be a tensor"),
        (lambda: reduce_scatter(torch.ones(3)), "it has to be a multiple of 2"),
        (lambda: reduce_scatter(torch.tensor(3.0)), "it has to be a multiple of 2"),
        (lambda: reduce_scatter(torch.ones(4), method="two_shot"), "it has to be one of"),
        (lambda: reduce_scatter(torch.ones(4), op="prod"), "it has to be one of"),
        (lambda: reduce_scatter(torch.ones(4, dtype=torch.int32), op="avg"), "take the sum"),
        (lambda: reduce_scatter(torch.ones(4, dtype=torch.complex64)), "can't be reduced"),
        (lambda: reduce_scatter(torch.ones(4), out=torch.ones(4)), "it has to be (2,)"),
        (lambda: reduce_scatter(torch.ones(4), out=3), "out has to be a tensor"),
        (lambda: reduce_scatter(torch.ones(4), out=torch.ones(2, dtype=torch.int32)), "it has to be (2,)"),
        (lambda: reduce_scatter(torch.ones(4, 2), out=torch.ones(2, 2).t()), "contiguous"),
        (overlapping, "out begins at byte 4 of x"),
        (lambda: reduce_scatter(torch.ones(4), method="library", exact=True), "exact=True"),
        (lambda: reduce_scatter(torch.ones(4), method="library"), "init_process_group"),
        (lambda: reduce_scatter(torch.ones(4), group=3), "process group"),
    ],
)
def test_bad_input_of_reduce_scatter_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def test_a_team_has_no_library():
    def call() -> None:
        dist.init_process_group("gloo")
        reduce_scatter(torch.ones(4), method="library", group=triton_dist.make_team([0, 1]))

    with pytest.raises(errors.InvalidArgumentError, match="needs a torch.distributed process group"):
        triton_dist.simulate(call, 2)


def outcomes(monkeypatch, tmp_path, right: str, wrong: str, **options) -> set[str]:
    monkeypatch.setattr(module, "reduce_scatter_kernel", twin_of(module, tmp_path, right, wrong).reduce_scatter_kernel)
    seen = set()
    for seed, schedule in [(seed, schedule) for seed in range(3) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(body, 4, args=(torch.int32, "sum", [(64,)] * 6), seed=seed, schedule=schedule, **options)
            seen.add("right" if all(results) else "wrong")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


MEET = "meet(arrived, peer_arrived, index, SIZE, now, WORDS)"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("now % 2 * capacity", "now % 1 * capacity"),  # one slot: a peer may still read the call before
        (MEET, "tl.load(epochs)"),  # nobody waits
        ("end_call(epochs, now)", "end_call(epochs, now - 1)"),  # every call has the same epoch
    ],
)
def test_racy_twins_of_reduce_scatter_are_named(monkeypatch, tmp_path, right, wrong):
    assert outcomes(monkeypatch, tmp_path, right, wrong, check="race") == {"DataRaceError"}


def test_a_hanging_twin_of_reduce_scatter_is_named(monkeypatch, tmp_path):
    assert outcomes(monkeypatch, tmp_path, MEET, MEET.replace("now", "now + index")) == {"DeadlockError"}


def into_its_own_part(count: int) -> bool:
    """Programs write the result over this rank's part of ``x`` while others still read the parts beside it."""
    rank, size, right = triton_dist.rank(), triton_dist.world_size(), []
    for call in range(3):
        x = torch.full((size * count,), float(call + rank), device=triton_dist.device())
        part = x[rank * count : (rank + 1) * count]
        reduce_scatter(x, out=part, method="one_shot")
        right.append(bool((part == size * call + size * (size - 1) // 2).all()))
    return all(right)


@pytest.mark.parametrize("count", [50, 33, 64])
@pytest.mark.parametrize("seed", range(3))
def test_parts_beside_the_result_are_not_read(seed, count, monkeypatch):
    monkeypatch.setattr("triton_dist.ops.collectives.staging.BYTES_A_PROGRAM", 64)
    assert all(triton_dist.simulate(into_its_own_part, 3, args=(count,), seed=seed, check="race"))
