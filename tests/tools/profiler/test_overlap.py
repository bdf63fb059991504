"""The share of communication that is hidden under compute."""

from __future__ import annotations

import pytest

from tests.tools.profiler.made_up import PRODUCT, SEND, profile, track, wait
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools.profiler import Task, overlap


def send(start: int, end: int | None) -> Task:
    return Task(SEND, start, None if end is None else end - start)


def product(start: int, end: int) -> Task:
    return Task(PRODUCT, start, end - start)


def shares(*tracks) -> tuple[float, float, float]:
    """Communication, what of it is hidden, and the efficiency, of one rank."""
    (found,) = overlap(profile(list(tracks)), ["send"], ["product"])
    return found.communication, found.hidden, found.efficiency


def test_blocks_side_by_side():
    assert shares(track(send(0, 100)), track(product(50, 80)), track(product(70, 200))) == (100, 50, 0.5)
    assert shares(track(send(0, 100)), track(product(100, 200))) == (100, 0, 0.0)
    assert shares(track(send(10, 20), send(30, 40)), track(send(15, 35)), track(product(0, 50))) == (30, 30, 1.0)


def test_a_wait_inside_of_a_product_computes_nothing():
    assert shares(track(send(0, 100)), track(product(0, 100), wait(0, 20, 70))) == (100, 50, 0.5)


def test_another_block_that_computes_meanwhile_counts():
    assert shares(track(send(0, 100)), track(product(0, 100), wait(0, 20, 70)), track(product(30, 60), sm=1)) == (100, 80, 0.8)


def test_a_task_without_an_end_lasts_to_the_last_record():
    assert shares(track(send(0, None), send(10, 50)), track(product(0, 25))) == (50, 25, 0.5)


def test_nothing_to_hide():
    assert shares(track(product(0, 10))) == (0, 0, 1.0)


def test_each_rank_for_itself_and_in_words():
    found = overlap(profile([track(send(0, 4000)), track(product(0, 1000))], [track(send(0, 1000))]), ["send"], ["product"])
    assert [str(of_rank) for of_rank in found] == [
        "rank 0: 25.0 % of 4.0 us of communication are hidden under compute, 3.0 us are not",
        "rank 1: 0.0 % of 1.0 us of communication are hidden under compute, 1.0 us are not",
    ]


@pytest.mark.parametrize("names", [(["sned"], ["product"]), (["send"], ["gemm"])])
def test_names_that_no_task_has(names):
    with pytest.raises(InvalidArgumentError, match="no task is called '(sned|gemm)'; the tasks are send, wait, product"):
        overlap(profile([track(send(0, 1))]), *names)
