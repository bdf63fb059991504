"""Every function of ``libshmem_device`` against torch, over world sizes, dtypes, odd sizes and misaligned addresses.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import importlib

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.worlds.world import meet
from triton_dist import utils
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.cuda import libshmem_device as shmem_of_cuda
from triton_dist.language.extra.cuda.language_extra import __syncthreads, threads_per_warp, tid
from triton_dist.language.extra.hip import libshmem_device as shmem_of_hip
from triton_dist.sim.simulate import simulate

WORLD_SIZES = [1, 2, 3, 4]
LEVELS = ["thread", "warp", "block"]
ROOM = 80_000
SIZES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 100, 1000, 4096, 70_001)
SKIPS = ((0, 0), (1, 1), (9, 25), (0, 4), (8, 0), (6, 2), (1, 2), (0, 1), (3, 0))
"""Bytes from an aligned address to the destination and to the source."""

DTYPES = [torch.int8, torch.uint8, torch.int16, torch.float16, torch.bfloat16, torch.int32, torch.float32, torch.int64, torch.float64]


def pattern(rank: int, count: int, seed: int = 0) -> torch.Tensor:
    """Bytes that differ from rank to rank."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(triton_dist.device())


# ---------------------------------------------------------------------- copies


@triton_dist.jit(do_not_specialize=["to", "start", "nbytes"])
def copy_kernel(dest, source, to, start, nbytes, KIND: tl.constexpr, NBI: tl.constexpr, LEVEL: tl.constexpr):
    """A put to the next rank, or a get from it, by one thread, one warp or the block."""
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    dest += to
    source += start
    if LEVEL == "block":
        if KIND == "put" and NBI:
            shmem.putmem_nbi_block(dest, source, nbytes, peer)
        elif KIND == "put":
            shmem.putmem_block(dest, source, nbytes, peer)
        elif NBI:
            shmem.getmem_nbi_block(dest, source, nbytes, peer)
        else:
            shmem.getmem_block(dest, source, nbytes, peer)
    elif LEVEL == "warp":
        if tid(0) // threads_per_warp() == 1:
            if KIND == "put" and NBI:
                shmem.putmem_nbi_warp(dest, source, nbytes, peer)
            elif KIND == "put":
                shmem.putmem_warp(dest, source, nbytes, peer)
            elif NBI:
                shmem.getmem_nbi_warp(dest, source, nbytes, peer)
            else:
                shmem.getmem_warp(dest, source, nbytes, peer)
    else:
        if tid(0) == 37:
            if KIND == "put" and NBI:
                shmem.putmem_nbi(dest, source, nbytes, peer)
            elif KIND == "put":
                shmem.putmem(dest, source, nbytes, peer)
            elif NBI:
                shmem.getmem_nbi(dest, source, nbytes, peer)
            else:
                shmem.getmem(dest, source, nbytes, peer)
    shmem.quiet()


