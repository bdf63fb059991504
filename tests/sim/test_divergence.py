"""Loops that the threads of a block leave at different times: what lock step can't do, and what hangs all the same."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.worlds.world import meet
from triton_dist import errors, simulate
from triton_dist.language.extra.language_extra import (
    __syncthreads,
    __syncwarp,
    atomic_add,
    atomic_cas,
    atomic_exch,
    ld,
    st,
    tid,
)


@triton_dist.jit
def lock_kernel(lock, counter, tickets, out, RELEASES: tl.constexpr):
    """Every thread takes the lock, adds one without an atomic, and gives the lock back. The twin's thread 77 does not."""
    index = tid(0)
    while atomic_cas(lock, 0, 1, "gpu", "acquire") != 0:
        pass
    ticket = ld(counter, "gpu", "relaxed")
    st(counter, ticket + 1, "gpu", "relaxed")
    st(tickets + index, ticket)
    if RELEASES or index != 77:
        atomic_exch(lock, 0, "gpu", "release")
    __syncthreads()
    tl.store(out, ld(counter, "gpu", "relaxed"))


def lock_tensors() -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros(size, dtype=torch.int32) for size in (1, 1, 128, 1))


def test_every_thread_takes_a_lock():
    tensors = lock_tensors()
    lock_kernel[(1,)](*tensors, RELEASES=True)
    assert (tensors[0].item(), tensors[1].item(), tensors[3].item()) == (0, 128, 128)
    assert sorted(tensors[2].tolist()) == list(range(128))


def test_a_lock_that_is_not_given_back_is_a_deadlock():
    with pytest.raises(errors.DeadlockError, match="spins in a loop that sees no change"):
        lock_kernel[(1,)](*lock_tensors(), RELEASES=False)


@triton_dist.jit
def shared_lock_kernel(lock, counter, ROUNDS: tl.constexpr):
    """One lock for all programs of all ranks, on rank 0, taken several times by each thread of a few."""
    home, shared = dl.symm_at(lock, 0), dl.symm_at(counter, 0)
    if tid(0) % 40 == 1:
        for _ in range(ROUNDS):
            while atomic_cas(home, 0, 1, "sys", "acquire") != 0:
                pass
            st(shared, ld(shared, "sys") + 1, "sys")
            atomic_exch(home, 0, "sys", "release")


def shared_lock() -> int:
    lock, counter = triton_dist.symm_zeros(1, torch.int32), triton_dist.symm_zeros(1, torch.int32)
    meet()
    shared_lock_kernel[(3,)](lock, counter, ROUNDS=5)
    meet()
    return counter.item()


@pytest.mark.parametrize("seed", range(3))
def test_one_lock_for_all_ranks(world, seed):
    assert world(shared_lock, 2, seed=seed)[0] == 2 * 3 * 4 * 5


def test_one_lock_for_all_ranks_in_simulated_time():
    assert simulate(shared_lock, 2, execute="timing")[0] == 120


@triton_dist.jit
def chain_kernel(flags, FIRST_WAITS: tl.constexpr):
    """Each thread waits for the one before it, which tells behind its own loop. The twin's first thread waits for the last."""
    index = tid(0)
    before = flags + (index + 127) % 128
    while ((index > 0) | FIRST_WAITS) & (ld(before, "cta", "acquire") != 1):
        pass
    st(flags + index, 1, "cta", "release")


def test_threads_wait_for_each_other_in_a_row():
    flags = torch.zeros(128, dtype=torch.int32)
    chain_kernel[(1,)](flags, False)
    assert flags.tolist() == [1] * 128


def test_threads_that_wait_in_a_circle_are_a_deadlock():
    with pytest.raises(errors.DeadlockError, match=r"test_divergence.py:\d+ spins"):
        chain_kernel[(1,)](torch.zeros(128, dtype=torch.int32), True)


@triton_dist.jit
def meet_kernel(flag, out, MEETS: tl.constexpr):
    """Thread 0 waits for what thread 1 does behind the loop, and in the twins behind a barrier that thread 0 has to come to first."""
    index = tid(0)
    while (index == 0) & (ld(flag, "gpu", "acquire") == 0):
        pass
    if MEETS == "block":
        __syncthreads()
    elif MEETS == "warp":
        __syncwarp()
    if index == 1:
        st(flag, 5, "gpu", "release")
    st(out + index, index + 1)


def test_what_comes_behind_the_loop_is_waited_for():
    out = torch.zeros(128, dtype=torch.int32)
    meet_kernel[(1,)](torch.zeros(1, dtype=torch.int32), out, MEETS="")
    assert out.tolist() == list(range(1, 129))


@pytest.mark.parametrize("meets", ["block", "warp"])
def test_threads_do_not_pass_a_barrier_by_themselves(meets):
    with pytest.raises(errors.DeadlockError, match=r"test_divergence.py:\d+ spins"):
        meet_kernel[(1,)](torch.zeros(1, dtype=torch.int32), torch.zeros(128, dtype=torch.int32), MEETS=meets)


@triton_dist.jit
def results_kernel(flag, out, scale):
    """Values of the loop and of what comes behind it are used by all threads afterwards, those that differ and those that do not."""
    index = tid(0)
    rounds = index - index
    while (index < 3) & (ld(flag + index, "gpu", "acquire") == 0):
        rounds += 0
    twice = scale * 2
    mine = rounds + index * scale
    if index >= 3:
        atomic_add(flag + index % 3, 1, "gpu", "release")
    __syncthreads()
    st(out + index, mine + twice)


def test_values_are_those_of_each_thread():
    out = torch.zeros(128, dtype=torch.int32)
    results_kernel[(1,)](torch.zeros(128, dtype=torch.int32), out, 7)
    assert out.tolist() == [7 * index + 14 for index in range(128)]


@triton_dist.jit
def nested_kernel(first, second, out):
    """Threads that have left one loop part again at the next."""
    index = tid(0)
    while (index < 64) & (ld(first, "gpu", "acquire") == 0):
        pass
    while (index >= 64) & (index < 127) & (ld(second, "gpu", "acquire") == 0):
        pass
    if index == 127:
        st(second, 1, "gpu", "release")
    if index == 100:
        st(first, 1, "gpu", "release")
    st(out + index, index)


def test_threads_part_twice():
    out = torch.zeros(128, dtype=torch.int32)
    nested_kernel[(1,)](torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), out)
    assert out.tolist() == list(range(128))


def test_the_race_check_is_silent_for_threads_that_run_apart():
    def body():
        tensors = lock_tensors()
        lock_kernel[(1,)](*tensors, RELEASES=True)
        triton_dist.synchronize()
        return tensors[3].item()

    assert simulate(body, 1, check="race") == [128]
