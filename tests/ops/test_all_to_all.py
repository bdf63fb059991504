"""all_to_all of equal parts and of numbers of rows on the device, on every world size, from several schedules; and its twins."""

from __future__ import annotations

import importlib

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.ops.test_broadcast import bits_of, equal_bits
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_to_all

module = importlib.import_module("triton_dist.ops.collectives.all_to_all")
SHAPES = [(1,), (3,), (7, 5), (1000,), (33, 43), (2, 3, 4, 5), (1,), (70, 300)]
"""Of a part."""
DTYPES = (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.uint8, torch.bool, torch.complex64)


def whole(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (triton_dist.world_size() * shape[0], *shape[1:])


def parts_expected(call: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    rank, rows = triton_dist.rank(), shape[0]
    sent = [bits_of(peer, call, whole(shape), dtype) for peer in range(triton_dist.world_size())]
    return torch.cat([x[rank * rows : (rank + 1) * rows] for x in sent])


def body(dtype: torch.dtype = torch.float32, shapes=SHAPES) -> bool:
    """One rank: calls of changing sizes, back to back; whether all gave what they should."""
    rank, device = triton_dist.rank(), triton_dist.device()
    outs = [all_to_all(bits_of(rank, call, whole(shape), dtype).to(device), method="one_shot") for call, shape in enumerate(shapes)]
    return all(equal_bits(out, parts_expected(call, shapes[call], dtype)) for call, out in enumerate(outs))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_exchanges_of_equal_parts(world, dtype, world_size):
    assert all(world(body, world_size, args=(dtype,), seed=world_size))


Splits = list[list[int]]
"""``[sender][receiver]``: rows."""


def random_splits(seed: int, size: int, most: int) -> Splits:
    """Many zeros, and one rank that is sent more than others."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, most + 1, (size, size), generator=generator)
    numbers[torch.rand(size, size, generator=generator) < 0.3] = 0
    numbers[:, seed % size] *= 2
    return numbers.tolist()


def rows_expected(call: int, splits: Splits, row: tuple[int, ...], dtype: torch.dtype, rows: int) -> torch.Tensor:
    """The rows for this rank, on the CPU, by torch's own splitting."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    sent = [bits_of(peer, call, (rows, *row), dtype)[: sum(splits[peer])] for peer in range(size)]
    return torch.cat([x.split(splits[peer])[rank] for peer, x in enumerate(sent)])


def exchange(call: int, splits: Splits, row: tuple[int, ...], dtype: torch.dtype, rows: int, number: torch.dtype) -> tuple:
    """One call on this rank: what came, and what should have."""
    rank, device = triton_dist.rank(), triton_dist.device()
    column = torch.tensor([numbers[rank] for numbers in splits], dtype=number)
    x = bits_of(rank, call, (rows, *row), dtype).to(device)
    out, received = all_to_all(x, torch.tensor(splits[rank], dtype=number, device=device), capacity=sum(column.tolist()) + call % 3)
    return out, received, rows_expected(call, splits, row, dtype, rows), column


def by_splits(dtype: torch.dtype = torch.float32, row: tuple[int, ...] = (3,), most: int = 20, number: torch.dtype = torch.int32) -> bool:
    size, calls = triton_dist.world_size(), []
    for call in range(6):
        splits = random_splits(call, size, (most, 1, 0, most)[call % 4])
        rows = (size + 1) * (most + 1)
        calls.append(exchange(call, splits, row, dtype, rows, number))
    return all(equal_bits(received, column) and equal_bits(out[: len(expected)], expected) for out, received, expected, column in calls)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool])
def test_exchanges_by_splits(world, dtype, world_size):
    assert all(world(by_splits, world_size, args=(dtype,), seed=world_size))


