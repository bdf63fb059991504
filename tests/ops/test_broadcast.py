"""broadcast on every world size, from every rank, of odd sizes and dtypes, from several schedules; and its twins."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import broadcast

module = importlib.import_module("triton_dist.ops.collectives.broadcast")
SHAPES = [(), (3,), (7, 5), (1000,), (33, 129), (2, 3, 4, 5), (1,), (70, 301)]
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool, torch.complex64)


def bits_of(rank: int, call: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Any bits, on the CPU, from the rank and the call."""
    generator = torch.Generator().manual_seed(1000 * call + rank)
    most = 2 if dtype == torch.bool else 256
    width = torch.empty((), dtype=dtype).element_size()
    return torch.randint(0, most, (*shape, width), generator=generator, dtype=torch.uint8).view(dtype).squeeze(-1)


def equal_bits(x: torch.Tensor, expected: torch.Tensor) -> bool:
    left, right = (tensor.cpu().contiguous().view(-1).view(torch.uint8) for tensor in (x, expected))
    return x.shape == expected.shape and x.dtype == expected.dtype and torch.equal(left, right)


def body(dtype: torch.dtype = torch.float32, shapes=SHAPES, turns: bool = True) -> bool:
    """One rank: calls of changing sizes, back to back, in place and not; whether all gave what they should. turns: of all ranks."""
    size, rank, device, right = triton_dist.world_size(), triton_dist.rank(), triton_dist.device(), []
    for call, shape in enumerate(shapes):
        source = call % size if turns else 0
        x, expected = bits_of(rank, call, shape, dtype).to(device), bits_of(source, call, shape, dtype)
        if call % 3 == 2:
            out = torch.zeros_like(x)
            returned = broadcast(x, source, out=out, method="one_shot")
            right.append((returned is out, out, expected, x, bits_of(rank, call, shape, dtype)))
        else:
            right.append((broadcast(x, source, method="one_shot") is x, x, expected, x, expected))
    return all(same and equal_bits(out, expected) and equal_bits(x, kept) for same, out, expected, x, kept in right)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcasts(world, dtype, world_size):
    assert all(world(body, world_size, args=(dtype,), seed=world_size))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("schedule", ["random", "straggler"])
def test_broadcasts_on_every_schedule(seed, schedule):
    assert all(triton_dist.simulate(body, 4, seed=seed, schedule=schedule))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("check", ["race", "all"])
def test_nothing_is_found_in_broadcast(world_size, check):
    assert all(triton_dist.simulate(body, world_size, args=(torch.float16, [(300,), (5,), (300,), (30_000,), (30_000,)]), check=check))


def into_odd_memory(method: str) -> bool:
    """Each rank's memory begins at another byte, so that the ranks see it as words of different width."""
    if method == "library" and not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, size, device, right = triton_dist.rank(), triton_dist.world_size(), triton_dist.device(), True
    for call, count in enumerate((40, 8192, 65_536, 65_537)):
        expected = bits_of(size - 1, call, (count,), torch.uint8)
        x = torch.zeros(count + 16, dtype=torch.uint8, device=device)[(0, 1, 4, 2)[rank % 4] :][:count]
        x.copy_(bits_of(rank, call, (count,), torch.uint8))
        right &= broadcast(x, size - 1, method=method) is x and equal_bits(x, expected)
    grid = bits_of(rank, 9, (5, 7), torch.int16).to(device).t()  # not contiguous
    expected = bits_of(0, 9, (5, 7), torch.int16).t()
    out = torch.zeros(7, 5, dtype=torch.int16, device=device)
    right &= broadcast(grid, 0, out=out, method=method) is out and equal_bits(out, expected)
    right &= broadcast(grid, 0, method=method) is grid and equal_bits(grid, expected)
    right &= broadcast(out, 0, out=out, method=method) is out and equal_bits(out, expected)
    lazy = torch.view_as_complex(torch.tensor([[1.0, 2.0 + rank]], device=device)).conj()  # not so in memory
    right &= broadcast(lazy, size - 1, method=method).tolist() == [complex(1, -1 - size)]
    return right and broadcast(torch.empty(0, 4, device=device), method=method).shape == (0, 4)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_broadcasts_of_any_alignment(world, world_size):
    assert all(world(into_odd_memory, world_size, args=("one_shot",)))


def test_the_library_broadcasts_the_same():
    """On simulated ranks only: NCCL wants a GPU for each."""
    assert all(triton_dist.simulate(into_odd_memory, 3, args=("library",)))


def from_ranks_of_groups() -> list[float]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank, device = triton_dist.rank(), triton_dist.device()
    team = triton_dist.make_team([2, 0] if rank % 2 == 0 else [3, 1])
    return [
        broadcast(torch.full((9,), float(rank), device=device), 2 + rank % 2, group=group, method="one_shot")[8].item()
        for group in (groups[rank % 2], team)
    ]