def copies(kind: str, nbi: bool, level: str) -> list[tuple]:
    """The sizes and places for which something else arrived than should have."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    source, dest = triton_dist.symm_zeros(ROOM, torch.uint8), triton_dist.symm_zeros(ROOM, torch.uint8)
    other = (rank - 1) % size if kind == "put" else (rank + 1) % size
    wrong = []
    for number, nbytes in enumerate(SIZES if level != "thread" else SIZES[:-1]):
        for to, start in SKIPS:
            source.copy_(on_device(pattern(rank, ROOM, number)))
            dest.fill_(99)
            meet()
            copy_kernel[(1,)](dest, source, to, start, nbytes, KIND=kind, NBI=nbi, LEVEL=level)
            meet()
            expected = torch.full((ROOM,), 99, dtype=torch.uint8)
            expected[to : to + nbytes] = pattern(other, ROOM, number)[start : start + nbytes]
            if not torch.equal(dest.cpu(), expected):
                wrong.append((nbytes, to, start))
    return wrong


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("nbi", [False, True])
@pytest.mark.parametrize("kind", ["put", "get"])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_puts_and_gets_of_any_size_and_place(world, world_size, kind, nbi, level):
    assert world(copies, world_size, args=(kind, nbi, level), seed=world_size) == [[]] * world_size


@triton_dist.jit
def each_thread_kernel(dest, source, COUNT: tl.constexpr, GET: tl.constexpr):
    """Each thread moves its own element, to or from a rank of its own."""
    index = tid(0)
    if index < COUNT:
        peer = (shmem.my_pe() + index) % shmem.n_pes()
        if GET:
            shmem.getmem(dest + index, source + index, 4, peer)
        else:
            shmem.putmem_nbi(dest + index, source + index, 4, peer)
    shmem.quiet()


def each_thread(get: bool) -> list[int]:
    source, dest = triton_dist.symm_zeros(100, torch.int32), triton_dist.symm_zeros(100, torch.int32)
    source.copy_(on_device(1000 * triton_dist.rank() + torch.arange(100)))
    meet()
    each_thread_kernel[(1,)](dest, source, COUNT=100, GET=get)
    meet()
    return dest.tolist()


@pytest.mark.parametrize("get", [False, True])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_each_thread_has_its_own_peer(world, world_size, get):
    sign = 1 if get else -1
    for rank, found in enumerate(world(each_thread, world_size, args=(get,))):
        assert found == [1000 * ((rank + sign * index) % world_size) + index for index in range(100)]


# ---------------------------------------------------------------------- signals


@triton_dist.jit
def put_signal_kernel(dest, source, words, out, nbytes, NBI: tl.constexpr, LEVEL: tl.constexpr, OPERATION: tl.constexpr):
    """Data and signal to the next rank; what the signal announces is copied to ``out`` without any other order."""
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    if LEVEL == "block":
        if NBI:
            shmem.putmem_signal_nbi_block(dest, source, nbytes, words, 7, OPERATION, peer)
        else:
            shmem.putmem_signal_block(dest, source, nbytes, words, 7, OPERATION, peer)
    elif LEVEL == "warp":
        if tid(0) // threads_per_warp() == 2:
            if NBI:
                shmem.putmem_signal_nbi_warp(dest, source, nbytes, words, 7, OPERATION, peer)
            else:
                shmem.putmem_signal_warp(dest, source, nbytes, words, 7, OPERATION, peer)
    else:
        if tid(0) == 0:
            if NBI:
                shmem.putmem_signal_nbi(dest, source, nbytes, words, 7, OPERATION, peer)
            else:
                shmem.putmem_signal(dest, source, nbytes, words, 7, OPERATION, peer)
    if tid(0) == 0:
        shmem.signal_wait_until(words, shmem.NVSHMEM_CMP_GE, 7)
    __syncthreads()
    for start in range(0, nbytes, 256):
        place = start + tl.arange(0, 256)
        tl.store(out + place, tl.load(dest + place, mask=place < nbytes), mask=place < nbytes)


def put_signal(nbi: bool, level: str, operation: int, dtype: torch.dtype) -> list:
    rank, size, nbytes = triton_dist.rank(), triton_dist.world_size(), 1000
    source, dest = triton_dist.symm_zeros(nbytes, torch.uint8), triton_dist.symm_zeros(nbytes, torch.uint8)
    words = triton_dist.symm_full((2,), 2 if operation == 10 else 0, dtype)
    source.copy_(on_device(pattern(rank, nbytes)))
    out = torch.zeros(nbytes, dtype=torch.uint8, device=triton_dist.device())
    meet()
    put_signal_kernel[(1,)](dest, source, words, out, nbytes, NBI=nbi, LEVEL=level, OPERATION=operation)
    meet()
    return [torch.equal(out.cpu(), pattern((rank - 1) % size, nbytes)), words.tolist()]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("nbi", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("operation", [9, 10])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_signal_follows_its_data(world, world_size, operation, dtype, nbi, level):
    """The word is set or added to exactly once, however many threads make the call."""
    word = [7, 0] if operation == 9 else [9, 2]
    assert world(put_signal, world_size, args=(nbi, level, operation, dtype), seed=operation) == [[True, word]] * world_size


@triton_dist.jit
def ping_pong_kernel(word, seen, ROUNDS: tl.constexpr):
    """Ranks 0 and 1 in turn; the value of each round is waited for by another comparison."""
    me = shmem.my_pe()
    if tid(0) == 0:
        for number in range(1, ROUNDS + 1):
            if me == 0:
                shmem.signal_op(word, number, shmem.NVSHMEM_SIGNAL_SET, 1)
                shmem.signal_wait_until(word, shmem.NVSHMEM_CMP_EQ, number)
            else:
                if me == 1:
                    dl.st(seen, shmem.signal_wait_until(word, shmem.NVSHMEM_CMP_GT, number - 1))
                    shmem.signal_op(word, 1, shmem.NVSHMEM_SIGNAL_ADD, 0)


def ping_pong() -> list[int]:
    word = triton_dist.symm_zeros(1, torch.int64)
    seen = torch.zeros(1, dtype=torch.int64, device=triton_dist.device())
    meet()
    ping_pong_kernel[(1,)](word, seen, ROUNDS=20)
    meet()
    return [word.item(), seen.item()]


@pytest.mark.parametrize("world_size", [2, 3])
def test_signals_go_to_and_fro(world, world_size):
    assert world(ping_pong, world_size)[:2] == [[20, 0], [20, 20]]


@triton_dist.jit
def conditions_kernel(words, out):
    """Each thread waits for another condition on a word of its own; all hold or come to hold by what thread 40 does."""
    index = tid(0)
    if index == 40:
        for place in range(6):
            shmem.signal_op(words + place, 10, shmem.NVSHMEM_SIGNAL_ADD, shmem.my_pe())
    if index == 0:
        dl.st(out, shmem.signal_wait_until(words, shmem.NVSHMEM_CMP_EQ, 10))
        dl.st(out + 1, shmem.signal_wait_until(words + 1, shmem.NVSHMEM_CMP_NE, 0))
        dl.st(out + 2, shmem.signal_wait_until(words + 2, shmem.NVSHMEM_CMP_GT, 9))
        dl.st(out + 3, shmem.signal_wait_until(words + 3, shmem.NVSHMEM_CMP_LE, 10))
        dl.st(out + 4, shmem.signal_wait_until(words + 4, shmem.NVSHMEM_CMP_LT, 11))
        dl.st(out + 5, shmem.signal_wait_until(words + 5, shmem.NVSHMEM_CMP_GE, 10))
        shmem.uint64_wait_until_equals(words, 10)


def conditions() -> list[int]:
    words, out = triton_dist.symm_zeros(6, torch.int64), torch.zeros(6, dtype=torch.int64, device=triton_dist.device())
    meet()
    conditions_kernel[(1,)](words, out)
    meet()
    return out.tolist()


@pytest.mark.parametrize("world_size", [2])
def test_every_condition_of_signal_wait_until(world, world_size):
    for found in world(conditions, world_size):
        assert found[:3] == [10, 10, 10] and found[5] == 10
        assert set(found[3:5]) <= {0, 10}


@triton_dist.jit
def ulong_kernel(dest, source, words, out):
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    if tid(0) == 0:
        shmem.ulong_put_signal(dest, source, 5, words, 1, shmem.NVSHMEM_SIGNAL_SET, peer)
        shmem.signal_wait_until(words, shmem.NVSHMEM_CMP_EQ, 1)
    __syncthreads()
    place = tl.arange(0, 8)
    tl.store(out + place, tl.load(dest + place))


def ulong_put_signal() -> list[int]:
    source, dest = triton_dist.symm_zeros(8, torch.int64), triton_dist.symm_zeros(8, torch.int64)
    source.copy_(on_device(100 * triton_dist.rank() + torch.arange(1, 9)))
    words, out = triton_dist.symm_zeros(1, torch.int64), torch.zeros(8, dtype=torch.int64, device=triton_dist.device())
    meet()
    ulong_kernel[(1,)](dest, source, words, out)
    meet()
    return out.tolist()


@pytest.mark.parametrize("world_size", [2])
def test_ulong_put_signal_counts_elements(world, world_size):
    for rank, found in enumerate(world(ulong_put_signal, world_size)):
        assert found == [100 * (1 - rank) + index for index in range(1, 6)] + [0, 0, 0]


# ---------------------------------------------------------------------- single elements


@triton_dist.jit
def scalars_kernel(target, source, out, COUNT: tl.constexpr):
    """``p`` by each thread to the next rank and ``g`` by each thread from it; then both by one thread with uniform operands."""
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    index = tid(0)
    if index < COUNT:
        shmem.p(target + index, dl.ld(source + index), peer)
        dl.st(out + index, shmem.g(source + index, peer))
    if index == 0:
        shmem.p(target + COUNT, 7, peer)
        dl.st(out + COUNT, shmem.g(source + 3, peer))
    shmem.quiet()


def scalars(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    source, target = triton_dist.symm_zeros(51, dtype), triton_dist.symm_zeros(51, dtype)
    source.copy_(on_device((torch.arange(51) + 50 * triton_dist.rank()).to(dtype)))
    out = torch.zeros(51, dtype=dtype, device=triton_dist.device())
    meet()
    scalars_kernel[(1,)](target, source, out, COUNT=50)
    meet()
    return target.cpu(), out.cpu()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_p_and_g(world, world_size, dtype):
    for rank, (target, out) in enumerate(world(scalars, world_size, args=(dtype,))):
        before, after = (torch.arange(51) + 50 * ((rank + step) % world_size) for step in (-1, 1))
        before[50], after[50] = 7, after[3].clone()
        assert torch.equal(target, before.to(dtype)) and torch.equal(out, after.to(dtype))


@triton.jit
def ring_kernel(slots):
    """Plain ``triton.jit``: each rank tells the next one its number, by the name that has the C type."""
    me = shmem.my_pe()
    if tid(0) == 0:
        shmem.int_p(slots, me, (me + 1) % shmem.n_pes())


def ring() -> int:
    slots = triton_dist.symm_full((1,), -1, torch.int32)
    meet()
    ring_kernel[(1,)](slots)
    meet()
    return slots.item()


@pytest.mark.parametrize("world_size", [*WORLD_SIZES, 8])
def test_a_ring_of_int_p(world, world_size):
    assert world(ring, world_size) == [(rank - 1) % world_size for rank in range(world_size)]


# ---------------------------------------------------------------------- barriers and teams


@triton_dist.jit
def _meet_on_device(team, LEVEL: tl.constexpr, ALL: tl.constexpr, COMPLETES: tl.constexpr):
    if LEVEL == "block":
        if ALL and COMPLETES:
            shmem.barrier_all_block()
        elif ALL:
            shmem.sync_all_block()
        elif COMPLETES:
            shmem.barrier_block(team)
        else:
            shmem.team_sync_block(team)
    elif LEVEL == "warp":
        if tid(0) // threads_per_warp() == 1:
            if ALL and COMPLETES:
                shmem.barrier_all_warp()
            elif ALL:
                shmem.sync_all_warp()
            elif COMPLETES:
                shmem.barrier_warp(team)
            else:
                shmem.team_sync_warp(team)
    else:
        if tid(0) == 3:
            if ALL and COMPLETES:
                shmem.barrier_all()
            elif ALL:
                shmem.sync_all()
            elif COMPLETES:
                shmem.barrier(team)
            else:
                shmem.team_sync(team)
    __syncthreads()


@triton_dist.jit(do_not_specialize=["team"])
def barrier_kernel(slots, wrong, team, members, ROUNDS: tl.constexpr, LEVEL: tl.constexpr, ALL: tl.constexpr, COMPLETES: tl.constexpr):
    """In each round every rank writes to every other one, all meet, all read, and all meet again before the next one writes."""
    size = shmem.team_n_pes(team)
    mine = shmem.team_my_pe(team)
    index = tid(0)
    for number in range(1, ROUNDS + 1):
        if index < size:
            shmem.p(slots + mine, number * 100 + mine, dl.ld(members + index))
        if not COMPLETES:
            shmem.quiet()
        __syncthreads()
        _meet_on_device(team, LEVEL, ALL, COMPLETES)
        if index < size:
            seen = dl.ld(slots + index, "sys")
            if seen != number * 100 + index:
                dl.atomic_add(wrong, 1)
        __syncthreads()
        _meet_on_device(team, LEVEL, ALL, COMPLETES)


def barriers(level: str, of_all: bool, completes: bool, teams: list[list[int]]) -> int:
    """Wrong values seen in two launches, so that epochs carry on from one kernel to the next."""
    rank = triton_dist.rank()
    ranks = next((ranks for ranks in teams if rank in ranks), None)
    wrong = torch.zeros(1, dtype=torch.int32, device=triton_dist.device())
    slots = triton_dist.symm_zeros(8, torch.int32)
    if ranks is not None:
        number = triton_dist.team_number(triton_dist.make_team(ranks))
        members = torch.tensor(ranks, dtype=torch.int32, device=triton_dist.device())
    meet()
    if ranks is not None:
        for rounds in (5, 3):
            barrier_kernel[(1,)](slots, wrong, number, members, ROUNDS=rounds, LEVEL=level, ALL=of_all, COMPLETES=completes)
    meet()
    return wrong.item()


@pytest.mark.parametrize("completes", [True, False])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_barriers_of_all_ranks(world, world_size, level, completes):
    everyone = [list(range(world_size))]
    assert world(barriers, world_size, args=(level, True, completes, everyone), seed=world_size) == [0] * world_size


@pytest.mark.parametrize("completes", [True, False])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("teams", [[[0, 2], [3, 1]], [[3, 0, 1]], [[0], [1, 2, 3]]], ids=["pairs", "uneven", "three"])
@pytest.mark.parametrize("world_size", [4])
def test_barriers_of_teams(world, world_size, teams, level, completes):
    assert world(barriers, world_size, args=(level, False, completes, teams), seed=len(teams)) == [0] * 4


def teams_in_turn(teams: list[list[int]]) -> list[int]:
    """Teams that are made, meet and are freed, one after the other: the numbers that they had here, and the wrong values seen."""
    numbers = []
    for place, ranks in enumerate(teams):
        if triton_dist.rank() not in ranks:
            continue
        team = triton_dist.make_team(ranks)
        numbers.append(triton_dist.team_number(team))
        members = torch.tensor(ranks, dtype=torch.int32, device=triton_dist.device())
        wrong = torch.zeros(1, dtype=torch.int32, device=triton_dist.device())
        slots = triton_dist.symm_zeros(8, torch.int32, group=team)
        barrier_kernel[(1,)](slots, wrong, numbers[-1], members, ROUNDS=place + 1, LEVEL="block", ALL=False, COMPLETES=True)
        numbers.append(wrong.item())
        del slots
        triton_dist.free_team(team)
    meet()
    return numbers


@pytest.mark.parametrize("world_size", [4])
def test_a_number_is_used_again_by_a_team_of_other_ranks(world, world_size):
    """Its ranks have met a different number of times under that number before."""
    seen = world(teams_in_turn, world_size, args=([[0, 1], [1, 2], [3, 2, 0]],))
    number = seen[0][0]  # 3 in a world that had no other teams
    assert number >= 3 and seen == [[number, 0, number, 0]] * 3 + [[number, 0]]


@triton_dist.jit(do_not_specialize=["team"])
def team_kernel(out, team):
    """What a rank learns of its teams: of the one given, of all ranks, of the node, and of one that there is not."""
    if tid(0) == 0:
        dl.st(out, shmem.team_my_pe(team))
        dl.st(out + 1, shmem.team_n_pes(team))
        dl.st(out + 2, shmem.team_my_pe(shmem.NVSHMEM_TEAM_WORLD))
        dl.st(out + 3, shmem.team_n_pes(shmem.NVSHMEM_TEAM_WORLD))
        dl.st(out + 4, shmem.team_n_pes(shmem.NVSHMEMX_TEAM_NODE))
        dl.st(out + 5, shmem.team_n_pes(shmem.NVSHMEM_TEAM_SHARED))
        dl.st(out + 6, shmem.team_my_pe(60))
        dl.st(out + 7, shmem.team_n_pes(60))
    size = shmem.n_pes()
    if tid(0) < size:
        dl.st(out + 8 + tid(0), shmem.team_translate_pe(team, tid(0), shmem.NVSHMEM_TEAM_WORLD))
        dl.st(out + 16 + tid(0), shmem.team_translate_pe(shmem.NVSHMEM_TEAM_WORLD, tid(0), team))


def asks_about_teams(ranks: list[int]) -> list[int]:
    out = torch.full((24,), -9, dtype=torch.int32, device=triton_dist.device())
    if triton_dist.rank() in ranks:
        team_kernel[(1,)](out, triton_dist.team_number(triton_dist.make_team(ranks)))
    meet()
    return out.tolist()


@pytest.mark.parametrize("ranks", [[0, 2], [3, 1, 0], [2]])
@pytest.mark.parametrize("world_size", [4])
def test_teams_on_the_device(world, world_size, ranks):
    found = world(asks_about_teams, world_size, args=(ranks,))
    size = len(ranks)
    for place, rank in enumerate(ranks):
        assert found[rank][:8] == [place, size, rank, 4, 4, 4, -1, -1]
        assert found[rank][8:12] == ranks + [-1] * (4 - size)
        assert found[rank][16:20] == [ranks.index(other) if other in ranks else -1 for other in range(4)]


# ---------------------------------------------------------------------- collectives


@triton_dist.jit(do_not_specialize=["team", "count", "root"])
def collective_kernel(dest, source, team, count, root, KIND: tl.constexpr, LEVEL: tl.constexpr, TYPED: tl.constexpr):
    if LEVEL == "block":
        if KIND == "broadcast" and TYPED:
            shmem.broadcast_block(team, dest, source, count, root)
        elif KIND == "broadcast":
            shmem.broadcastmem_block(team, dest, source, count, root)
        elif TYPED:
            shmem.fcollect_block(team, dest, source, count)
        else:
            shmem.fcollectmem_block(team, dest, source, count)
    elif LEVEL == "warp":
        if tid(0) // threads_per_warp() == 3:
            if KIND == "broadcast" and TYPED:
                shmem.broadcast_warp(team, dest, source, count, root)
            elif KIND == "broadcast":
                shmem.broadcastmem_warp(team, dest, source, count, root)
            elif TYPED:
                shmem.fcollect_warp(team, dest, source, count)
            else:
                shmem.fcollectmem_warp(team, dest, source, count)
    else:
        if tid(0) == 100:
            if KIND == "broadcast" and TYPED:
                shmem.broadcast(team, dest, source, count, root)
            elif KIND == "broadcast":
                shmem.broadcastmem(team, dest, source, count, root)
            elif TYPED:
                shmem.fcollect(team, dest, source, count)
            else:
                shmem.fcollectmem(team, dest, source, count)


def collectives(kind: str, level: str, typed: bool, ranks: list[int]) -> list[tuple]:
    """The counts and roots with a wrong result; three calls of each size, so that they follow each other without a meeting between."""
    rank, size = triton_dist.rank(), len(ranks)
    dtype = torch.float32 if typed else torch.uint8
    source = triton_dist.symm_zeros(600, dtype)
    dests = [triton_dist.symm_zeros(600 * size, dtype) for _ in range(3)]
    shards = {member: pattern(member, 600).to(dtype) for member in ranks}
    wrong: list[tuple] = []
    number = triton_dist.team_number(triton_dist.make_team(ranks)) if rank in ranks else -1
    if rank in ranks:
        source.copy_(on_device(shards[rank]))
    for count in (1, 5, 129, 600):
        for dest in dests:
            dest.fill_(3)
        meet()
        for call, dest in enumerate(dests if rank in ranks else ()):
            collective_kernel[(1,)](dest, source, number, count, call % size, KIND=kind, LEVEL=level, TYPED=typed)
        triton_dist.synchronize()
        for call, dest in enumerate(dests if rank in ranks else ()):
            expected = torch.full((600 * size,), 3, dtype=dtype)
            arrived = [shards[ranks[call % size]]] if kind == "broadcast" else [shards[member] for member in ranks]
            expected[: count * len(arrived)] = torch.cat([shard[:count] for shard in arrived])
            if not torch.equal(dest.cpu(), expected):
                wrong.append((count, call))
    meet()
    return wrong


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["broadcast", "fcollect"])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_collectives_of_all_ranks(world, world_size, kind, level, typed):
    everyone = list(range(world_size))
    assert world(collectives, world_size, args=(kind, level, typed, everyone), seed=world_size) == [[]] * world_size


@pytest.mark.parametrize("kind", ["broadcast", "fcollect"])
@pytest.mark.parametrize("ranks", [[1, 3], [2, 0, 1]])
@pytest.mark.parametrize("world_size", [4])
def test_collectives_of_teams(world, world_size, ranks, kind):
    assert world(collectives, world_size, args=(kind, "block", False, ranks)) == [[]] * 4


# ---------------------------------------------------------------------- addresses


@triton_dist.jit
def pointers_kernel(symmetric, out, MULTICAST: tl.constexpr):
    """Through ``remote_ptr`` each rank reads what the next one has; NULL for what is no rank, and for multicast where there is none."""
    size = shmem.n_pes()
    peer = (shmem.my_pe() + 1) % size
    tl.store(out + tl.arange(0, 16), tl.load(shmem.remote_ptr(symmetric, peer) + tl.arange(0, 16)))
    if tid(0) == 0:
        dl.st(out + 16, (shmem.remote_ptr(symmetric, size + 100).to(tl.int64) == 0).to(tl.int32))
        dl.st(out + 17, (shmem.remote_ptr(symmetric, -1).to(tl.int64) == 0).to(tl.int32))
        multicast = shmem.remote_mc_ptr(shmem.NVSHMEMX_TEAM_NODE, symmetric).to(tl.int64)
        dl.st(out + 18, ((multicast != 0) == MULTICAST).to(tl.int32))
        dl.st(out + 19, (shmem.remote_ptr(symmetric, shmem.my_pe()).to(tl.int64) == symmetric.to(tl.int64)).to(tl.int32))
    if tid(0) < size:
        dl.st(out + 20 + tid(0), dl.ld(shmem.remote_ptr(symmetric, tid(0))))


def pointers() -> list[int]:
    symmetric = triton_dist.symm_zeros(16, torch.int32)
    symmetric.copy_(on_device(100 * triton_dist.rank() + torch.arange(16)))
    out = torch.zeros(32, dtype=torch.int32, device=triton_dist.device())
    meet()
    pointers_kernel[(1,)](symmetric, out, MULTICAST=utils.is_nvshmem_multimem_supported())
    meet()
    return out.tolist()


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_remote_pointers(world, world_size):
    for rank, found in enumerate(world(pointers, world_size)):
        assert found[:16] == [100 * ((rank + 1) % world_size) + index for index in range(16)]
        assert found[16:20] == [1, 1, 1, 1]
        assert found[20 : 20 + world_size] == [100 * peer for peer in range(world_size)]


@pytest.mark.parametrize(
    "path",
    ["cuda.libshmem_device", "cuda.libnvshmem_device", "hip.libshmem_device", "hip.librocshmem_device"],
)
def test_the_names_are_found_under_each_vendor(path):
    vendor, name = path.split(".")
    module = importlib.import_module(f"triton_dist.language.extra.{path}")
    assert getattr(importlib.import_module(f"triton_dist.language.extra.{vendor}"), name) is module
    assert module.__all__ == shmem.__all__ and all(getattr(module, each) is getattr(shmem, each) for each in shmem.__all__)


@triton_dist.jit
def put_by_the_vendors_path_kernel(target, source, COUNT: tl.constexpr):
    shmem_of_cuda.putmem_block(target, source, COUNT * 4, (shmem_of_hip.my_pe() + 1) % shmem_of_cuda.n_pes())


def test_kernels_call_them_by_each_vendors_path():
    def fn():
        target, source = triton_dist.symm_zeros((4,), torch.int32), triton_dist.symm_empty((4,), torch.int32)
        source.fill_(triton_dist.rank())
        put_by_the_vendors_path_kernel[(1,)](target, source, COUNT=4)
        utils.nvshmem_barrier_all_on_stream()
        return target.tolist()

    assert simulate(fn, 3) == [[2] * 4, [0] * 4, [1] * 4]
