"""all_reduce against sums in higher precision, on every world size, odd sizes and dtypes, from several schedules; and its twins."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.ops.twins import twin_of
from tests.pairs import every_pair
from triton_dist import errors
from triton_dist.ops import all_reduce

module = importlib.import_module("triton_dist.ops.collectives.all_reduce")
SHAPES = [(1,), (3,), (7, 5), (1000,), (33, 129), (2, 3, 4, 5), (1,), (70, 1000)]
KERNELS = ("ll", "one_shot", "two_shot")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def tensor_of(rank: int, call: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """On the CPU, in the dtype, from the rank and the call."""
    generator = torch.Generator().manual_seed(1000 * call + rank)
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 4).to(dtype)
    return torch.randint(-100, 100, shape, generator=generator).to(dtype)


def expected_of(size: int, call: int, shape: tuple[int, ...], dtype: torch.dtype, op: str) -> torch.Tensor:
    """What the operator promises bit for bit: in float32 (or wider) from the first rank to the last, rounded once."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32 if dtype.is_floating_point else torch.int64
    total = tensor_of(0, call, shape, dtype).to(wide)
    for rank in range(1, size):
        more = tensor_of(rank, call, shape, dtype).to(wide)
        total = {"max": torch.maximum, "min": torch.minimum}.get(op, torch.add)(total, more)
    return (total / size if op == "avg" else total).to(dtype)


def same_bits(out: torch.Tensor, expected: torch.Tensor) -> bool:
    return out.shape == expected.shape and torch.equal(out.cpu().view(torch.uint8), expected.view(torch.uint8))


def body(method: str, dtype: torch.dtype = torch.float32, op: str = "sum", shapes=SHAPES) -> bool:
    """One rank: calls of changing sizes, back to back; whether all gave what they should."""
    size, rank, device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()
    outs = [all_reduce(tensor_of(rank, call, shape, dtype).to(device), op=op, method=method) for call, shape in enumerate(shapes)]
    return all(same_bits(out, expected_of(size, call, shapes[call], dtype, op)) for call, out in enumerate(outs))


CASES = every_pair([1, 2, 3, 4, 5, 8], FLOATS + INTEGERS, KERNELS)


def test_a_program_with_two_pieces_is_among_the_cases():
    """Only so many bytes of 8-byte words make "ll" go through more than one piece in a program."""
    assert (3, torch.int64, "ll") in CASES


@pytest.mark.parametrize(("world_size", "dtype", "method"), CASES)
def test_sums(world, method, dtype, world_size):
    # What many ranks send to all others grows with their square, and its words one by one take the simulator long.
    shapes = SHAPES if method != "ll" or world_size <= 3 else [*SHAPES[:-1], (7, 1001)]
    assert all(world(body, world_size, args=(method, dtype, "sum", shapes), seed=world_size))