@pytest.mark.parametrize("number", [torch.int32, torch.int64])
@pytest.mark.parametrize("row", [(), (1,), (16,), (64, 2), (7, 9), (0,), (700,)])
def test_exchanges_of_rows_of_any_width(world, row, number):
    assert all(world(by_splits, 3, args=(torch.int16, row, 9, number)))


def test_many_rows_for_one_rank(world):
    """Most programs move nothing but the one long part."""
    assert all(world(to_the_last, 2))


def to_the_last() -> bool:
    size = triton_dist.world_size()
    splits = [[0] * (size - 1) + [900] for _ in range(size)]
    out, received, expected, column = exchange(0, splits, (33,), torch.float32, 1000, torch.int64)
    return equal_bits(received, column) and equal_bits(out[: len(expected)], expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("schedule", ["random", "straggler"])
@pytest.mark.parametrize("run", [body, by_splits])
def test_exchanges_on_every_schedule(run, seed, schedule):
    assert all(triton_dist.simulate(run, 4, seed=seed, schedule=schedule))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("check", ["race", "all"])
def test_nothing_is_found_in_all_to_all(world_size, check):
    assert all(triton_dist.simulate(body, world_size, args=(torch.float16, [(300,), (5,), (300,), (20_000,)]), check=check))
    assert all(triton_dist.simulate(by_splits, world_size, args=(torch.float16, (70,), 200), check=check))


def parts_of_odd_memory(method: str) -> bool:
    """Each rank's memory begins at another byte, so that the ranks see it as words of different width."""
    if method == "library" and not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, size, device, right = triton_dist.rank(), triton_dist.world_size(), triton_dist.device(), True
    for call, count in enumerate((40, 8192, 65_536, 65_537)):
        x = torch.zeros(size * count + 16, dtype=torch.uint8, device=device)[(0, 1, 4, 2)[rank % 4] :][: size * count]
        x.copy_(bits_of(rank, call, (size * count,), torch.uint8))
        out = torch.zeros_like(x)
        right &= all_to_all(x, out=out, method=method) is out and equal_bits(out, parts_expected(call, (count,), torch.uint8))
        right &= all_to_all(x, out=x, method=method) is x and equal_bits(x, out)
    grid = bits_of(rank, 9, (7, 3 * size), torch.int16).to(device).t()  # not contiguous
    sent = [bits_of(peer, 9, (7, 3 * size), torch.int16).t()[3 * rank : 3 * rank + 3] for peer in range(size)]
    right &= equal_bits(all_to_all(grid, method=method), torch.cat(sent))
    return right and all_to_all(torch.empty(2 * size, 0, device=device), method=method).shape == (2 * size, 0)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_exchanges_of_any_alignment_and_in_place(world, world_size):
    assert all(world(parts_of_odd_memory, world_size, args=("one_shot",)))


def test_the_library_exchanges_the_same():
    """On simulated ranks only: NCCL wants a GPU for each."""
    assert all(triton_dist.simulate(parts_of_odd_memory, 3, args=("library",)))


def rows_of_odd_memory() -> bool:
    """Given memory, rows that are not contiguous, splits that are not, and x seen as bytes on one rank and as words on others."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    splits = random_splits(0, size, 30)
    rows, column = 200, [numbers[rank] for numbers in splits]
    memory = torch.zeros(rows * 8 + 8, dtype=torch.uint8, device=device)
    x = memory[rank % 2 :][: rows * 8].view(rows, 8)
    x.copy_(bits_of(rank, 0, (rows, 8), torch.uint8))
    numbers = torch.tensor([[number, 0] for number in splits[rank]], device=device)[:, 0]
    out = torch.full((sum(column) + 2, 8), 7, dtype=torch.uint8, device=device)
    received = torch.zeros(size, dtype=torch.int64, device=device)
    returned = all_to_all(x, numbers, out=out, received=received, check=True)
    expected = rows_expected(0, splits, (8,), torch.uint8, rows)
    right = returned[0] is out and returned[1] is received and received.tolist() == column
    return right and equal_bits(out[:-2], expected) and out[-2:].tolist() == [[7] * 8] * 2


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_rows_of_any_alignment(world, world_size):
    assert all(world(rows_of_odd_memory, world_size))


def too_many_rows(row: int) -> tuple:
    """Rank 0 has room for 5 rows of 3 from each; memory behind its out is looked at, too."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    room = 5 if rank == 0 else 3 * size
    memory = torch.full((room + 4, row), -1.0, device=device)
    x = (torch.arange(3.0 * size, device=device)[:, None] + 100 * rank).expand(-1, row)
    splits = torch.full((size,), 3, dtype=torch.int32, device=device)
    out, received = all_to_all(x, splits, out=memory[:room])
    first = memory[:, -1].tolist()
    fitting = [100.0 * peer + 3 * rank + number for peer in range(size) for number in range(3)][:room]
    try:
        all_to_all(x, splits, out=memory[:room], check=True)
        said = ""
    except errors.ReceiveCapacityError as error:
        said = str(error)
    return first == fitting + [-1.0] * 4, received.tolist() == [3] * size, said


@pytest.mark.parametrize("row", [1, 4, 300])
@pytest.mark.parametrize("world_size", [2, 3])
def test_what_has_no_room_is_left_out_and_told(world, world_size, row):
    results = world(too_many_rows, world_size, args=(row,))
    assert all(fits and told for fits, told, _ in results)
    assert f"{3 * world_size} rows in all, and out has room for 5" in results[0][2] and f"capacity={3 * world_size}" in results[0][2]
    assert [said for _, _, said in results[1:]] == [""] * (world_size - 1)


def impossible_splits(wrong: list[int]) -> tuple:
    rank, device = triton_dist.rank(), triton_dist.device()
    x = torch.full((6, 2), float(rank), device=device)
    splits = torch.tensor(wrong if rank == 1 else [2, 2, 2], device=device)
    out, received = all_to_all(x, splits, capacity=20)
    rows = out[:4, 0].tolist()
    try:
        all_to_all(x, splits, capacity=20, check=True)
        said = ""
    except errors.InvalidArgumentError as error:
        said = str(error)
    again, _ = all_to_all(x, torch.tensor([2, 2, 2], device=device), capacity=6)
    return received.tolist(), rows, said, again[:, 0].tolist()


@pytest.mark.parametrize("wrong", [[2, -1, 2], [3, 2, 2], [2**62, 2**62, 2**62], [-(2**63), 0, 0], [7, 0, 0]])
def test_impossible_splits_send_nothing_and_are_told(world, wrong):
    for received, rows, said, again in world(impossible_splits, 3, args=(wrong,)):
        assert received == [2, -1, 2] and rows == [0.0, 0.0, 2.0, 2.0] and again == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
        assert "ranks [1] have a negative number" in said


def in_groups() -> list[list[float]]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    groups = [dist.new_group([0, 2], backend="gloo"), dist.new_group([1, 3], backend="gloo")]
    rank, device, found = triton_dist.rank(), triton_dist.device(), []
    team = triton_dist.make_team([2, 0] if rank % 2 == 0 else [3, 1])
    x = torch.arange(4.0, device=device) + 10 * rank
    for group in (groups[rank % 2], team):
        found.append(all_to_all(x, group=group, method="one_shot").tolist())
        out, _ = all_to_all(x, torch.tensor([1, 3], device=device), capacity=8, group=group)
        found.append(out[: 2 if group is team and rank > 1 or group is not team and rank < 2 else 6].tolist())
    return found


def test_exchanges_in_subgroups(world):
    for rank, (equal, counted, team_equal, team_counted) in enumerate(world(in_groups, 4)):
        low, high = 10.0 * (rank % 2), 10.0 * (rank % 2 + 2)
        first, second = [low, low + 1, high, high + 1], [low + 2, low + 3, high + 2, high + 3]
        one, three = [low, high], [low + 1, low + 2, low + 3, high + 1, high + 2, high + 3]
        swap = lambda rows: rows[len(rows) // 2 :] + rows[: len(rows) // 2]  # noqa: E731
        assert equal == (first if rank < 2 else second) and counted == (one if rank < 2 else three)
        assert team_equal == swap(second if rank < 2 else first) and team_counted == swap(three if rank < 2 else one)


def on_two_streams() -> bool:
    rank, device, side, outs = triton_dist.rank(), triton_dist.device(), triton_dist.Stream(), []
    inputs = [bits_of(rank, call, whole((300,)), torch.float32).to(device) for call in range(6)]
    side.wait_stream(triton_dist.current_stream())
    for call, x in enumerate(inputs):
        if call % 2:
            with triton_dist.stream(side):
                outs.append(all_to_all(x, method="one_shot"))
        else:
            outs.append(all_to_all(x, method="one_shot"))
    triton_dist.current_stream().wait_stream(side)
    triton_dist.synchronize()
    return all(equal_bits(out, parts_expected(call, (300,), torch.float32)) for call, out in enumerate(outs))


@pytest.mark.parametrize("world_size", [2, 3])
def test_exchanges_on_two_streams(world, world_size):
    assert all(world(on_two_streams, world_size))


def test_the_method_of_all_to_all_goes_by_bytes():
    sizes = [2**power for power in range(4, 31)]
    order = [module.choose_method(nbytes, 4) for nbytes in sizes]
    places = [module.METHODS.index(method) for method in order]
    assert set(order) == {"ll", "one_shot", "library"} and places == sorted(places)
    assert {module.choose_method(nbytes, 4, exact=True) for nbytes in sizes} == {"ll", "one_shot"}
    assert module.choose_method(2**40, 1) == module.choose_method(8, 1) == "one_shot"


TWO = torch.tensor([1, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: all_to_all(3), "has to be a tensor"),
        (lambda: all_to_all(torch.ones(3)), "it has to be a multiple of 2"),
        (lambda: all_to_all(torch.ones(4), method="ring"), "it has to be one of"),
        (lambda: all_to_all(torch.ones(4), out=torch.ones(2)), "it has to be (4,)"),
        (lambda: all_to_all(torch.ones(4), out=torch.ones(4, dtype=torch.int32)), "it has to be (4,)"),
        (lambda: all_to_all((x := torch.ones(6))[:4], out=x[2:]), "out begins at byte 8 of x"),
        (lambda: all_to_all(torch.ones(4), capacity=4), "equal parts always fit"),
        (lambda: all_to_all(torch.ones(4), check=True), "equal parts always fit"),
        (lambda: all_to_all(torch.ones(4), method="library", exact=True), "exact=True"),
        (lambda: all_to_all(torch.ones(4), method="library"), "init_process_group"),
        (lambda: all_to_all(torch.ones(4), group=3), "process group"),
        (lambda: all_to_all(torch.ones(4), TWO), "pass capacity"),
        (lambda: all_to_all(torch.ones(4), TWO, capacity=-1), "pass capacity"),
        (lambda: all_to_all(torch.ones(4), TWO, capacity=3, out=torch.ones(4)), "capacity=3 with out=given"),
        (lambda: all_to_all(torch.ones(4), [1, 1], capacity=4), "splits is [1, 1]"),
        (lambda: all_to_all(torch.ones(4), torch.ones(3, dtype=torch.int32), capacity=4), "splits is (3,) torch.int32"),
        (lambda: all_to_all(torch.ones(4), torch.ones(2), capacity=4), "splits is (2,) torch.float32"),
        (lambda: all_to_all(torch.ones(4), TWO, capacity=4, received=torch.ones(3, dtype=torch.int64)), "received is (3,)"),
        (lambda: all_to_all(torch.ones(4), TWO, capacity=4, received=torch.ones(2, dtype=torch.int32)), "splits' dtype"),
        (lambda: all_to_all(torch.ones(4), TWO, capacity=4, received=TWO), "memory of its own"),
        (lambda: all_to_all(torch.ones(4, 2), TWO, out=torch.ones(4, 3)), "it has to be (4, 2)"),
        (lambda: all_to_all(x := torch.ones(4), TWO, out=x), "no memory with x"),
        (lambda: all_to_all(torch.tensor(1.0), TWO, capacity=1), "at least one dimension"),
    ],
)
def test_bad_input_of_all_to_all_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def test_splits_have_no_library():
    def call() -> None:
        dist.init_process_group("gloo")
        all_to_all(torch.ones(4), TWO, capacity=4, method="library")

    with pytest.raises(errors.InvalidArgumentError, match="takes no splits on the device"):
        triton_dist.simulate(call, 2)


def test_a_check_in_a_capture_is_named(monkeypatch):
    monkeypatch.setattr(module, "in_capture", lambda what: True)
    with pytest.raises(errors.CaptureError, match="look at received behind a replay"):
        triton_dist.simulate(lambda: all_to_all(torch.ones(4), TWO, capacity=4, check=True), 2)


def outcomes(monkeypatch, tmp_path, counted: bool, right: str, wrong: str, **options) -> set[str]:
    monkeypatch.setattr(module, "all_to_all_kernel", twin_of(module, tmp_path, right, wrong).all_to_all_kernel)
    seen = set()
    run, arguments = (by_splits, ()) if counted else (body, (torch.int32, [(64,)] * 6))
    for seed, schedule in [(seed, schedule) for seed in range(3) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(run, 4, args=arguments, seed=seed, schedule=schedule, **options)
            seen.add("right" if all(results) else "wrong")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


MEET = "meet(arrived, peer_arrived, index, size, now, SIZE)"


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("now % 2 * capacity", "now % 1 * capacity"),  # one slot: a peer may still read the call before
        (MEET, "tl.load(epochs)"),  # nobody waits
        ("end_call(epochs, now)", "end_call(epochs, now - 1)"),  # every call has the same epoch
    ],
)
def test_racy_twins_of_all_to_all_are_named(monkeypatch, tmp_path, counted, right, wrong):
    assert outcomes(monkeypatch, tmp_path, counted, right, wrong, check="race") == {"DataRaceError"}


