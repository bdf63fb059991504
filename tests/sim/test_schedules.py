"""Schedules: the same seed, the same run; priorities find what chance does not; late is late; few switches are enough."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import explore, simulate
from triton_dist.errors import DataRaceError, DeadlockError, InvalidArgumentError
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.sim.minimize import Minimal, minimize, shrink
from triton_dist.sim.schedules import SCHEDULES, Late, Pct, Replay, find_schedule
from triton_dist.sim.schedules.late import LatePolicy


@triton_dist.jit
def order_kernel(log, place, ROUNDS: tl.constexpr):
    """Each program of each rank writes its number behind what is there."""
    for _ in range(ROUNDS):
        at = tl.atomic_add(dl.symm_at(place, 0), 1, sem="relaxed", scope="sys")
        tl.atomic_xchg(dl.symm_at(log, 0) + at, dl.rank() * 10 + tl.program_id(0), sem="relaxed", scope="sys")


def order() -> list[int]:
    log, place = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    order_kernel[(4,)](log, place, 4)
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    return log.tolist()


@pytest.mark.parametrize("schedule", [*SCHEDULES, "pct:5", "pct:2:40", Pct(4, 100), Late(), "replay:"])
def test_the_same_seed_is_the_same_run(schedule):
    runs = [simulate(order, 3, seed=seed, schedule=schedule)[0] for seed in (1, 2, 1, 2)]
    assert runs[:2] == runs[2:]
    without_seed = schedule in ("round_robin", "replay:")
    assert (runs[0] == runs[1]) == without_seed


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_for_its_time_takes_any_schedule(schedule):
    """It has an order of its own; only the hosts' follows from the schedule."""
    assert sorted(simulate(order, 2, schedule=schedule, execute="timing")[0]) == sorted(simulate(order, 2, execute="timing")[0])


def test_schedules_differ():
    assert len({tuple(simulate(order, 3, seed=1, schedule=schedule)[0]) for schedule in SCHEDULES}) == len(SCHEDULES)


@pytest.mark.parametrize(
    "bad",
    [
        "fifo",
        "pct:",
        "pct:0",
        "pct:x",
        "late:3",
        "replay",
        "replay:a@b",
        "replay:1.0>h2",
        "replay:h0@1>",
        "replay:@/nowhere",
        3,
        None,
        ("pct",),
    ],
)
def test_bad_schedules_are_named(bad):
    with pytest.raises(InvalidArgumentError, match=r"schedule=|Replay|Pct\("):
        simulate(order, 2, schedule=bad)


@pytest.mark.parametrize("text", ["pct:3", "pct:4:77", "late", "random", "replay:h0@1>1.0.k0.2 0.0.k0.1#2 pausing"])
def test_schedules_as_text(text):
    assert str(find_schedule(text)) == text and find_schedule(find_schedule(text)) == find_schedule(text)