@pytest.mark.parametrize("op", ["avg", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("method", KERNELS)
def test_other_reductions(world, method, dtype, op):
    if op == "avg" and not dtype.is_floating_point:
        pytest.skip("an average of integers is refused; see below")
    assert all(world(body, 3, args=(method, dtype, op)))


def on_many_ranks(method: str) -> bool:
    return body(method, torch.bfloat16, "sum", [(257,), (40,), (257,)])


@pytest.mark.parametrize("method", KERNELS)
def test_more_ranks_than_are_unrolled(method):
    assert all(triton_dist.simulate(on_many_ranks, 17, args=(method,)))


def nothing_is_lost() -> list[bool]:
    device, found = triton_dist.device(), []
    for method in KERNELS:
        for op in ("sum", "max", "min"):
            x = torch.zeros(5, device=device)
            x[2:4] = float("nan") if triton_dist.rank() == 1 else 1.0
            found.append(all_reduce(x, op=op, method=method).isnan().tolist() == [False, False, True, True, False])
    return found


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_nan_is_passed_on(world, world_size):
    assert all(all(found) for found in world(nothing_is_lost, world_size))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("schedule", ["random", "straggler"])
@pytest.mark.parametrize("method", KERNELS)
def test_on_every_schedule(method, seed, schedule):
    assert all(triton_dist.simulate(body, 4, args=(method,), seed=seed, schedule=schedule))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("method", KERNELS)
def test_no_data_race(method, world_size):
    shapes = [(300,), (5,), (300,), (40_000,)]
    assert all(triton_dist.simulate(body, world_size, args=(method, torch.float16, "sum", shapes), check="race"))


def into_given_memory(method: str) -> bool:
    if method == "library" and not dist.is_initialized():
        dist.init_process_group("gloo")
    size, rank, device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()
    expected = expected_of(size, 0, (3, 2), torch.int16, "sum")
    odd = torch.zeros(7, dtype=torch.int16, device=device)[1:].view(2, 3)  # aligned to two bytes only
    x = tensor_of(rank, 0, (3, 2), torch.int16).to(device).t()  # not contiguous
    right = all_reduce(x, out=odd, method=method) is odd and same_bits(odd, expected.t().contiguous())
    in_place = tensor_of(rank, 0, (3, 2), torch.int16).to(device)
    right &= all_reduce(in_place, out=in_place, method=method) is in_place and same_bits(in_place, expected)
    return right and all_reduce(torch.empty(0, 4, device=device), method=method).shape == (0, 4)


@pytest.mark.parametrize("method", KERNELS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_sums_of_any_alignment_and_in_place(world, world_size, method):
    assert all(world(into_given_memory, world_size, args=(method,)))


def large_of_a_team() -> bool:
    """Large enough for the library, which has no group for a team of this package's, and on GPUs does not add int16."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    size = triton_dist.world_size()
    x = torch.ones(5 << 20, dtype=torch.int16, device=triton_dist.device())
    return all(bool((all_reduce(x, group=group) == size).all()) for group in (triton_dist.make_team(range(size)), None))


def test_large_tensors_of_a_team(world):
    assert all(world(large_of_a_team, 2))


def test_the_library_is_given_the_same():
    """On simulated ranks only: NCCL wants a GPU for each."""
    assert all(triton_dist.simulate(into_given_memory, 3, args=("library",)))


def in_subgroups() -> list[float]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank = triton_dist.rank()
    x = torch.full((5,), float(rank), device=triton_dist.device())
    return [all_reduce(x, group=groups[rank % 2], method=method)[3].item() for method in KERNELS]


def test_sums_of_subgroups(world):
    assert world(in_subgroups, 4) == [[2.0] * 3, [4.0] * 3, [2.0] * 3, [4.0] * 3]


def test_the_method_goes_by_bytes():
    sizes = [2**power for power in range(4, 31)]
    for ranks, methods in (
        (1, "one_shot"),
        (2, "ll one_shot library"),
        (4, "ll two_shot library"),
        (8, "ll one_shot two_shot library"),
        (9, "one_shot two_shot library"),
    ):
        order = [module.METHODS.index(module.choose_method(nbytes, ranks)) for nbytes in sizes]
        assert order == sorted(order) and {module.METHODS[number] for number in order} == set(methods.split())
        exact = {module.choose_method(nbytes, ranks, exact=True) for nbytes in sizes}
        assert exact == set(methods.split()) - {"library"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: all_reduce(3), "has to be a tensor"),
        (lambda: all_reduce(torch.ones(3), method="ring"), "it has to be one of"),
        (lambda: all_reduce(torch.ones(3), op="prod"), "it has to be one of"),
        (lambda: all_reduce(torch.ones(3, dtype=torch.int32), op="avg"), "take the sum"),
        (lambda: all_reduce(torch.ones(3, dtype=torch.complex64)), "can't be reduced"),
        (lambda: all_reduce(torch.ones(3), out=torch.ones(4)), "it has to be (3,)"),
        (lambda: all_reduce(torch.ones(3), out=torch.ones(3, dtype=torch.int32)), "it has to be (3,)"),
        (lambda: all_reduce(torch.ones(3, 2), out=torch.ones(2, 3).t()), "contiguous"),
        (lambda: all_reduce(torch.ones(3), method="library", exact=True), "keeps to this package"),
        (lambda: all_reduce(torch.ones(3), method="library"), "init_process_group"),
        (lambda: all_reduce(torch.ones(3), group=3), "process group"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def outcomes(monkeypatch, tmp_path, method: str, right: str, wrong: str, **options) -> set[str]:
    home = importlib.import_module(f"triton_dist.ops.collectives.{'two_shot' if method == 'two_shot' else 'all_reduce'}")
    monkeypatch.setattr(home, f"{method}_kernel", getattr(twin_of(home, tmp_path, right, wrong), f"{method}_kernel"))
    seen = set()
    for seed, schedule in [(seed, schedule) for seed in range(3) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(body, 4, args=(method, torch.int32, "sum", [(64,)] * 6), seed=seed, schedule=schedule, **options)
            seen.add("right" if all(results) else "wrong")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


@pytest.mark.parametrize(
    ("method", "right", "wrong"),
    [
        ("one_shot", "now % 2 * capacity", "now % 1 * capacity"),  # one slot: a peer may still read the call before
        ("one_shot", "meet(arrived, peer_arrived, index, SIZE, now, WORDS)", "tl.load(epochs)"),  # nobody waits
        ("two_shot", "meet_again(done, ending, now, SIZE, WORDS)", "now"),
        ("two_shot", "tl.store(epochs + program, now)", "tl.store(epochs + program, now - 1)"),  # every call has the same epoch
    ],
)
def test_racy_twins_are_named(monkeypatch, tmp_path, method, right, wrong):
    assert outcomes(monkeypatch, tmp_path, method, right, wrong, check="race") == {"DataRaceError"}


def test_a_hanging_twin_is_named(monkeypatch, tmp_path):
    right = "meet_again(done, ending, now, SIZE, WORDS)"
    assert outcomes(monkeypatch, tmp_path, "two_shot", right, right.replace("now", "now + index")) == {"DeadlockError"}


def of_a_graph(method: str) -> tuple[bool, bool]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    x = torch.ones(64, requires_grad=True)
    made = all_reduce(x * 2, op="max", method=method)
    memory = torch.arange(100.0)
    strided = all_reduce(memory[::2], out=memory[25:75], method=method)
    return made.requires_grad, torch.equal(strided, torch.arange(100.0)[::2] * triton_dist.world_size())


@pytest.mark.parametrize("method", [*KERNELS, "library"])
def test_every_method_is_the_same_to_autograd_and_of_overlapping_memory(method):
    assert triton_dist.simulate(of_a_graph, 2, args=(method,)) == [(False, True)] * 2
