"""The SHMEM functions on simulated ranks: what is late without an order, what misuse is called, and ranks without a direct pointer."""

from __future__ import annotations

import warnings

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.worlds.world import meet
from triton_dist import errors, simulate
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.language_extra import __syncthreads, tid
from triton_dist.sim.machine import Machine
from triton_dist.sim.teams import TeamNumbers

SEEDS = range(24)
COUNT = 64


def seen_by_seed(body, world_size=2, args=(), seeds=SEEDS, **options) -> set:
    """What the ranks return, over seeds."""
    return {value for seed in seeds for value in simulate(body, world_size, args=args, seed=seed, **options)}


# ---------------------------------------------------------------------- right programs and their twins


@triton_dist.jit
def message_kernel(data, flag, out, ORDER: tl.constexpr, NBI: tl.constexpr, COUNT: tl.constexpr):
    """Data by a put, then a flag by ``signal_op``: with a quiet or fence between them, or without."""
    place = tl.arange(0, COUNT)
    if shmem.my_pe() == 0:
        if NBI:
            shmem.putmem_nbi_block(data, data, COUNT * 4, 1)
        else:
            shmem.putmem_block(data, data, COUNT * 4, 1)
        if ORDER == "quiet":
            shmem.quiet()
        if ORDER == "fence":
            shmem.fence()
        if tid(0) == 0:
            shmem.signal_op(flag, 1, shmem.NVSHMEM_SIGNAL_SET, 1)
            shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 2)
    else:
        if tid(0) == 0:
            shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 1)
        __syncthreads()
        tl.store(out + place, tl.load(data + place))
        __syncthreads()
        if tid(0) == 0:
            shmem.signal_op(flag, 2, shmem.NVSHMEM_SIGNAL_SET, 0)


def message(order: str, nbi: bool) -> int:
    data, flag = triton_dist.symm_full((COUNT,), -1, torch.int32), triton_dist.symm_zeros(1, torch.int64)
    if triton_dist.rank() == 0:
        data.fill_(5)
    out = torch.full((COUNT,), 5, dtype=torch.int32)
    meet()
    message_kernel[(1,)](data, flag, out, ORDER=order, NBI=nbi, COUNT=COUNT)
    triton_dist.synchronize()
    return out.min().item()


@pytest.mark.parametrize("nbi", [False, True])
@pytest.mark.parametrize("order", ["quiet", "fence"])
def test_ordered_data_is_there_when_its_flag_is(order, nbi):
    assert seen_by_seed(message, args=(order, nbi)) == {5}


@pytest.mark.parametrize("nbi", [False, True])
def test_a_forgotten_quiet_shows_old_data(nbi):
    """A blocking put has only read its source, so it needs the order as well."""
    late = [min(simulate(message, 2, args=("", nbi), seed=seed)) for seed in SEEDS]
    assert late.count(-1) > len(SEEDS) // 2 and late.count(5) > 0, "most seeds show the late data, some are prompt"


@triton_dist.jit
def reuse_kernel(data, source, out, NBI: tl.constexpr, QUIET: tl.constexpr, COUNT: tl.constexpr):
    """The source is overwritten behind the put."""
    place = tl.arange(0, COUNT)
    if NBI:
        shmem.putmem_nbi_block(data, source, COUNT * 4, (shmem.my_pe() + 1) % shmem.n_pes())
    else:
        shmem.putmem_block(data, source, COUNT * 4, (shmem.my_pe() + 1) % shmem.n_pes())
    if QUIET:
        shmem.quiet()
    tl.store(source + place, -3)


def reuse(nbi: bool, quiet: bool) -> int:
    data, source = triton_dist.symm_zeros(COUNT, torch.int32), torch.full((COUNT,), 8, dtype=torch.int32)
    meet()
    reuse_kernel[(1,)](data, source, source, NBI=nbi, QUIET=quiet, COUNT=COUNT)
    meet()
    return data.max().item()


@pytest.mark.parametrize("nbi, quiet, expected", [(False, False, {8}), (True, True, {8}), (True, False, {8, -3})])
def test_when_the_source_of_a_put_may_be_changed(nbi, quiet, expected):
    assert seen_by_seed(reuse, args=(nbi, quiet)) == expected


