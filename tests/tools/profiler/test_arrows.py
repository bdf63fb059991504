"""Which notify ended which wait."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.tools.profiler.kernels import NAMES, ring_kernel
from tests.tools.profiler.made_up import clock, notify, profile, track, wait
from triton_dist.tools.profiler import alloc_profiler_buffer
from triton_dist.tools.profiler.arrows import describe_word, find_arrows, place_of
from triton_dist.tools.profiler.profile import gather_profile, rank_profile


def ends(*ranks, **options) -> list[tuple[int, int, float]]:
    """Of each arrow the rank and the time that it comes from, and how long it is."""
    arrows = find_arrows(profile(*ranks, **options))
    return [(arrow.begin.rank, arrow.notify.time, arrow.latency) for arrow in arrows]


def test_from_the_first_notify_during_the_wait():
    sent = [track(notify(0, 1, 50), notify(0, 1, 120), notify(0, 1, 140), notify(0, 1, 300))]
    assert ends(sent, [track(wait(1, 100, 200))]) == [(0, 120, 80.0)]


def test_from_the_last_one_before_if_the_condition_held_already():
    sent = [track(notify(0, 1, 20), notify(0, 1, 50), notify(0, 1, 300))]
    assert ends(sent, [track(wait(1, 100, 200))]) == [(0, 50, 150.0)]


def test_values_that_do_not_meet_the_condition_end_nothing():
    sent = [track(notify(0, 1, 110, value=1), notify(0, 1, 120, value=2), notify(0, 1, 130, value=3))]
    assert ends(sent, [track(wait(1, 100, 200, value=2))]) == [(0, 120, 80.0)]
    assert ends(sent, [track(wait(1, 100, 200, value=2, cmp="gt"))]) == [(0, 130, 70.0)]
    assert ends(sent, [track(wait(1, 100, 200, value=7))]) == []


@pytest.mark.parametrize(
    ("cmp", "value", "holds"),
    [
        ("eq", 5, True),
        ("ne", 5, False),
        ("ge", 5, True),
        ("gt", 5, False),
        ("le", 5, True),
        ("lt", 5, False),
        ("gt", 4, True),
        ("lt", 6, True),
    ],
)
def test_each_comparison(cmp, value, holds):
    assert bool(ends([track(notify(0, 1, 150, value=5))], [track(wait(1, 100, 200, value=value, cmp=cmp))])) == holds


def test_counters_may_wrap_around():
    sent = [track(notify(0, 1, 150, value=-(1 << 31)))]
    assert ends(sent, [track(wait(1, 100, 200, value=(1 << 31) - 1, cmp="gt"))])


def test_a_sum_ends_a_wait_by_the_last_addition_in_time():
    sent = [[track(notify(rank, 3, 110 + 20 * rank, operation="add"), notify(rank, 3, 500, operation="add"))] for rank in range(3)]
    assert ends(*sent, [track(wait(3, 100, 200, value=3, cmp="ge"))]) == [(2, 150, 50.0)]


def test_of_several_words_the_one_that_came_last():
    sent = [track(notify(0, 1, 110, index=2), notify(0, 1, 170, index=1), notify(0, 1, 130, index=0), notify(0, 1, 190, index=3))]
    assert ends(sent, [track(wait(1, 100, 200, count=3))]) == [(0, 170, 30.0)]


def test_words_of_64_bits_have_their_own_places():
    sent = [track(notify(0, 1, 110, index=1, nbytes=8), notify(0, 1, 180, index=1, nbytes=4))]
    assert ends(sent, [track(wait(1, 100, 200, count=2, nbytes=8))]) == [(0, 110, 90.0)]


def test_other_words_and_other_ranks_end_nothing():
    sent = [track(notify(0, 0, 110), notify(0, 1, 120, index=1), notify(0, 2, 130))]
    assert ends(sent, [track(wait(1, 100, 200))]) == []


def test_times_are_those_of_one_clock():
    """By rank 1's clock, which is 1000 ahead, the notify of 150 would come before the wait."""
    sent = [track(notify(0, 1, 150), notify(0, 1, 1150))]
    assert ends(sent, [track(wait(1, 1100, 1200))], clocks=[clock(0), clock(1000)]) == [(0, 150, 50.0)]


def test_what_clocks_are_off_is_allowed_for():
    """The notify seems to come 8 after the wait that it ended; the clocks may be 10 off together."""
    sent, waited = [track(notify(0, 1, 208))], [track(wait(1, 100, 200))]
    assert ends(sent, waited, clocks=[clock(0, bound=6), clock(0, bound=4)]) == [(0, 208, -8.0)]
    assert ends(sent, waited, clocks=[clock(0, bound=3), clock(0, bound=4)]) == []


def test_memory_outside_of_the_heap_is_a_ranks_own():
    from triton_dist.tools.profiler import Word

    word = Word(0x7F00_0000_1000, "eq", 1)
    assert place_of(word, 2, index=1) == (2, 0x7F00_0000_1004)
    assert describe_word(Word(0x7F00_0000_1000, "eq", 1, count=3), 2) == "word 0x7f0000001000 of rank 2 and 2 more"


@pytest.mark.parametrize("seed", range(3))
def test_every_wait_of_a_ring_is_ended_by_the_neighbour(seed):
    rounds, programs = 3, 2

    def run():
        buffer, flags = alloc_profiler_buffer(400), triton_dist.symm_zeros((programs,), torch.int32)
        ring_kernel[(programs,)](buffer, flags, ROUNDS=rounds, PROFILE=True)
        return gather_profile(rank_profile(buffer), NAMES)

    everyone = triton_dist.simulate(run, 3, seed=seed)
    assert all([rank.rank for rank in found.ranks] == [0, 1, 2] for found in everyone)
    arrows = find_arrows(everyone[0])
    assert len(arrows) == 3 * rounds * programs
    for arrow in arrows:
        assert arrow.begin.rank == (arrow.end.rank - 1) % 3 and arrow.begin.track.block == arrow.end.track.block
        assert arrow.notify.word.value >= arrow.wait.word.value and arrow.latency >= 0