def test_the_source_is_a_rank_of_the_world(world):
    assert world(from_ranks_of_groups, 4) == [[2.0, 2.0], [3.0, 3.0], [2.0, 2.0], [3.0, 3.0]]


def broadcasts_on_two_streams() -> bool:
    rank, device, side, found = triton_dist.rank(), triton_dist.device(), triton_dist.Stream(), []
    inputs = [bits_of(rank, call, (300,), torch.float32).to(device) for call in range(6)]
    side.wait_stream(triton_dist.current_stream())
    for call, x in enumerate(inputs):
        if call % 2:
            with triton_dist.stream(side):
                found.append(broadcast(x, 1, method="one_shot"))
        else:
            found.append(broadcast(x, 0, method="one_shot"))
    triton_dist.current_stream().wait_stream(side)
    triton_dist.synchronize()
    return all(equal_bits(x, bits_of(call % 2, call, (300,), torch.float32)) for call, x in enumerate(found))


@pytest.mark.parametrize("world_size", [2, 3])
def test_broadcasts_on_two_streams(world, world_size):
    assert all(world(broadcasts_on_two_streams, world_size))


def test_the_source_may_be_read_meanwhile():
    """In place the source only reads x, so that nothing on another stream races with it."""

    def read_beside() -> float:
        x, side = torch.full((500,), 1.0 + triton_dist.rank()), triton_dist.Stream()
        side.wait_stream(triton_dist.current_stream())
        broadcast(x, 0, method="one_shot")
        if triton_dist.rank() == 0:
            with triton_dist.stream(side):
                return x.sum().item()
        return x.sum().item()

    assert triton_dist.simulate(read_beside, 2, check="race") == [500.0, 500.0]


def test_the_method_of_broadcast_goes_by_bytes_that_leave_the_source():
    sizes = [2**power for power in range(4, 31)]
    largest = {size: max(nbytes for nbytes in sizes if module.choose_method(nbytes, size) == "one_shot") for size in (2, 3, 5)}
    assert sizes[0] < largest[5] < largest[3] < largest[2] < sizes[-1]
    assert [module.choose_method(16, size) for size in (1, 2, 3)] == ["one_shot", "ll", "ll"]
    assert {module.choose_method(nbytes, 4, exact=True) for nbytes in sizes} == {"ll", "one_shot"}
    assert module.choose_method(2**40, 1) == "one_shot"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: broadcast(3), "has to be a tensor"),
        (lambda: broadcast(torch.ones(3), 2), "src=2 is not in the group of ranks [0, 1]"),
        (lambda: broadcast(torch.ones(3), -1), "src=-1 is not in the group"),
        (lambda: broadcast(torch.ones(3), "0"), "an integer"),
        (lambda: broadcast(torch.ones(3), method="tree"), "it has to be one of"),
        (lambda: broadcast(torch.ones(3), out=torch.ones(4)), "it has to be (3,)"),
        (lambda: broadcast(torch.ones(3), out=torch.ones(3, dtype=torch.int32)), "it has to be (3,)"),
        (lambda: broadcast(torch.ones(3, 2), out=torch.ones(2, 3).t()), "contiguous"),
        (lambda: broadcast((x := torch.ones(8))[:4], out=x[2:6]), "out begins at byte 8 of x"),
        (lambda: broadcast(torch.ones(3), method="library", exact=True), "exact=True"),
        (lambda: broadcast(torch.ones(3), method="library"), "init_process_group"),
        (lambda: broadcast(torch.ones(3), group=3), "process group"),
    ],
)
def test_bad_input_of_broadcast_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def outcomes(monkeypatch, tmp_path, right: str, wrong: str, **options) -> set[str]:
    monkeypatch.setattr(module, "broadcast_kernel", twin_of(module, tmp_path, right, wrong).broadcast_kernel)
    seen = set()
    for seed, schedule in [(seed, schedule) for seed in range(3) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(body, 4, args=(torch.int32, [(64,)] * 6, False), seed=seed, schedule=schedule, **options)
            seen.add("right" if all(results) else "wrong")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


MEET = "meet(arrived, peer_arrived, index, size, now, WORDS)"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("now % 2 * capacity", "now % 1 * capacity"),  # one slot: a peer may still read the call before
        (MEET, "tl.load(epochs)"),  # nobody waits
        ("end_call(epochs, now)", "end_call(epochs, now - 1)"),  # every call has the same epoch
    ],
)
def test_racy_twins_of_broadcast_are_named(monkeypatch, tmp_path, right, wrong):
    assert outcomes(monkeypatch, tmp_path, right, wrong, check="race") == {"DataRaceError"}


def test_a_hanging_twin_of_broadcast_is_named(monkeypatch, tmp_path):
    assert outcomes(monkeypatch, tmp_path, MEET, MEET.replace("now", "now + index")) == {"DeadlockError"}