@triton_dist.jit
def get_kernel(data, out, QUIET: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    shmem.getmem_nbi_block(out, data, COUNT * 4, (shmem.my_pe() + 1) % shmem.n_pes())
    if QUIET:
        shmem.quiet()
    else:
        shmem.fence()
    tl.store(out + COUNT + place, tl.load(out + place))


def get(quiet: bool) -> int:
    data, out = triton_dist.symm_full((COUNT,), 6, torch.int32), torch.zeros(2 * COUNT, dtype=torch.int32)
    meet()
    get_kernel[(1,)](data, out, QUIET=quiet, COUNT=COUNT)
    triton_dist.synchronize()
    return out[COUNT:].max().item()


def test_a_get_without_quiet_is_late():
    """A fence does not complete it."""
    assert seen_by_seed(get, args=(True,)) == {6}
    assert seen_by_seed(get, args=(False,)) == {0, 6}


@triton_dist.jit
def signal_kernel(data, flag, out, WAIT: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.putmem_signal_nbi_block(data, data + COUNT, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_SET, peer)
    if WAIT:
        if tid(0) == 0:
            shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 1)
        __syncthreads()
    tl.store(out + place, tl.load(data + place))


def put_signal(wait: bool) -> int:
    data, flag = triton_dist.symm_zeros(2 * COUNT, torch.int32), triton_dist.symm_zeros(1, torch.int64)
    data[COUNT:] = 4
    out = torch.zeros(COUNT, dtype=torch.int32)
    meet()
    signal_kernel[(1,)](data, flag, out, WAIT=wait, COUNT=COUNT)
    triton_dist.synchronize()
    return out.min().item()


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_a_signal_lands_behind_its_data_and_without_a_quiet(world_size):
    assert seen_by_seed(put_signal, world_size, args=(True,)) == {4}


def test_a_forgotten_wait_for_the_signal_shows_old_data():
    assert seen_by_seed(put_signal, args=(False,)) == {0, 4}


def put_in_a_kernel() -> int:
    """A kernel's puts have landed when it ends: the next one in its stream finds them."""
    data = triton_dist.symm_zeros(COUNT, torch.int32)
    out = torch.zeros(2 * COUNT, dtype=torch.int32)
    reuse_kernel[(1,)](data, torch.full((COUNT,), 8, dtype=torch.int32), out, NBI=False, QUIET=False, COUNT=COUNT)
    return int(data[0])


def test_puts_land_at_the_end_of_their_kernel():
    assert seen_by_seed(put_in_a_kernel, 1) == {8}


@triton_dist.jit
def early_kernel(buffer, ready, seen, HANDSHAKE: tl.constexpr):
    """Rank 0 puts into what rank 1 still reads, unless it waits for its word."""
    if shmem.my_pe() == 0:
        if HANDSHAKE:
            if tid(0) == 0:
                shmem.signal_wait_until(ready, shmem.NVSHMEM_CMP_EQ, 1)
            __syncthreads()
        shmem.putmem_nbi_block(buffer, buffer + 4, 4, 1)
        if tid(0) == 0:
            shmem.signal_wait_until(ready + 1, shmem.NVSHMEM_CMP_EQ, 1)
    else:
        total = 0
        for _ in range(40):
            total += dl.ld(buffer, "sys")
        tl.store(seen, total)
        if tid(0) == 0:
            shmem.signal_op(ready, 1, shmem.NVSHMEM_SIGNAL_SET, 0)
            shmem.signal_op(ready + 1, 1, shmem.NVSHMEM_SIGNAL_SET, 0)


def early(handshake: bool) -> int:
    buffer, ready = triton_dist.symm_zeros(8, torch.int32), triton_dist.symm_zeros(2, torch.int64)
    buffer[4] = 1
    seen = torch.zeros(1, dtype=torch.int32)
    meet()
    early_kernel[(1,)](buffer, ready, seen, HANDSHAKE=handshake)
    triton_dist.synchronize()
    return seen.item()


def test_some_puts_are_prompt_so_that_unready_receivers_see_it():
    assert seen_by_seed(early, args=(True,)) == {0}
    assert len(seen_by_seed(early, args=(False,))) > 1


def test_the_same_seed_gives_the_same_run():
    for seed in range(6):
        assert simulate(message, 2, args=("", True), seed=seed) == simulate(message, 2, args=("", True), seed=seed)


@pytest.mark.parametrize("schedule", ["round_robin", "straggler"])
def test_other_schedules_land_puts_too(schedule):
    assert seen_by_seed(put_signal, 4, args=(True,), schedule=schedule) == {4}


# ---------------------------------------------------------------------- reports


@triton_dist.jit
def lonely_wait_kernel(words):
    if tid(0) == 0:
        shmem.signal_wait_until(words + 1, shmem.NVSHMEM_CMP_GE, 3)  # the wait


def lonely_wait() -> None:
    signals = triton_dist.symm_zeros(2, torch.int64)
    lonely_wait_kernel[(1,)](signals)


def test_a_signal_that_nobody_sends_is_a_deadlock_that_names_it():
    with pytest.raises(errors.DeadlockError, match=r"test_shmem\.py:\d+ waits for signals\[1\] of rank 0 >= 3; it is 0; nobody wrote it"):
        simulate(lonely_wait, 2)


@triton_dist.jit
def unmet_barrier_kernel(out):
    if shmem.my_pe() != 1:
        shmem.barrier_all_block()
    tl.store(out, 1)


def unmet_barrier() -> None:
    unmet_barrier_kernel[(1,)](torch.zeros(1, dtype=torch.int32))


def test_a_barrier_that_a_rank_does_not_come_to_names_the_rank():
    with pytest.raises(errors.DeadlockError, match=r"waits for arrived_at_barrier_of_team_0\[1\] of rank 0 >= 1; it is 0; nobody wrote it"):
        simulate(unmet_barrier, 3)


@triton_dist.jit
def misuse_kernel(symmetric, plain, words, CASE: tl.constexpr):
    if CASE == "many threads in barrier_all":
        shmem.barrier_all()
    elif CASE == "many warps in barrier_all_warp":
        shmem.barrier_all_warp()
    elif CASE == "a block form under a condition":
        if tid(0) < 64:
            shmem.putmem_block(symmetric, plain, 4, 0)
    elif CASE == "a block form with several arguments":
        shmem.putmem_block(symmetric + tid(0), plain, 1, 0)
    elif CASE == "a warp form with several arguments":
        shmem.getmem_warp(plain + tid(0), symmetric, 1, 0)
    elif CASE == "dest is not symmetric":
        shmem.putmem_block(plain, symmetric, 4, 0)
    elif CASE == "source is not symmetric":
        shmem.getmem_block(symmetric, plain, 4, 0)
    elif CASE == "no such rank":
        shmem.putmem_block(symmetric, plain, 4, shmem.n_pes())
    elif CASE == "past the end of dest":
        shmem.putmem_block(symmetric, plain, 41, 0)
    elif CASE == "past the end of source":
        shmem.putmem_block(symmetric, plain + 1, 40, 0)
    elif CASE == "a negative size":
        shmem.putmem_block(symmetric, plain, shmem.my_pe() - 3, 0)
    elif CASE == "no such team":
        shmem.barrier_block(9)
    elif CASE == "no such root":
        shmem.broadcastmem_block(0, symmetric, symmetric, 4, 7)
    elif CASE == "signal past the end":
        shmem.putmem_signal_block(symmetric, plain, 4, words + 1, 1, shmem.NVSHMEM_SIGNAL_SET, 0)
    elif CASE == "signal_op to no rank":
        shmem.signal_op(words, 1, shmem.NVSHMEM_SIGNAL_SET, 8)
    elif CASE == "p past the end":
        shmem.p(symmetric + 10, 1, 0)
    elif CASE == "g of plain memory":
        shmem.g(plain, 0)
    elif CASE == "remote_ptr of plain memory":
        dl.st(shmem.remote_ptr(plain, 0), 1)


MISUSE = {
    "many threads in barrier_all": (errors.SimulationError, r"barrier is called by 128 threads of the block.*tid\(0\) == 0.*barrier_block"),
    "many warps in barrier_all_warp": (errors.SimulationError, r"barrier_warp is called by 4 warps of the block.*barrier_block"),
    "a block form under a condition": (errors.SimulationError, r"putmem_block is a call of the whole block, but 64 of 128 threads come"),
    "a block form with several arguments": (errors.SimulationError, r"putmem_block is one call of a block, but its threads pass different"),
    "a warp form with several arguments": (errors.SimulationError, r"getmem_warp is one call of a warp, but its threads pass different"),
    "dest is not symmetric": (errors.NotSymmetricError, r"putmem_block needs a pointer into the symmetric heap, but 'plain'"),
    "source is not symmetric": (errors.NotSymmetricError, r"getmem_block needs a pointer into the symmetric heap, but 'plain'"),
    "no such rank": (errors.UnreachablePeerError, r"putmem_block: there is no rank 2 in a world of 2"),
    "past the end of dest": (errors.OutOfBoundsError, r"putmem_block to of symmetric\[10\] of rank 0, 1 bytes past the end"),
    "past the end of source": (errors.OutOfBoundsError, r"putmem_block from of plain\[10\], 4 bytes past the end"),
    "a negative size": (errors.SimulationError, r"putmem_block: bytes is -\d; it has to be 0 or more"),
    "no such team": (errors.SimulationError, r"barrier_block: rank \d is in no team 9; its teams are \[0, 1, 2\].*make_team"),
    "no such root": (errors.SimulationError, r"broadcastmem_block: pe_root is 7; it has to be a place in team 0 of 2 ranks"),
    "signal past the end": (errors.OutOfBoundsError, r"putmem_signal_block \(sig_addr\) of words\[1\]"),
    "signal_op to no rank": (errors.UnreachablePeerError, r"signal_op: there is no rank 8"),
    "p past the end": (errors.OutOfBoundsError, r"p of symmetric\[10\]"),
    "g of plain memory": (errors.NotSymmetricError, r"g needs a pointer into the symmetric heap"),
    "remote_ptr of plain memory": (errors.NotSymmetricError, r"remote_ptr needs a pointer into the symmetric heap"),
}


def misuse(case: str) -> None:
    symmetric, words = triton_dist.symm_zeros(10, torch.int32), triton_dist.symm_zeros(1, torch.int64)
    misuse_kernel[(1,)](symmetric, torch.zeros(10, dtype=torch.int32), words, CASE=case)


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_named_with_its_line(case):
    expected, text = MISUSE[case]
    with pytest.raises(expected, match=rf"(?s)rank \d, program \(0, 0, 0\) of misuse_kernel at .*test_shmem\.py:\d+: .*{text}"):
        simulate(misuse, 2, args=(case,))


@triton_dist.jit
def two_callers_kernel(out):
    shmem.barrier_all_block()
    tl.store(out + tl.program_id(0), 1)


def two_callers() -> None:
    two_callers_kernel[(2 if triton_dist.rank() == 0 else 1,)](torch.zeros(2, dtype=torch.int32))


def test_two_blocks_of_a_rank_in_one_barrier_are_named():
    found = set()
    for seed in SEEDS:
        with pytest.raises((errors.SimulationError, errors.DeadlockError)) as caught:
            simulate(two_callers, 2, seed=seed)
        found.add(type(caught.value))
        if type(caught.value) is not errors.DeadlockError:
            assert "barrier_block of team 0 while rank 0, program" in str(caught.value)
    assert len(found) == 2, "one after the other, the second one waits for a rank that does not come again"


@triton_dist.jit
def few_lanes_kernel(symmetric, plain):
    if tid(0) == 0:
        shmem.putmem_warp(symmetric, plain, 40, 0)


def few_lanes() -> list[int]:
    symmetric = triton_dist.symm_zeros(10, torch.int32)
    few_lanes_kernel[(1,)](symmetric, torch.arange(10, dtype=torch.int32))
    triton_dist.synchronize()
    return symmetric.tolist()


def test_a_warp_form_called_by_few_threads_is_a_warning():
    with pytest.warns(
        errors.LanesMissingWarning, match=r"few_lanes_kernel at .*test_shmem\.py:\d+: putmem_warp .* but 1 of them come here"
    ):
        assert simulate(few_lanes, 1) == [list(range(10))]


def test_whole_warps_are_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.LanesMissingWarning)
        assert seen_by_seed(put_signal, 2, args=(True,), seeds=[0]) == {4}


