"""Programs with puts, gets, signals and device barriers that are right are silent under the race check; twins with less order are named."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.language.extra import test_libshmem_device as programs
from triton_dist import simulate
from triton_dist.errors import DataRaceError
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.sim.check import RaceCheck

LEVELS = ["thread", "warp", "block"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("nbi", [False, True])
def test_data_with_signals(nbi, level):
    simulate(programs.put_signal, 3, args=(nbi, level, 10, torch.int64), check="race", seed=1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("completes", [False, True])
@pytest.mark.parametrize("teams", [[[0, 1, 2, 3]], [[0, 2], [3, 1]]], ids=["all", "pairs"])
def test_barriers(teams, completes, level):
    simulate(programs.barriers, 4, args=(level, False, completes, teams), check="race", seed=2)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["broadcast", "fcollect"])
def test_collectives(kind, level):
    simulate(programs.collectives, 3, args=(kind, level, True, [2, 0, 1]), check="race", seed=3)


@pytest.mark.parametrize("body", [programs.ping_pong, programs.conditions, programs.ulong_put_signal, programs.ring, programs.pointers])
def test_other_programs(body):
    for seed in range(2):
        simulate(body, 2, check="race", seed=seed)


@triton_dist.jit
def rounds_kernel(data, flag, out, ROUNDS: tl.constexpr, ACKNOWLEDGED: tl.constexpr, COUNT: tl.constexpr):
    """In each round a put with a signal to the next rank; the receiver tells the sender that it has read."""
    place, size = tl.arange(0, COUNT), shmem.n_pes()
    after, before = (shmem.my_pe() + 1) % size, (shmem.my_pe() + size - 1) % size
    for number in range(1, ROUNDS + 1):
        tl.store(data + COUNT + place, place + number)
        shmem.putmem_signal_nbi_block(data, data + COUNT, COUNT * 4, flag, number, shmem.NVSHMEM_SIGNAL_SET, after)
        if dl.tid(0) == 0:
            shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_GE, number)
        dl.__syncthreads()
        tl.store(out + place, tl.load(data + place))
        dl.__syncthreads()
        if dl.tid(0) == 0:
            shmem.signal_op(flag + 1, number, shmem.NVSHMEM_SIGNAL_SET, before)
            if ACKNOWLEDGED:
                shmem.signal_wait_until(flag + 1, shmem.NVSHMEM_CMP_GE, number)
        shmem.quiet()
        dl.__syncthreads()


def rounds(acknowledged: bool) -> None:
    data, flag = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((2,), torch.int64)
    for _ in range(2):
        flag.zero_()
        programs.meet()
        rounds_kernel[(1,)](data, flag, torch.zeros(64, dtype=torch.int32), ROUNDS=12, ACKNOWLEDGED=acknowledged, COUNT=64)
        programs.meet()


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("schedule", ["random", "straggler"])
def test_many_rounds_in_two_launches(schedule, world_size):
    simulate(rounds, world_size, args=(True,), check="race", seed=world_size, schedule=schedule)


def test_rounds_that_nobody_acknowledges_are_named():
    for seed in range(2):
        with pytest.raises(DataRaceError, match="(?s)data race on data.*its putmem_signal_nbi_block at .*writes"):
            simulate(rounds, 2, args=(False,), check=RaceCheck(collect=True), seed=seed)


@triton_dist.jit
def warp_put_kernel(data, flag, out, COUNT: tl.constexpr):
    """Warp 1 stores, puts and tells, each thread its part: it meets by the put itself."""
    thread, after = dl.tid(0), (shmem.my_pe() + 1) % shmem.n_pes()
    if thread // 32 == 1:
        dl.st(data + COUNT + thread - 32, thread)
        shmem.putmem_signal_warp(data, data + COUNT, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_SET, after)
    if thread == 100:
        shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 1)
        dl.st(out, dl.ld(data))


def warp_put() -> None:
    data, flag = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int64)
    warp_put_kernel[(1,)](data, flag, torch.zeros(1, dtype=torch.int32), COUNT=32)


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_warp_meets_in_its_put(world_size):
    for seed in range(3):
        simulate(warp_put, world_size, check="race", seed=seed)


@triton_dist.jit
def two_programs_kernel(data, told, QUIET: tl.constexpr, COUNT: tl.constexpr):
    """Program 0 puts and tells program 1, whose quiet completes that put, too; then program 1 overwrites the source."""
    after = (shmem.my_pe() + 1) % shmem.n_pes()
    if tl.program_id(0) == 0:
        shmem.putmem_nbi_block(data, data + COUNT, COUNT * 4, after)
        dl.notify(told, shmem.my_pe(), signal=1, sig_op="set", comm_scope="intra_node")
    else:
        dl.wait(told, 1, "sys", "acquire", waitValue=1)
        if QUIET:
            shmem.quiet()
        tl.store(data + COUNT + tl.arange(0, COUNT), 1)


def two_programs(quiet: bool) -> None:
    data, told = triton_dist.symm_zeros((128,), torch.int32), triton_dist.symm_zeros((1,), torch.int64)
    for _ in range(2):
        told.zero_()
        two_programs_kernel[(2,)](data, told, QUIET=quiet, COUNT=64)
        programs.meet()


def test_quiet_completes_what_another_program_has_told_of():
    for seed in range(3):
        simulate(two_programs, 2, args=(True,), check="race", seed=seed)
        with pytest.raises(DataRaceError, match="(?s)reader is done.*call quiet"):
            simulate(two_programs, 2, args=(False,), check="race", seed=seed)
