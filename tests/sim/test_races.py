"""The race check itself: its options, its reports, what it must not report, and its clocks and shadow memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import simulate
from triton_dist.errors import DataRaceError, DeadlockError, InvalidArgumentError
from triton_dist.sim.check import Race, RaceCheck
from triton_dist.sim.check.clocks import EMPTY, Clock, join, join_entries, learn
from triton_dist.sim.check.shadow import Shadow, box_of, view
from triton_dist.sim.memory import Allocation


@triton_dist.jit
def write_to_next_kernel(inbox, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    after = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(inbox, after) + offset, offset)
    tl.store(out + offset, tl.load(inbox + offset))


def write_to_next() -> None:
    inbox = triton_dist.symm_zeros((64,), torch.int32, name="inbox")
    write_to_next_kernel[(1,)](inbox, torch.zeros(64, dtype=torch.int32), COUNT=64)


def test_the_report_names_both_sides_and_the_missing_order():
    with pytest.raises(DataRaceError) as caught:
        simulate(write_to_next, 2, check="race")
    (race,) = caught.value.races
    assert isinstance(race, Race) and race.tensor == "inbox" and (race.first, race.last) == (0, 63) and race.owner in (0, 1)
    assert {race.earlier.kind, race.later.kind} == {"read", "write"} and {race.earlier.rank, race.later.rank} == {0, 1}
    assert all("test_races.py:" in side.line for side in (race.earlier, race.later))
    text = str(caught.value)
    assert "data race on inbox[0..63] of rank" in text and "program (0, 0, 0) of write_to_next_kernel" in text
    assert "nothing says that" in text and "dl.notify" in text


def test_all_races_can_be_collected():
    with pytest.raises(DataRaceError) as caught:
        simulate(write_to_next, 4, check=RaceCheck(collect=True))
    assert len(caught.value.races) == 1, "the same two lines count once"

    def twice():
        write_to_next()
        x, side = torch.zeros(8), triton_dist.Stream()
        with triton_dist.stream(side):
            x.add_(1)

    with pytest.raises(DataRaceError, match="2 data races|3 data races|4 data races"):
        simulate(twice, 2, check=RaceCheck(collect=True))
    with pytest.raises(DataRaceError) as caught:
        simulate(twice, 2, check=RaceCheck(collect=True, limit=1))
    assert len(caught.value.races) == 1


@pytest.mark.parametrize("check", ["everything", 1, True, RaceCheck, [], [RaceCheck(), RaceCheck()], ["race"]])
def test_other_checks_are_refused(check):
    with pytest.raises(InvalidArgumentError, match="check="):
        simulate(write_to_next, 2, check=check)


def test_a_run_for_its_time_is_not_checked():
    with pytest.raises(InvalidArgumentError, match="use 'data'"):
        simulate(write_to_next, 2, check="race", execute="timing")


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_bad_limit_is_refused(limit):
    with pytest.raises(InvalidArgumentError, match="limit="):
        RaceCheck(limit=limit)


def test_without_the_check_nothing_is_reported():
    simulate(write_to_next, 2)


def test_kernels_are_generated_anew_for_the_check_only():
    from triton_dist.sim import kernel as kernels

    simulate(write_to_next, 1)
    plain = next(reversed(kernels._kernels.values())).function.source
    simulate(write_to_next, 1, check=None)
    assert "C.at" not in plain and "race" not in plain


def test_memory_that_is_used_again_gives_no_false_alarm():
    def fn():
        for _ in range(3):
            x = triton_dist.symm_zeros((64,), torch.int32)
            write_to_next_kernel[(1,)](x, torch.zeros(64, dtype=torch.int32), COUNT=64)
            triton_dist.synchronize()
            triton_dist.symm_free(x)
            del x

    simulate(fn, 1, check="race")


def test_launches_of_one_stream_are_ordered_and_of_two_are_not():
    def fn(streams):
        x = torch.zeros(64, dtype=torch.int32)
        chosen = [triton_dist.Stream() for _ in range(streams)]
        for stream in chosen:
            stream.wait_stream(triton_dist.current_stream())
        for number in range(4):
            with triton_dist.stream(chosen[number % streams]):
                add_one_kernel[(1,)](x, COUNT=64)

    simulate(fn, 1, args=(1,), check="race")
    with pytest.raises(DataRaceError, match="into one stream|of one launch|dl.notify"):
        simulate(fn, 1, args=(2,), check="race")


@triton.jit
def add_one_kernel(x, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(x + offset, tl.load(x + offset) + 1)


def test_hosts_are_ordered_by_what_they_wait_for():
    def fn(meet):
        torch.distributed.init_process_group("gloo")
        x = triton_dist.symm_zeros((8,), torch.int32)
        rank, size = triton_dist.rank(), triton_dist.world_size()
        x.fill_(rank)
        triton_dist.synchronize()
        if meet:
            torch.distributed.barrier()
        return triton_dist.symm_peer(x, (rank + 1) % size).tolist()

    assert simulate(fn, 3, args=(True,), check="race") == [[1] * 8, [2] * 8, [0] * 8]
    with pytest.raises(DataRaceError):
        simulate(fn, 3, args=(False,), check="race")


def test_a_race_is_told_before_the_deadlock_that_it_leads_to():
    @triton_dist.jit
    def kernel(x, flag, COUNT: tl.constexpr):
        offset = tl.arange(0, COUNT)
        tl.store(x + offset, offset)
        dl.wait(flag, 1, "sys", "acquire", waitValue=tl.program_id(0) + 1)

    def fn():
        kernel[(2,)](torch.zeros(8, dtype=torch.int32), triton_dist.symm_zeros((1,), torch.int32), COUNT=8)

    with pytest.raises(DataRaceError):
        simulate(fn, 1, check=RaceCheck(collect=True))
    with pytest.raises(DeadlockError):
        simulate(fn, 1)


def test_clocks_join():
    one = Clock(EMPTY.coarse, {1: 5, 2: 3}).with_coarse(2, 7)
    other = Clock(EMPTY.coarse, {2: 4}).with_coarse(20, 1)
    both = join(one, other)
    assert (both.coarse_at(2), both.coarse_at(20), both.coarse_at(1000)) == (7, 1, 0)
    assert (both.fine_at(1), both.fine_at(2), both.fine_at(9)) == (5, 4, 0)
    assert join(both, one).fine is both.fine and join(one, one) is one
    assert learn(one, other, ((9, 2),)).fine_at(9) == 2


def test_clocks_with_many_entries_become_arrays():
    many = join_entries(EMPTY, tuple((slot, slot + 1) for slot in range(300)))
    few = join_entries(EMPTY, ((3, 100), (500, 1)))
    assert isinstance(many.fine, np.ndarray) and isinstance(few.fine, dict)
    for both in (join(many, few), join(few, many), learn(many, few, ()), join(join(many, few), many)):
        assert [both.fine_at(slot) for slot in (0, 3, 299, 500, 10_000)] == [1, 100, 300, 1, 0]
        assert len(both.fine_items()) == 301


@pytest.mark.parametrize(
    ("counts", "strides"),
    [((8,), (4,)), ((3, 8), (64, 4)), ((3, 8), (4, 64)), ((4, 3, 2), (-96, 24, 8)), ((5, 1, 4), (40, 0, 8)), ((6, 4), (4, 4))],
)
def test_cells_are_those_that_the_elements_touch(counts, strides):
    """Against a count element by element, with cells that other accesses made finer or not."""
    address, itemsize = 4096 + 480, 4
    for earlier in (None, (4096, 16), (4096 + 6, 2)):
        shadow = Shadow(Allocation(4096, 4096 + 1024, "x", 4))
        if earlier is not None:
            view(shadow.writes, shadow.place(box_of(earlier[0], (1,), (0,), earlier[1])))
        place = shadow.place(box_of(address, counts, strides, itemsize))
        view(shadow.writes, place)[...] = 7
        touched = np.zeros(1024, bool)
        for index in np.ndindex(*counts):
            begin = address - 4096 + sum(i * stride for i, stride in zip(index, strides, strict=True))
            touched[begin : begin + itemsize] = True
        assert (np.repeat(shadow.writes == 7, shadow.granule)[:1024] == touched).all()


@triton_dist.jit
def two_lines_kernel(data, out):
    if tl.program_id(0) == 0:
        tl.store(out, tl.load(data))
    else:
        tl.store(data, 1)  # td: ignore[TD101]
        tl.store(data, 2)


@pytest.mark.parametrize("seed", range(4))
def test_a_line_that_is_silenced_hides_no_other_one(seed):
    """Both stores race with the load, whichever comes first in the run."""

    def fn():
        two_lines_kernel[(2,)](triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32))

    with pytest.raises(DataRaceError) as caught:
        simulate(fn, 1, check=RaceCheck(collect=True), seed=seed)
    lines = {side.line for race in caught.value.races for side in (race.earlier, race.later)}
    assert len(caught.value.races) == 1 and len(lines) == 2