# ---------------------------------------------------------------------- virtual nodes, teams, time


@triton_dist.jit
def nodes_kernel(data, flag, out, COUNT: tl.constexpr):
    """Every rank reaches every other one by puts, gets, signals and barriers, with a direct pointer or without."""
    me, size = shmem.my_pe(), shmem.n_pes()
    for step in range(1, size):
        peer = (me + step) % size
        shmem.putmem_signal_nbi_block(data + (1 + me) * COUNT, data, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_ADD, peer)
    if tid(0) == 0:
        shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, size - 1)
    __syncthreads()
    shmem.barrier_all_block()
    shmem.getmem_block(out, data, 4, (me + size - 1) % size)
    if tid(0) < size:
        dl.st(out + 1 + tid(0), (shmem.remote_ptr(data, tid(0)).to(tl.int64) != 0).to(tl.int32))
    if tid(0) == 0:
        dl.st(out + 9, shmem.team_n_pes(shmem.NVSHMEMX_TEAM_NODE))
        dl.st(out + 10, shmem.team_my_pe(shmem.NVSHMEMX_TEAM_NODE))


def on_nodes() -> list[list[int]]:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    data = triton_dist.symm_zeros((1 + size) * COUNT, torch.int32)
    data[:COUNT] = 10 + rank
    flag, out = triton_dist.symm_zeros(1, torch.int64), torch.zeros(16, dtype=torch.int32)
    meet()
    nodes_kernel[(1,)](data, flag, out, COUNT=COUNT)
    meet()
    return [data.view(1 + size, COUNT)[:, 0].tolist(), out.tolist()]


