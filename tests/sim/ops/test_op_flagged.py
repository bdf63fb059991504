"""Units of data that carry their own signal, on the simulator: what is seen when, and what is named."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors, simulate
from triton_dist.primitives.flagged_functions import push_flagged, take_flagged

COUNT = 32


@triton.jit
def exchange_kernel(words, x, out, flag, FROM: tl.constexpr, COUNT: tl.constexpr):
    """Rank ``r`` pushes into its own place at the other rank of two, and takes the other's. FROM: words before the first place."""
    rank, unit = dl.rank(), tl.arange(0, COUNT)
    inside = unit < COUNT - 1
    push_flagged(dl.symm_at(words, 1 - rank) + FROM + (rank * COUNT + unit) * 2, tl.load(x + unit), flag, inside)
    theirs = take_flagged(words + FROM + unit * 2, COUNT * 16, flag, rank, inside, 2)
    tl.store(out + unit, tl.where(rank == 0, theirs[1], theirs[0]), mask=inside)


def exchange(flags: list[int], offset: int = 0, length: int = 4 * COUNT) -> list[list[int]]:
    words = triton_dist.symm_zeros((length,), torch.int64)
    outs = []
    for number, flag in enumerate(flags):
        x = torch.arange(COUNT) * (1 << 33) - 1000 * number - triton_dist.rank()  # both halves, negative ones too
        outs.append(torch.zeros(COUNT, dtype=torch.int64))
        # Places are used again at once, so two flags at most: a third could overwrite what is not read yet.
        exchange_kernel[(1,)](words, x, outs[-1], flag, offset, COUNT)
    return [out.tolist() for out in outs]


def expected(other: int, number: int) -> list[int]:
    return [(1 << 33) * unit - 1000 * number - other for unit in range(COUNT - 1)] + [0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("flag", [1, -1, -(2**31), 2**31 - 1])
def test_data_of_both_halves_arrive(seed, flag):
    results = simulate(exchange, 2, args=([flag],), seed=seed, check="race")
    assert results == [[expected(1, 0)], [expected(0, 0)]]


def test_a_flag_that_is_there_already_is_named():
    with pytest.raises(errors.FlagReuseError) as caught:
        simulate(exchange, 2, args=([5, 5],))
    text = str(caught.value)
    assert "words[" in text and "is stored with the flag 5, which it carries already, by rank" in text and "exchange_kernel" in text


def test_zero_is_the_flag_of_new_memory():
    with pytest.raises(errors.FlagReuseError, match="the flag 0, which it carries already: its reader"):
        simulate(exchange, 2, args=([0],))


def test_units_that_are_not_aligned_are_named():
    with pytest.raises(errors.MisalignedAccessError, match="of 16 bytes"):
        simulate(exchange, 2, args=([1], 1, 4 * COUNT + 2))


def test_units_out_of_bounds_are_named():
    with pytest.raises(errors.OutOfBoundsError, match="words"):
        simulate(exchange, 2, args=([1], 0, 4 * COUNT - 8))


@triton.jit
def one_word_kernel(words, out, flag, COUNT: tl.constexpr):
    """Only the first word of each unit is stored: the unit is not there."""
    rank, unit = dl.rank(), tl.arange(0, COUNT)
    word = (flag.to(tl.int64) << 32) | 7
    tl.atomic_xchg(dl.symm_at(words, 1 - rank) + (rank * COUNT + unit) * 2, word, sem="relaxed", scope="sys")
    theirs = take_flagged(words + unit * 2, COUNT * 16, flag, rank, unit < COUNT, 2)
    tl.store(out + unit, theirs[0])


def half_units() -> None:
    words = triton_dist.symm_zeros((4 * COUNT,), torch.int64)
    one_word_kernel[(1,)](words, torch.zeros(COUNT, dtype=torch.int64), 3, COUNT)


def test_half_a_unit_is_not_there():
    with pytest.raises(errors.DeadlockError, match="to carry the flag 3; it is 0"):
        simulate(half_units, 2)


@triton.jit
def some_threads_kernel(words, COUNT: tl.constexpr):
    unit = tl.arange(0, COUNT)
    if dl.tid() == 0:
        push_flagged(words + unit * 2, unit.to(tl.int64), 1, unit >= 0)


def test_under_a_condition_of_some_threads_it_is_refused():
    def body() -> None:
        some_threads_kernel[(1,)](triton_dist.symm_zeros((2 * COUNT,), torch.int64), COUNT)

    with pytest.raises(errors.UnsupportedOperationError, match="moved by the whole block"):
        simulate(body, 1)
