"""Calls that fail or hang on some ranks, after which the world goes on. On CPU processes: tests/sim/processes."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.worlds.world import meet
from triton_dist.errors import DeadlockError, InvalidArgumentError
from triton_dist.language.extra import libshmem_device
from triton_dist.ops import all_reduce
from triton_dist.runtime.attempts import attempt
from triton_dist.runtime.team import find_team


@triton_dist.jit
def exchange_kernel(words, wanted):
    """Tell the next rank, and wait for ``wanted`` of the one before."""
    dl.notify(words, (dl.rank() + 1) % dl.num_ranks(), signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(words, 1, "sys", "acquire", waitValue=wanted)


@triton_dist.jit
def shmem_barrier_kernel(turns):
    for _ in range(turns):
        libshmem_device.barrier_all_block()


def outcomes_of(act, team=None):
    return attempt(team or find_team(None, "test"), act, 30.0, "a test")


def right(words) -> bool:
    """Whether a call in the same world is right now."""
    words.zero_()
    meet()
    exchange_kernel[(1,)](words, 1)
    triton_dist.synchronize()
    return words.tolist() == [1]


def succeeds() -> None:
    words = triton_dist.symm_zeros((1,), torch.int32)
    rank = triton_dist.rank()

    def act():
        exchange_kernel[(1,)](words, 1)
        return rank

    assert [(each.reason, each.value) for each in outcomes_of(act)] == [(None, 0), (None, 1)]


def hangs() -> None:
    """A kernel waits for what nobody sends; another is queued behind it."""
    words, rank = triton_dist.symm_zeros((1,), torch.int32), triton_dist.rank()

    def act():
        exchange_kernel[(1,)](words, 1 if rank else 7)
        exchange_kernel[(1,)](words, 1)

    outcomes = outcomes_of(act)
    assert outcomes[0].hung and "DeadlockError" in outcomes[0].reason and "words[0] of rank 0 == 7" in outcomes[0].reason
    assert right(words)


def raises_on_one_rank() -> None:
    """One rank does not launch, so the other waits for it in vain."""
    words = triton_dist.symm_zeros((1,), torch.int32)

    def act():
        if triton_dist.rank() == 1:
            raise ValueError("not on this rank")
        exchange_kernel[(1,)](words, 1)

    first, second = outcomes_of(act)
    assert first.hung and second.reason == "ValueError: not on this rank" and not second.hung
    assert right(words)


def raises_before_an_allocation() -> None:
    """One rank does not come to a collective allocation of the others."""
    words = triton_dist.symm_zeros((1,), torch.int32)

    def act():
        if triton_dist.rank() == 0:
            raise ValueError("not on this rank")
        triton_dist.symm_zeros((4,), torch.int32)

    for _ in range(2):
        assert all(each.reason for each in outcomes_of(act))
    assert all_reduce(triton_dist.symm_full((3,), 1.0)).tolist() == [2.0] * 3
    assert right(words)


def raises_before_an_allocation_on_gpus() -> None:
    """The same with more ranks than two, and words on the device."""

    def act() -> None:
        if triton_dist.rank() == 0:
            raise ValueError("not on this rank")
        triton_dist.symm_zeros((4,), torch.int32)

    for _ in range(2):
        assert all(each.reason for each in outcomes_of(act))
    size = triton_dist.world_size()
    assert all_reduce(triton_dist.symm_full((3,), 1.0)).tolist() == [float(size)] * 3


def device_barriers_begin_anew() -> None:
    """One rank goes to a barrier of the device more often than the other."""
    words = triton_dist.symm_zeros((1,), torch.int32)

    def act() -> None:
        shmem_barrier_kernel[(1,)](3 if triton_dist.rank() else 2)

    for _ in range(2):
        assert any(each.hung for each in outcomes_of(act))
        shmem_barrier_kernel[(1,)](2)
        assert right(words)


def loops_for_ever() -> None:
    """No wait of the package, but a loop."""
    words = triton_dist.symm_zeros((1,), torch.int32)

    def act() -> None:
        spinning_kernel[(1,)](words)

    assert all(each.hung for each in outcomes_of(act))
    assert right(words)


@triton_dist.jit
def spinning_kernel(words):
    while tl.load(words, volatile=True) != 5:
        pass


def hang_outside() -> None:
    """Behind an attempt a deadlock ends the run, as ever."""
    words = triton_dist.symm_zeros((1,), torch.int32)
    outcomes_of(lambda: exchange_kernel[(1,)](words, 1))
    exchange_kernel[(1,)](words, 7)
    triton_dist.synchronize()


BODIES = (succeeds, hangs, raises_on_one_rank, raises_before_an_allocation, device_barriers_begin_anew)


def all_in_turn() -> None:
    for body in (*BODIES, hangs):
        body()


@pytest.mark.parametrize("body", [*BODIES, loops_for_ever], ids=lambda body: body.__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_simulated(body, seed):
    triton_dist.simulate(body, 2, seed=seed)


@pytest.mark.parametrize("options", [{"check": "all"}, {"schedule": "pct"}, {"schedule": "late"}, {"execute": "timing"}], ids=str)
def test_simulated_in_other_ways(options):
    triton_dist.simulate(hangs, 2, **options)
    triton_dist.simulate(device_barriers_begin_anew, 2, **options)


def test_a_team_of_some_ranks():
    def body() -> None:
        words = triton_dist.symm_zeros((1,), torch.int32)
        if triton_dist.rank() < 2:
            team = triton_dist.make_team([1, 0])
            outcomes = outcomes_of(lambda: exchange_kernel[(1,)](words, 7), team)
            assert [each.hung for each in outcomes] == [True, True]
        meet()
        words.zero_()
        meet()
        exchange_kernel[(1,)](words, 1)

    triton_dist.simulate(body, 3)


def test_a_deadlock_behind_an_attempt_ends_the_run():
    with pytest.raises(DeadlockError, match="words.0. of rank"):
        triton_dist.simulate(hang_outside, 2)


def test_an_error_of_the_kernel_ends_the_run():
    def body() -> None:
        outcomes_of(lambda: exchange_kernel[(1,)](torch.zeros(1, dtype=torch.int32), 1))

    with pytest.raises(triton_dist.errors.NotSymmetricError):
        triton_dist.simulate(body, 2)


def test_recorded(tmp_path):
    """The report of a run knows what was given up."""
    triton_dist.simulate(hangs, 2, report=tmp_path / "run.html")
    assert (tmp_path / "run.html").stat().st_size


def test_outside_of_a_world():
    with pytest.raises(triton_dist.errors.NotInitializedError):
        find_team(None, "test")
    assert issubclass(InvalidArgumentError, ValueError)