@pytest.mark.parametrize("num_nodes", [1, 2, 4])
def test_ranks_of_other_nodes_are_reached_by_puts_and_have_no_pointer(num_nodes):
    local = 4 // num_nodes
    for rank, (rows, out) in enumerate(simulate(on_nodes, 4, num_nodes=num_nodes)):
        assert rows[1:] == [0 if other == rank else 10 + other for other in range(4)]
        assert out[0] == 10 + (rank - 1) % 4
        assert out[1:5] == [int(other // local == rank // local) for other in range(4)]
        assert out[9:11] == [local, rank % local]


def test_numbers_of_teams():
    machine = Machine(4, num_nodes=2)
    teams: TeamNumbers = machine.teams
    assert [teams.members(3, number) for number in range(4)] == [(0, 1, 2, 3), (2, 3), (2, 3), None]
    assert teams.enter((3, 1)) == 3 and teams.enter((3, 1)) == 3
    assert teams.enter((0, 2)) == 3, "disjoint teams may have the same number"
    assert teams.enter((0, 1)) == 4 and teams.number((0, 1)) == 4
    teams.leave((3, 1))
    assert teams.members(1, 3) is None and teams.number((3, 1)) is None
    assert teams.enter((1, 3)) == 3
    many = [teams.enter((0, 1, 2, 3)[:3][::-1]) for _ in range(2)]
    assert many[0] == many[1]


def team_numbers() -> list[int]:
    own = triton_dist.make_team([triton_dist.rank()])
    numbers = [triton_dist.team_number(), triton_dist.team_number(own)]
    triton_dist.free_team(own)
    with pytest.raises(errors.InvalidArgumentError, match=r"team_number: the team of ranks \[\d\] has no number; make it by"):
        triton_dist.team_number(own)
    return numbers


def test_the_number_of_a_team():
    assert simulate(team_numbers, 2) == [[0, 3], [0, 3]]


def time_of_a_put(count: int) -> float:
    data, flag = triton_dist.symm_empty(2 * count, torch.float32), triton_dist.symm_zeros(1, torch.int64)
    out = torch.empty(count)
    begin, end = triton_dist.Event(), triton_dist.Event()
    meet()
    begin.record()
    signal_kernel[(1,)](data, flag, out, WAIT=True, COUNT=count)
    end.record()
    triton_dist.synchronize()
    return begin.elapsed_time(end)


def test_puts_take_time():
    short, long = (max(simulate(time_of_a_put, 2, args=(count,), execute="timing")) for count in (64, 1 << 16))
    assert 0 < short < long
