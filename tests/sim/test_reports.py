"""What the machine says when nothing can move: who waits, where, for which word, and who wrote it."""

from __future__ import annotations

import gc
import re

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors

THIS_FILE = re.escape(__file__)


def line_of(text: str) -> int:
    """Number of the first line of this file that contains ``text``."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


@triton.jit
def set_kernel(flags):
    tl.atomic_xchg(flags, 1, sem="release")


@triton_dist.jit
def wrong_word_kernel(signals):
    if dl.rank() == 0:
        dl.notify(signals + 1, 1, signal=5, sig_op="set", comm_scope="intra_node")  # the wrong word
    else:
        dl.wait(signals + 3, 1, "sys", "acquire", waitValue=5)  # the waiting line


def test_the_report_names_rank_line_word_and_writer():
    def run():
        my_signals = triton_dist.symm_zeros((8,), torch.int32)
        wrong_word_kernel[(1,)](my_signals)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(run, 2)
    text = str(caught.value)
    waiting, writing = line_of("# the waiting line"), line_of("# the wrong word")
    assert re.search(
        rf"rank 1, program \(0, 0, 0\) of wrong_word_kernel at {THIS_FILE}:{waiting} waits for my_signals\[3\] of rank 1 == 5; it is 0",
        text,
    )
    assert re.search(rf"my_signals\[1\] = 5 by rank 0, program \(0, 0, 0\) of wrong_word_kernel at {THIS_FILE}:{writing}", text)
    assert "rank 1, host: synchronize()" in text


@triton_dist.jit
def overshoot_kernel(signals):
    dl.notify(signals, 0, signal=2, sig_op="add", comm_scope="intra_node")
    dl.wait(signals, 1, "sys", "acquire", waitValue=1)


def test_an_equality_wait_that_was_overtaken_shows_the_last_writer():
    def run():
        signals = triton_dist.symm_zeros((1,), torch.int64)
        overshoot_kernel[(1,)](signals)

    with pytest.raises(errors.DeadlockError, match=r"== 1; it is 2, last written by rank 0, program \(0, 0, 0\) of overshoot_kernel"):
        triton_dist.simulate(run, 1)


@triton.jit
def spin_kernel(flag):
    while tl.load(flag, volatile=True) != 1:
        pass


@triton.jit
def lock_kernel(lock, counter):
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    tl.store(counter, tl.load(counter) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def counting_spin_kernel(flag, out):
    polls = 0
    while tl.load(flag, volatile=True) != 1:
        polls += 1
    tl.store(out, polls)


def test_a_spin_loop_ends_when_memory_changes():
    def run():
        flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        side = triton_dist.Stream()
        with triton_dist.stream(side):
            spin_kernel[(2,)](flag)
            counting_spin_kernel[(1,)](flag, out)
        set_kernel[(1,)](flag)
        triton_dist.synchronize()
        return flag.item()

    assert triton_dist.simulate(run, 1) == [1]


def test_a_spin_lock_counts_right_on_every_schedule():
    def run():
        lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        lock_kernel[(40,)](lock, counter)
        return counter.item()

    assert [triton_dist.simulate(run, 1, seed=seed)[0] for seed in range(4)] == [40] * 4


def test_a_spin_loop_that_nobody_ends_is_a_deadlock():
    def run():
        spin_kernel[(3,)](torch.zeros(1, dtype=torch.int32))
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError, match="3 programs .* of spin_kernel at .* spins in a loop that sees no change"):
        triton_dist.simulate(run, 1)


@triton_dist.jit
def take_lock_kernel(lock):
    if dl.rank() == 1:
        while tl.atomic_cas(lock + 2, 0, 1) != 0:  # the taken lock
            pass


@triton_dist.jit
def load_acquire_kernel(lock):
    while dl.ld(dl.symm_at(lock, 0) + 1, "sys", "acquire") != 1:
        pass


@pytest.mark.parametrize(
    ("kernel", "grid", "text"),
    [
        (take_lock_kernel, 2, r"my_lock\[2\] of rank 1 = 1, last written by rank 1, program .* of take_lock_kernel at {here}"),
        (load_acquire_kernel, 1, r"my_lock\[1\] of rank 0; nobody wrote it"),
    ],
)
def test_a_spin_loop_is_reported_with_the_word_that_it_looks_at(kernel, grid, text):
    def run():
        my_lock = triton_dist.symm_zeros((4,), torch.int32)
        kernel[(grid,)](my_lock)
        triton_dist.synchronize()

    text = text.format(here=f"{THIS_FILE}:{line_of('# the taken lock')}")
    with pytest.raises(errors.DeadlockError, match=f"spins in a loop that sees no change; the last word it accessed is {text}"):
        triton_dist.simulate(run, 2)


def test_a_stream_that_waits_for_a_signal_is_named():
    def run():
        my_flags = triton_dist.symm_zeros((4,), torch.int32)
        triton_dist.wait_value(my_flags[3], 2)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError, match=r"rank 0, stream 0 waits for my_flags\[3\] of rank 0 >= 2; it is 0; nobody wrote it"):
        triton_dist.simulate(run, 1)


def test_a_loop_that_only_counts_is_a_livelock(monkeypatch):
    monkeypatch.setattr("triton_dist.sim.machine._LIVELOCK_STEPS", 5000)
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(errors.DeadlockError, match=r"livelock.*\n.*counting_spin_kernel at .*test_reports.py:\d+ goes round"):
        counting_spin_kernel[(1,)](flag, out)


def test_a_long_report_is_cut_and_says_so():
    def run():
        signals = triton_dist.symm_zeros((30,), torch.int32)
        wait_for_own_word_kernel[(30,)](signals)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(run, 1)
    text = str(caught.value)
    assert text.count("waits for signals[") == 24
    assert "... and 6 more waits" in text


@triton_dist.jit
def wait_for_own_word_kernel(signals):
    dl.wait(signals + tl.program_id(0), 1, "gpu", "acquire")


@triton_dist.jit
def ring_kernel(ready):
    dl.wait(ready, 1, "sys", "acquire", waitValue=1)
    dl.notify(ready, (dl.rank() + 1) % dl.num_ranks(), signal=1, sig_op="set", comm_scope="intra_node")  # the setting line


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_circle_is_named(world_size):
    def run():
        ready = triton_dist.symm_zeros((1,), torch.int32)
        ring_kernel[(1,)](ready)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(run, world_size)
    line, who = line_of("# the setting line"), "program (0, 0, 0) of ring_kernel"
    circle = str(caught.value).partition("they wait in a circle:\n")[2].splitlines()
    ranks = [rank % world_size for rank in range(world_size, 0, -1)]
    assert circle == [
        f"  rank {rank}, {who} waits for ready[0] of rank {rank}, which would be set by "
        f"rank {(rank - 1) % world_size}, {who} at {__file__}:{line}"
        for rank in ranks
    ]


def test_nothing_is_called_a_circle_that_is_none():
    def run():
        my_signals = triton_dist.symm_zeros((8,), torch.int32)
        wrong_word_kernel[(1,)](my_signals)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(run, 2)
    assert "circle" not in str(caught.value)


@triton_dist.jit
def store_behind_kernel(words, out):
    dl.wait(words, 1, "sys", "acquire", waitValue=1)
    tl.store(out, 1)


def test_looking_for_a_circle_leaves_memory_as_it_is():
    """Tensors in garbage that is collected at any moment, and one that a program would write if it went on."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(30):
            words, out = torch.zeros(9, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
            with pytest.raises(errors.DeadlockError):
                store_behind_kernel[(1,)](words, out)
            assert out.item() == 0 and not words.any()
            cycle: list = [words, out]
            cycle.append(cycle)
    finally:
        gc.set_threshold(*thresholds)
