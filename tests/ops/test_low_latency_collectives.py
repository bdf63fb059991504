"""The low-latency method of all_gather, reduce_scatter, all_to_all and broadcast: sizes, dtypes, schedules, old flags; and its twins."""

from __future__ import annotations

import importlib

import pytest
import torch

import triton_dist
from tests.ops.test_all_reduce import FLOATS, INTEGERS, expected_of, tensor_of
from tests.ops.test_broadcast import DTYPES, bits_of, equal_bits
from tests.ops.test_low_latency import begin_anew, pretend
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_gather, all_to_all, broadcast, reduce_scatter
from triton_dist.ops.collectives import plans
from triton_dist.ops.collectives.low_latency import CAPACITY, UNIT_BYTES
from triton_dist.ops.collectives.plans import Plan, Row, Table
from triton_dist.runtime.preload import Launch

module = importlib.import_module("triton_dist.ops.collectives.low_latency")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_to_all", "broadcast")
PIECE = CAPACITY * UNIT_BYTES // 4
"""fp32 elements of the largest piece."""
COUNTS = (1, 3, 1000, 7, PIECE, 2 * PIECE + 5, 2)
"""Elements of a part."""


def source_of(call: int) -> int:
    return call // 2 % triton_dist.world_size()


def given(collective: str, rank: int, call: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """A rank's input, on the CPU."""
    size = triton_dist.world_size()
    if collective == "reduce_scatter":
        return tensor_of(rank, call, (size * count,), dtype)
    return bits_of(rank, call, (size * count if collective == "all_to_all" else count,), dtype)


def wanted(collective: str, call: int, count: int, dtype: torch.dtype, op: str = "sum") -> torch.Tensor:
    """What this rank should get."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    own = slice(rank * count, (rank + 1) * count)
    if collective == "reduce_scatter":
        return expected_of(size, call, (size * count,), dtype, op)[own]
    if collective == "broadcast":
        return given(collective, source_of(call), call, count, dtype)
    parts = [given(collective, peer, call, count, dtype) for peer in range(size)]
    return torch.cat(parts if collective == "all_gather" else [part[own] for part in parts])


def run(collective: str, x: torch.Tensor, call: int, **options) -> torch.Tensor:
    options = {"method": "ll", **options}
    if collective == "broadcast":
        return broadcast(x, source_of(call), **options)
    return {"all_gather": all_gather, "reduce_scatter": reduce_scatter, "all_to_all": all_to_all}[collective](x, **options)


def body(collectives=COLLECTIVES, dtypes=(torch.float32,), counts=COUNTS, op: str = "sum") -> list[str]:
    """One rank: calls of changing sizes, back to back, the collectives in turn; what was wrong."""
    rank, device, calls = triton_dist.rank(), triton_dist.device(), []
    for number, count in enumerate(counts):
        for dtype in dtypes:
            for collective in collectives:
                x = given(collective, rank, number, count, dtype).to(device)
                out = run(collective, x, number, **({"op": op} if collective == "reduce_scatter" else {}))
                calls.append((out, collective, number, count, dtype))
    return [
        f"{collective} of {count} {dtype}"
        for out, collective, number, count, dtype in calls
        if not equal_bits(out, wanted(collective, number, count, dtype, op))
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_dtype_goes_with_its_flags(world, collective, world_size):
    dtypes = FLOATS + INTEGERS if collective == "reduce_scatter" else DTYPES
    assert world(body, world_size, args=((collective,), dtypes, (3, 1000, 7, 1, 1025)), seed=world_size) == [[]] * world_size


@pytest.mark.parametrize("world_size", [2, 3])
def test_flagged_collectives_of_changing_sizes_in_turn(world, world_size):
    assert world(body, world_size) == [[]] * world_size


@pytest.mark.parametrize(("op", "dtype"), [("avg", torch.bfloat16), ("max", torch.int8), ("min", torch.float32)])
def test_other_reductions_of_flagged_parts(world, op, dtype):
    assert world(body, 3, args=(("reduce_scatter",), (dtype,), (3, 1000, 7), op)) == [[]] * 3


def test_many_ranks_by_name():
    assert triton_dist.simulate(body, 11, args=(COLLECTIVES, (torch.float16,), (257, 3, 257))) == [[]] * 11


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", ["random", "pct", "late", "straggler"])
def test_flagged_collectives_on_every_schedule_by_few_programs(monkeypatch, schedule, seed):
    # Several pieces a program, and programs that sit some calls out.
    monkeypatch.setattr(module, "most_programs", lambda size: 2)
    counts = (9 * PIECE // 4, 3, PIECE, 9 * PIECE // 4 + 1)
    arguments = (COLLECTIVES, (torch.float32,), counts)
    assert triton_dist.simulate(body, 3, args=arguments, seed=seed, schedule=schedule, check="race") == [[]] * 3


@pytest.mark.parametrize("world_size", [2, 4])
def test_nothing_is_found_in_flagged_collectives(world_size):
    assert triton_dist.simulate(body, world_size, args=(COLLECTIVES, (torch.float16,), (300, 5, 300)), check="all") == [[]] * world_size


def in_place_and_at_odd_addresses() -> list[str]:
    """Memory begins at another byte on each rank, so that the ranks see it as words of different width; and results stand where x stood."""
    rank, size, device, wrong = triton_dist.rank(), triton_dist.world_size(), triton_dist.device(), []
    dtype = torch.int8
    for call, count in enumerate((40, 8192, 4099)):
        for collective in COLLECTIVES:
            expected = wanted(collective, call, count, dtype)
            whole = torch.zeros(size * count + 16, dtype=dtype, device=device)[(0, 1, 4, 2)[rank % 4] :]
            longest = whole[: size * count]
            own = longest[rank * count : (rank + 1) * count]
            x = {"all_gather": own, "broadcast": whole[:count]}.get(collective, longest)
            x.copy_(given(collective, rank, call, count, dtype))
            out = {"all_gather": longest, "reduce_scatter": own, "broadcast": x}.get(collective, longest)
            if run(collective, x, call, out=out) is not out or not equal_bits(out, expected):
                wrong.append(f"{collective} of {count}")
            if not equal_bits(whole[size * count :], torch.zeros_like(whole[size * count :], device="cpu")):
                wrong.append(f"{collective} wrote behind its output")
    x = bits_of(rank, 9, (12, 5), torch.int16).to(device).t()  # not contiguous
    if not equal_bits(broadcast(x, 0, method="ll"), bits_of(0, 9, (12, 5), torch.int16).t()) or x.is_contiguous():
        wrong.append("broadcast of a transposed tensor")
    out = torch.zeros(12, dtype=torch.int32, device=device)
    kept = bits_of(rank, 8, (12,), torch.int32).to(device)
    if not equal_bits(broadcast(kept, size - 1, out=out, method="ll"), bits_of(size - 1, 8, (12,), torch.int32)):
        wrong.append("broadcast into out")
    return wrong if equal_bits(kept, bits_of(rank, 8, (12,), torch.int32)) else [*wrong, "broadcast wrote x"]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_flagged_collectives_of_any_alignment_and_in_place(world, world_size):
    assert world(in_place_and_at_odd_addresses, world_size) == [[]] * world_size


@pytest.mark.parametrize("seed", range(2))
def test_in_place_does_not_race(seed):
    assert triton_dist.simulate(in_place_and_at_odd_addresses, 3, seed=seed, schedule="straggler", check="race") == [[]] * 3


def with_plans(plans_of_calls: list[Plan]) -> bool:
    rank, device = triton_dist.rank(), triton_dist.device()
    team, right = importlib.import_module("triton_dist.ops.team").find_team(None, "test"), True
    for call, plan in enumerate(plans_of_calls):
        x = bits_of(rank, call, (3001,), torch.float16).to(device)
        gathered = torch.empty(team.size * 3001, dtype=torch.float16, device=device)
        module.moving_launch("all_gather", x, gathered, team, None, plan).run()
        module.broadcasting_launch(x, x, call % team.size, team, None, plan).run()
        right &= equal_bits(gathered, torch.cat([bits_of(peer, call, (3001,), torch.float16) for peer in range(team.size)]))
        right &= equal_bits(x, bits_of(call % team.size, call, (3001,), torch.float16))
    return right


@pytest.mark.parametrize("world_size", [2, 3])
def test_moves_by_any_number_of_programs_and_warps(world, world_size):
    assert all(world(with_plans, world_size, args=([Plan("ll", programs, warps) for warps in (16, 1, 4) for programs in (1, 5, 128)],)))


def around_32_bits(collectives=COLLECTIVES) -> list[str]:
    """As the test of all_reduce: a flag comes again in words that short calls have left alone since."""
    rank, size, device, calls = triton_dist.rank(), triton_dist.world_size(), triton_dist.device(), []

    def call(count: int, source: int = 0) -> None:
        for collective in collectives:
            number = 2 * size * len(calls) + 2 * source
            x = given(collective, rank, number, count, torch.int32).to(device)
            calls.append((run(collective, x, number), collective, number, count))

    call(2 * PIECE // 4)
    for pieces, turns in ((2**32 - 2**24 - 1, 2 * CAPACITY // 32), (2**32 - 2, 2)):
        pretend(pieces)
        for turn in range(turns):
            call(5, turn // 2 % 2)
    call(2 * PIECE // 4)
    call(3)
    begin_anew()
    return [
        f"{collective}, call {number}"
        for out, collective, number, count in calls
        if not equal_bits(out, wanted(collective, number, count, torch.int32))
    ]


@pytest.mark.parametrize("world_size", [2, 3])
def test_flags_of_every_collective_come_round(world, world_size):
    assert world(around_32_bits, world_size) == [[]] * world_size


def replays_of_a_graph() -> list[str]:
    """On a GPU a graph of all of them, replayed; elsewhere the calls again."""
    rank, device, wrong = triton_dist.rank(), triton_dist.device(), []
    kinds = [(collective, count) for count in (PIECE + 5, 3, 700) for collective in COLLECTIVES]
    inputs = [given(collective, rank, 0, count, torch.float32).to(device) for collective, count in kinds]
    outs = [torch.empty_like(wanted(collective, 0, count, torch.float32), device=device) for collective, count in kinds]

    def calls() -> None:
        for (collective, _), x, out in zip(kinds, inputs, outs, strict=True):
            run(collective, x, 0, out=out)

    replay = calls
    if device.type == "cuda":
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            calls()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            calls()
        replay = graph.replay
    for turn in range(4):
        for (collective, count), x in zip(kinds, inputs, strict=True):
            x.copy_(given(collective, rank, 2 * triton_dist.world_size() * turn, count, torch.float32))  # the source stays the same
        replay()
        for (collective, count), out in zip(kinds, outs, strict=True):
            if not equal_bits(out, wanted(collective, 2 * triton_dist.world_size() * turn, count, torch.float32)):
                wrong.append(f"{collective} of {count} in turn {turn}")
    return wrong


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_graph_of_every_collective_is_replayed(world, world_size):
    assert world(replays_of_a_graph, world_size) == [[]] * world_size


def in_teams() -> list[list[float]]:
    rank, device = triton_dist.rank(), triton_dist.device()
    team = triton_dist.make_team([2, 0] if rank % 2 == 0 else [3, 1])
    x = torch.full((4,), float(rank), device=device)
    sent = broadcast(x.clone(), 2 + rank % 2, group=team, method="ll")
    outs = [function(x, group=team, method="ll") for function in (all_gather, reduce_scatter, all_to_all)]
    return [[*out[::3].tolist()] for out in (*outs, sent)]


def test_flagged_collectives_of_teams(world):
    even = [[2.0, 2.0, 0.0], [2.0], [2.0, 0.0], [2.0, 2.0]]
    odd = [[3.0, 3.0, 1.0], [4.0], [3.0, 1.0], [3.0, 3.0]]
    assert world(in_teams, 4) == [even, odd, even, odd]


def test_small_calls_go_with_their_flags():
    for collective in COLLECTIVES:
        choose = importlib.import_module(f"triton_dist.ops.collectives.{collective}").choose_method
        for size in (2, 4, 8):
            assert choose(8 << 10, size) == choose(8 << 10, size, True) == "ll" and choose(1 << 30, size, True) == "one_shot"
        assert choose(8 << 10, 1) == choose(8 << 10, 9) == "one_shot"


def kernels_of(monkeypatch, function, world_size: int, arguments: tuple) -> set[str]:
    """The kernels that collectives launch in a simulation."""
    seen: set[str] = set()
    run_of = Launch.run

    def look(launch: Launch) -> None:
        seen.add(launch.kernel.fn.__name__)
        run_of(launch)

    with monkeypatch.context() as patch:
        patch.setattr(Launch, "run", look)
        triton_dist.simulate(function, world_size, args=arguments)
    return seen


def by_choice(collective: str, count: int) -> None:
    run(collective, given(collective, 0, 0, count, torch.float32), 0, method="auto")


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_table_of_a_machine_is_followed(monkeypatch, tmp_path, collective):
    kernel = "low_latency_broadcast_kernel" if collective == "broadcast" else "low_latency_kernel"
    assert kernels_of(monkeypatch, by_choice, 1, (collective, 8)) == {f"{collective}_kernel"}
    monkeypatch.setenv(plans.DIRECTORY_VARIABLE, str(tmp_path))
    rows = {"exact": [Row(1 << 10, Plan("ll", 2, 1)), Row(None, Plan("one_shot"))]}
    plans.table_path("simulated", 1).write_text(Table("simulated", 1, {collective: rows}).to_json())
    assert kernels_of(monkeypatch, by_choice, 1, (collective, 8)) == {kernel}
    plans.table_path("simulated", 1).write_text(Table("simulated", 1, {collective: {"exact": [Row(None, Plan("two_shot"))]}}).to_json())
    with pytest.raises(errors.TuningTableError, match=f"{collective}: the tuned method 'two_shot' is not one of"):
        triton_dist.simulate(by_choice, 1, args=(collective, 8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: all_gather(torch.ones(3), method="two_shot"), "it has to be one of"),
        (lambda: all_gather(torch.ones(3), method="library"), "init_process_group"),
        (lambda: all_gather(torch.ones(3), method="library", exact=True), "exact=True"),
        (lambda: all_to_all(torch.ones(3), torch.tensor([1, 2]), capacity=9, method="ll"), "method='ll' takes no splits"),
    ],
)
def test_bad_input_of_flagged_collectives_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def gathered_by_the_library() -> bool:
    torch.distributed.init_process_group("gloo")
    return not body_of_the_library()


def body_of_the_library() -> list[str]:
    rank, wrong = triton_dist.rank(), []
    for call, dtype in enumerate((torch.bfloat16, torch.bool, torch.complex64)):
        out = run("all_gather", given("all_gather", rank, call, 7, dtype), call, method="library")
        if not equal_bits(out, wanted("all_gather", call, 7, dtype)):
            wrong.append(str(dtype))
    return wrong


def test_the_library_gathers_the_same():
    """On simulated ranks only: NCCL wants a GPU for each."""
    assert all(triton_dist.simulate(gathered_by_the_library, 3))


def outcomes(monkeypatch, tmp_path, right: str, wrong: str, function, arguments) -> set[str]:
    twin = twin_of(module, tmp_path, right, wrong)
    for name in ("low_latency_kernel", "low_latency_broadcast_kernel"):
        monkeypatch.setattr(module, name, getattr(twin, name))
    seen = set()
    for seed, schedule in [(seed, schedule) for seed in range(4) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(function, 3, args=arguments, seed=seed, schedule=schedule)
            seen.add("wrong" if any(results) else "right")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


BROADCASTS = (("broadcast",), (torch.int32,), (64,) * 8)
ACKNOWLEDGED = "take_flagged(words + (slot + place * 2), CAPACITY * 16, flag, index, place == 0, SIZE)"


def test_a_broadcast_twin_that_asks_nobody_is_caught(monkeypatch, tmp_path):
    """The source stores over what has not been read."""
    found = outcomes(monkeypatch, tmp_path, ACKNOWLEDGED, "pass", body, BROADCASTS)
    assert found & {"DeadlockError", "wrong"}


def test_a_broadcast_twin_whose_others_store_nothing_hangs(monkeypatch, tmp_path):
    assert outcomes(monkeypatch, tmp_path, "inside & (sends | (place == 0))", "inside & sends", body, BROADCASTS) == {"DeadlockError"}


def test_a_twin_that_renews_only_what_broadcasts_store_is_named(monkeypatch, tmp_path):
    # It may also end with data of an old call.
    renewal = "tl.where(sends, units - first, 1), CAPACITY"
    found = outcomes(monkeypatch, tmp_path, renewal, "UNITS, CAPACITY", around_32_bits, (("broadcast",),))
    assert "FlagReuseError" in found and "right" not in found


def test_a_twin_whose_parts_have_one_slot_is_caught(monkeypatch, tmp_path):
    source = "unit, count, index, EACH, INTEGER, WHOLE, PARTS, SIZE)\n    now = tl.load(epochs + program + apart)"
    found = outcomes(
        monkeypatch, tmp_path, source, source.replace("apart)", "apart) * 0"), body, (("all_to_all",), (torch.int32,), (64,) * 6)
    )
    assert found == {"FlagReuseError"}
