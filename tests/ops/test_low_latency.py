"""The low-latency method of all_reduce: old flags, calls of changing sizes, counters that come round, replay; its twins and reports."""

from __future__ import annotations

import importlib

import pytest
import torch

import triton_dist
from tests.ops.test_all_reduce import body, expected_of, same_bits, tensor_of
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_reduce, barrier
from triton_dist.ops.collectives.low_latency import CAPACITY, UNIT_BYTES, LowLatencySpace, most_programs, warps_for
from triton_dist.ops.collectives.plans import Plan
from triton_dist.runtime.world import require_world

module = importlib.import_module("triton_dist.ops.collectives.low_latency")
operator = importlib.import_module("triton_dist.ops.collectives.all_reduce")
PIECE = CAPACITY * UNIT_BYTES // 4
"""fp32 elements of the largest piece."""

CHANGING = [(5 * PIECE + 3,), (1,), (PIECE,), (7,), (5 * PIECE + 3,), (PIECE + 1,), (3 * PIECE,), (2,)]


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_calls_after_large_ones_see_no_old_flags(world, dtype, world_size):
    assert all(world(body, world_size, args=("ll", dtype, "sum", CHANGING)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", ["random", "pct", "late", "straggler"])
def test_on_every_schedule_by_few_programs(monkeypatch, schedule, seed):
    # Several pieces a program, and programs that sit some calls out.
    monkeypatch.setattr(module, "most_programs", lambda size: 2)
    shapes = [(9 * PIECE // 4,), (3,), (PIECE,), (9 * PIECE // 4 + 1,)]
    assert all(triton_dist.simulate(body, 3, args=("ll", torch.float32, "sum", shapes), seed=seed, schedule=schedule, check="race"))


def with_plans(plans: list[Plan]) -> bool:
    """Calls whose programs have different widths: places do not move."""
    size, rank, device, right = triton_dist.world_size(), triton_dist.rank(), triton_dist.device(), True
    accumulator = operator.accumulator_of("test", torch.float16, "sum")
    team = operator.find_team(None, "test")
    for call, plan in enumerate(plans):
        x = tensor_of(rank, call, (3001,), torch.float16).to(device)
        out = torch.empty_like(x)
        module.reducing_launch("all_reduce", x, out, team, None, accumulator, "sum", plan).run()
        right &= same_bits(out, expected_of(size, call, (3001,), torch.float16, "sum"))
    return right


@pytest.mark.parametrize("world_size", [2, 4])
def test_any_number_of_programs_and_warps(world, world_size):
    plans = [Plan("ll", programs, warps) for warps in (16, 1, 4) for programs in (1, 5, 128)]
    plans.append(Plan("ll", 1 << 10, 64))  # more than there is room for
    assert all(world(with_plans, world_size, args=(plans,)))


def meet() -> None:
    """All ranks are idle behind it."""
    triton_dist.synchronize()
    barrier()
    triton_dist.synchronize()


def pretend(pieces: int) -> None:
    """As if every program had moved so many pieces."""
    meet()
    for space in require_world("a test").workspaces.values():
        if isinstance(space, LowLatencySpace):
            space.epochs.fill_(pieces)
    meet()


def begin_anew() -> None:
    """As if no call had been made: flags between those of before and after ``pretend`` were never renewed, and the world goes on."""
    meet()
    for space in require_world("a test").workspaces.values():
        if isinstance(space, LowLatencySpace):
            space.words.zero_()
            space.epochs.zero_()
    meet()


def around_32_bits() -> bool:
    """A call that leaves flag 1 in a whole place; after 2**32 pieces another one has that flag, and the calls between were short."""
    size, rank, device, outs = triton_dist.world_size(), triton_dist.rank(), triton_dist.device(), []

    def call(elements: int) -> None:
        number = len(outs)
        outs.append((all_reduce(tensor_of(rank, number, (elements,), torch.float32).to(device), method="ll"), number, elements))

    call(2 * PIECE // 4)
    for pieces, calls in ((2**32 - 2**24 - 1, 2 * CAPACITY // 32), (2**32 - 2, 2)):
        pretend(pieces)
        for _ in range(calls):
            call(5)
    call(2 * PIECE // 4)
    call(3)
    begin_anew()
    return all(same_bits(out, expected_of(size, number, (elements,), torch.float32, "sum")) for out, number, elements in outs)


@pytest.mark.parametrize("world_size", [2, 3])
def test_flags_come_round(world, world_size):
    assert all(world(around_32_bits, world_size))


def replayed() -> bool:
    """On a GPU a graph of some calls of different sizes, replayed; elsewhere the calls again."""
    size, rank, device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()
    shapes = [(PIECE + 5,), (3,), (700,)]
    inputs = [torch.empty(shape, device=device) for shape in shapes]
    outs = [torch.empty(shape, device=device) for shape in shapes]

    def calls() -> None:
        for x, out in zip(inputs, outs, strict=True):
            all_reduce(x, out=out, method="ll")

    replay, right = calls, True
    if device.type == "cuda":
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            calls()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            calls()
        replay = graph.replay
    for turn in range(5):
        for number, x in enumerate(inputs):
            x.copy_(tensor_of(rank, 10 * turn + number, shapes[number], torch.float32))
        replay()
        for number, out in enumerate(outs):
            right &= same_bits(out, expected_of(size, 10 * turn + number, shapes[number], torch.float32, "sum"))
    return right


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_graph_is_replayed(world, world_size):
    assert all(world(replayed, world_size))


def outcomes(monkeypatch, tmp_path, right: str, wrong: str, function=body, arguments=("ll", torch.int32, "sum", [(64,)] * 6)) -> set[str]:
    monkeypatch.setattr(module, "low_latency_kernel", twin_of(module, tmp_path, right, wrong).low_latency_kernel)
    seen = set()
    for seed, schedule in [(seed, schedule) for seed in range(4) for schedule in ("random", "straggler")]:
        try:
            seen.add("right" if all(triton_dist.simulate(function, 3, args=arguments, seed=seed, schedule=schedule)) else "wrong")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


def test_a_twin_with_one_slot_hangs(monkeypatch, tmp_path):
    """A fast rank overwrites what a slow one has not read, which then waits for a flag that is gone."""
    assert "DeadlockError" in outcomes(monkeypatch, tmp_path, "(program * 2 + (now & 1))", "(program * 2 + (now & 0))")


def test_a_twin_that_does_not_count_is_named(monkeypatch, tmp_path):
    right = "reading this one\n    tl.store(epochs + program + apart, now,"
    found = outcomes(monkeypatch, tmp_path, right, right.replace("now,", "now * 0,"))
    assert found == {"FlagReuseError"}


def test_a_twin_that_does_not_renew_places_is_named(monkeypatch, tmp_path):
    # It may also end with sums of old data, where a rank reads before another one stores.
    found = outcomes(monkeypatch, tmp_path, "(turn < CAPACITY // _RENEWED_AT_ONCE * 2)", "(turn < 0)", around_32_bits, ())
    assert found == {"FlagReuseError"}


def one_rank_stays_away() -> None:
    x = torch.ones(3, device=triton_dist.device())
    all_reduce(x, method="ll")
    if triton_dist.rank() != 1:
        all_reduce(x, method="ll")


def test_a_hang_names_the_word_and_the_flag():
    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(one_rank_stays_away, 3)
    text = str(caught.value)
    assert "of low_latency_kernel at" in text and "low_latency.py" in text, text
    assert "waits for flagged words[" in text and "to carry the flag 2; it is 0" in text, text


def test_the_workspace_is_bounded():
    for size in (1, 2, 4, 8, 16, 64, 127):
        programs = most_programs(size)
        assert programs * size * CAPACITY * 32 <= 16 << 20 and 8 <= programs <= 128
    assert most_programs(8) == 128


def test_as_few_threads_as_move_all_in_one_piece():
    assert [warps_for(nbytes, 128) for nbytes in (1, 8 << 10, 128 << 10, (128 << 10) + 1, 512 << 10, 1 << 30)] == [4, 4, 4, 8, 16, 16]
    assert warps_for(64 << 10, 16) == 16