@triton.jit
def window_kernel(word, seen, ROUNDS: tl.constexpr):
    """Program 0 has the word at 1 for a third of its steps. Program 1 looks once."""
    if tl.program_id(0) == 0:
        for number in range(ROUNDS):
            tl.atomic_xchg(word, ((number > ROUNDS // 3) & (number < 2 * ROUNDS // 3)).to(tl.int32), sem="relaxed")
    else:
        tl.atomic_xchg(seen, tl.atomic_add(word, 0, sem="relaxed"), sem="relaxed")


def window() -> None:
    words = torch.zeros(2, dtype=torch.int32)
    window_kernel[(2,)](words, words[1:], 60)
    assert words[1].item() == 0, "it looked while the word was set"


def seeds_needed(schedule: str, most: int) -> int:
    for seed in range(most):
        try:
            simulate(window, 1, seed=seed, schedule=schedule)
        except AssertionError:
            return seed + 1
    return most + 1


def test_priorities_find_a_bug_of_depth_two_that_chance_hardly_finds():
    assert seeds_needed("pct:2:64", 40) <= 40
    assert seeds_needed("random", 150) > 150


def test_one_switch_is_enough_for_it_and_it_comes_again():
    with pytest.raises(AssertionError, match="it looked") as caught:
        explore(window, 1, schedules=("pct:2",), seeds=60)
    note = caught.value.__notes__[-1]
    assert note.startswith("1 context switch is needed (of ") and "window_kernel at " in note and "is preempted; rank 0, program" in note
    line = next(line for line in note.splitlines() if line.startswith("  1. "))
    assert "test_schedules.py:" in line.partition("is preempted")[0]
    replay = note.partition("schedule='")[2].partition("'")[0]
    for seed in (0, 7):
        with pytest.raises(AssertionError, match="it looked"):
            simulate(window, 1, seed=seed, schedule=replay)
    simulate(window, 1, schedule="replay:")  # without the switch it is right


@triton_dist.jit
def put_kernel(inbox, data, signal, out):
    """When both run, rank 0 puts, and tells rank 1 without a fence, which looks."""
    if dl.rank() == 0:
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_EQ, 1)
        shmem.putmem_nbi_block(inbox, data, 4, 1)
        shmem.signal_op(signal, 1, shmem.NVSHMEM_SIGNAL_SET, 1)
        for _ in range(20):
            tl.atomic_add(out + 1, 1)
        shmem.quiet()
    else:
        shmem.signal_op(signal, 1, shmem.NVSHMEM_SIGNAL_SET, 0)
        shmem.signal_wait_until(signal, shmem.NVSHMEM_CMP_EQ, 1)
        tl.store(out, tl.load(inbox))


def early_look_at_a_put() -> int:
    inbox, data = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    signal, out = triton_dist.symm_zeros((1,), torch.int64), torch.zeros(2, dtype=torch.int32)
    data.fill_(7)
    triton_dist.synchronize()
    put_kernel[(1,)](inbox, data, signal, out)
    return out[0].item()


def test_late_puts_land_when_they_are_ordered():
    seen = {simulate(early_look_at_a_put, 2, seed=seed, schedule="late")[1] for seed in range(8)}
    assert seen == {0}, "rank 1 always looks before the put has landed"
    assert {simulate(early_look_at_a_put, 2, seed=seed)[1] for seed in range(12)} == {0, 7}


@triton.jit
def read_kernel(data, out):
    tl.store(out + tl.program_id(0), tl.load(data))


def early_look_at_a_copy() -> float:
    data, source, out = torch.zeros(1024), torch.ones(1024), torch.zeros(8)
    side = triton_dist.Stream()
    side.wait_event(triton_dist.current_stream().record_event())
    triton_dist.synchronize()
    triton_dist.copy_async(data, source, side)
    read_kernel[(8,)](data, out)
    triton_dist.synchronize()
    return out.sum().item() + data[0].item()


def test_late_copies_come_after_what_can_run_before():
    """Or the launch comes after the copy: nothing in between."""
    assert {simulate(early_look_at_a_copy, 1, seed=seed, schedule="late")[0] for seed in range(12)} == {1.0, 9.0}
    assert len({simulate(early_look_at_a_copy, 1, seed=seed)[0] for seed in range(8)}) > 2


@triton_dist.jit
def first_kernel(word, out):
    tl.store(out, tl.atomic_xchg(dl.symm_at(word, 0), dl.rank() + 1, sem="relaxed", scope="sys"))


def who_was_before() -> int:
    """Two launches: has another rank's first launch run before one's own second is queued?"""
    word, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(2, dtype=torch.int32)
    first_kernel[(1,)](word, out)
    side = triton_dist.Stream()
    with triton_dist.stream(side):
        first_kernel[(1,)](word, out[1:])
    triton_dist.synchronize()
    return out[1].item()


def test_late_launches_let_the_others_run_before():
    """Programs that are able to run do so before a host queues more, so that on a rank the second launch never is the first to write."""
    seeds = [seed for seed in range(12) if LatePolicy(seed).hosts_last]
    assert len(seeds) > 1 and all(0 not in simulate(who_was_before, 2, seed=seed, schedule="late") for seed in seeds)
    assert any(0 in simulate(who_was_before, 2, seed=seed) for seed in range(20))


@triton_dist.jit
def poll_kernel(word, count):
    """Program 0 counts up until program 1 has set the word."""
    if tl.program_id(0) == 0:
        while tl.atomic_add(word, 0, sem="acquire") == 0:
            tl.atomic_add(count, 1, sem="relaxed")
    else:
        tl.atomic_xchg(word, 1, sem="release")


def poll() -> None:
    words = torch.zeros(2, dtype=torch.int32)
    poll_kernel[(2,)](words, words[1:])


@pytest.mark.parametrize("schedule", [*SCHEDULES, "replay:"])
def test_a_loop_with_effects_does_not_keep_the_others_from_running(schedule):
    for seed in range(3):
        simulate(poll, 2, seed=seed, schedule=schedule)


@triton_dist.jit
def hang_kernel(word):
    dl.wait(word, 1, "sys", "acquire", waitValue=3)


def hang() -> None:
    hang_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_deadlock_is_named_and_needs_no_switch(schedule):
    with pytest.raises(DeadlockError, match="waits for") as caught:
        explore(hang, 2, schedules=(schedule,), seeds=2)
    assert caught.value.__notes__[-1].startswith("no context switch is needed")


@pytest.mark.parametrize("schedule", ["random", "pct", "late", "straggler"])
def test_a_recorded_run_comes_again_with_all_its_switches(schedule):
    """Every switch kept: the same order of all that the programs do."""
    from triton_dist.sim.minimize import Recorded

    for seed in range(3):
        recorded = Recorded(find_schedule(schedule))
        before = simulate(order, 3, seed=seed, schedule=recorded)[0]
        assert before == simulate(order, 3, seed=seed, schedule=schedule)[0], "writing it down changes nothing"
        pausing = ["pausing"] * (schedule in ("pct", "late"))
        replay = Replay(" ".join([*pausing, *map(str, recorded.trace.switches())]))
        assert simulate(order, 3, seed=99, schedule=replay)[0] == before


def test_a_long_schedule_goes_to_a_file():
    replay = Replay(" ".join(f"0.0.k0.{number}@1>h0" for number in range(300)))
    text = str(Minimal(replay, tuple(map(str, range(300))), 400, 3, 1.0, False))
    assert text.startswith("300 context switches are needed (of 400 in that run; perhaps fewer") and text.endswith("and 280 more")
    schedule = text.partition("schedule='")[2].partition("'")[0]
    found = find_schedule(schedule)
    assert isinstance(found, Replay) and found.parts() == replay.parts()
    simulate(order, 2, schedule=schedule)


def test_races_need_the_same_two_lines():
    def racing() -> None:
        word = triton_dist.symm_zeros((1,), torch.int32)
        first_kernel[(1,)](word, torch.zeros(1, dtype=torch.int32))
        if triton_dist.rank() == 0:
            word.zero_()

    with pytest.raises(DataRaceError) as caught:
        explore(racing, 2, seeds=3, check="race")
    assert "context switch" in caught.value.__notes__[-1]


def test_what_does_not_fail_again_has_no_schedule():
    failure = ValueError("once")
    assert minimize(order, 2, find_schedule("random"), 0, failure, {}) is None


def test_nothing_that_is_needed_is_left_out():
    needed = {3, 17, 40}
    found, complete = shrink(list(range(64)), lambda some: some if needed <= set(some) else None, lambda: False)
    assert set(found) == needed and complete
    runs = []
    found, complete = shrink(list(range(64)), lambda some: runs.append(1), lambda: len(runs) >= 5)
    assert found == list(range(64)) and not complete


def test_a_bar_is_shown(capsys):
    explore(lambda: None, 2, seeds=2, progress=True)
    assert "schedules" in capsys.readouterr().err


def test_without_rich_lines_are_printed(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    explore(lambda: None, 2, seeds=2, progress=True)
    assert capsys.readouterr().err.startswith("schedules: 0 of 8")


def test_bad_progress_is_named():
    with pytest.raises(InvalidArgumentError, match="progress=3"):
        explore(lambda: None, 2, progress=3)