def test_a_table_that_all_programs_share_is_named(monkeypatch, tmp_path):
    """Readers meet the program of their own number only, so that they may not read what another one has stored."""
    right = "table = (staging + slot).to(tl.pointer_type(tl.int64)) + program * size"
    wrong = "table = (staging + slot).to(tl.pointer_type(tl.int64)) + (program ^ 1) * size"
    twin = twin_of(module, tmp_path, right, wrong)
    monkeypatch.setattr(module, "all_to_all_kernel", twin.all_to_all_kernel)
    with pytest.raises(errors.DataRaceError):
        triton_dist.simulate(by_splits, 3, args=(torch.float32, (700,), 20), check="race")


@pytest.mark.parametrize("counted", [False, True])
def test_a_hanging_twin_of_all_to_all_is_named(monkeypatch, tmp_path, counted):
    assert outcomes(monkeypatch, tmp_path, counted, MEET, MEET.replace("now", "now + index")) == {"DeadlockError"}


def test_a_twin_that_writes_what_has_no_room_is_named(monkeypatch, tmp_path):
    twin = twin_of(module, tmp_path, "tl.minimum(lengths, tl.maximum(room - begins, 0))", "tl.minimum(lengths, lengths)")
    monkeypatch.setattr(module, "all_to_all_kernel", twin.all_to_all_kernel)

    def call() -> None:
        all_to_all(torch.ones(8), torch.tensor([4, 4]), capacity=5)

    with pytest.raises(errors.OutOfBoundsError):
        triton_dist.simulate(call, 2)
