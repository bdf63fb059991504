"""``libshmem_device`` on real GPUs: each part prints one line. Run it by torchrun, one process a rank; names of parts choose those.

The parts are the bodies of ``tests/language/extra/test_libshmem_device.py``, beside a graph that is replayed, a stress test and the
rates of block copies. Every wait is bounded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import triton.language as tl

import triton_dist

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.language.extra import test_libshmem_device as bodies
from tests.worlds.world import meet
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, ld, st, tid

SECONDS = 20.0
"""Bound of a wait in a kernel."""

STRESS_TYPES = {"data": "*i32", "arrived": "*i64", "epoch": "*i64", "wrong": "*i32"}


@triton_dist.jit
def stress_kernel(data, arrived, epoch, wrong, ROUNDS: tl.constexpr, WORDS: tl.constexpr):
    """Each round puts a block that holds the round's number to the next rank, with a signal; the receiver looks at every word."""
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    first = ld(epoch, "gpu")
    for number in range(ROUNDS):
        value = (first + number + 1).to(tl.int32)
        for start in range(0, WORDS, 1024):
            place = start + tl.arange(0, 1024)
            tl.store(data + place, value, mask=place < WORDS)
        shmem.putmem_signal_nbi_block(data + WORDS, data, WORDS * 4, arrived, 1, shmem.NVSHMEM_SIGNAL_ADD, peer)
        if tid(0) == 0:
            shmem.signal_wait_until(arrived, shmem.NVSHMEM_CMP_GE, first + number + 1)
        __syncthreads()
        index = tid(0)
        while index < WORDS:
            seen = ld(data + WORDS + index, "sys")
            if seen != value:
                atomic_add(wrong, 1)
            index += 128
        shmem.barrier_all_block()
    if tid(0) == 0:
        st(epoch, first + ROUNDS, "gpu")


@triton_dist.jit
def throughput_kernel(dest, source, nbytes, GET: tl.constexpr):
    """Each program moves its own piece of ``nbytes`` to or from the next rank."""
    peer = (shmem.my_pe() + 1) % shmem.n_pes()
    piece = tl.program_id(0) * (nbytes // 4)
    if GET:
        shmem.getmem_block(dest + piece, source + piece, nbytes, peer)
    else:
        shmem.putmem_block(dest + piece, source + piece, nbytes, peer)


def stress_tensors(words: int) -> tuple[torch.Tensor, ...]:
    """What ``stress_kernel`` takes; the word ``epoch`` is this rank's own."""
    data, arrived = triton_dist.symm_zeros(2 * words, torch.int32), triton_dist.symm_zeros(1, torch.int64)
    return data, arrived, torch.zeros(1, dtype=torch.int64, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")


def stress() -> bool:
    """20,000 messages of three sizes, one of them no multiple of 16 bytes."""
    wrong = 0
    for words in (256, 1023, 16384):
        tensors = stress_tensors(words)
        meet()
        for _ in range(10):
            stress_kernel[(1,)](*tensors, ROUNDS=700, WORDS=words)
        meet()
        wrong += tensors[3].item()
    return wrong == 0


def replayed_graph() -> bool:
    """A kernel with signals and barriers, captured once and replayed: nothing of it comes from the host."""
    tensors = stress_tensors(1024)
    stress_kernel[(1,)](*tensors, ROUNDS=3, WORDS=1024)
    meet()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=side):
        stress_kernel[(1,)](*tensors, ROUNDS=3, WORDS=1024)
    meet()
    for _ in range(200):
        graph.replay()
    meet()
    return tensors[3].item() == 0 and tensors[2].item() == 3 * 201


def rates() -> bool:
    """GB/s a rank of block puts and gets of 256 MiB by 128 programs, and of one program alone with 16 MiB; printed by rank 0."""
    if torch.cuda.device_count() < triton_dist.world_size():
        return True
    size = 256 << 20
    source, dest = triton_dist.symm_zeros(size // 4, torch.int32), triton_dist.symm_zeros(size // 4, torch.int32)
    said = []
    for programs, nbytes in ((128, size), (1, 16 << 20)):
        for get in (False, True):
            times = []
            for _ in range(8):
                meet()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                throughput_kernel[(programs,)](dest, source, nbytes // programs, GET=get, num_warps=16)
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end))
            said.append(f"{'get' if get else 'put'} by {programs}: {nbytes / min(times[2:]) / 1e6:.0f}")
    if triton_dist.rank() == 0:
        print(f"  GB/s a rank: {', '.join(said)}", flush=True)
    return True


def copies() -> bool:
    return not any(bodies.copies(kind, nbi, level) for kind in ("put", "get") for nbi in (False, True) for level in bodies.LEVELS)


def each_thread() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    return all(
        bodies.each_thread(get) == [1000 * ((rank + (1 if get else -1) * index) % size) + index for index in range(100)]
        for get in (False, True)
    )


def signals() -> bool:
    return all(
        bodies.put_signal(nbi, level, operation, dtype) == [True, [7, 0] if operation == 9 else [9, 2]]
        for nbi in (False, True)
        for level in bodies.LEVELS
        for operation in (9, 10)
        for dtype in (torch.int32, torch.int64)
    )


def ping_pong() -> bool:
    if triton_dist.world_size() < 2:
        return True
    found, rank = bodies.ping_pong(), triton_dist.rank()
    return rank > 1 or found == [20, 20 * rank]


def conditions() -> bool:
    found = bodies.conditions()
    return found[:3] + found[5:] == [10] * 4 and set(found[3:5]) <= {0, 10}


def scalars() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    right = True
    for dtype in bodies.DTYPES:
        target, out = bodies.scalars(dtype)
        before, after = (torch.arange(51) + 50 * ((rank + step) % size) for step in (-1, 1))
        before[50], after[50] = 7, after[3].clone()
        right &= torch.equal(target, before.to(dtype)) and torch.equal(out, after.to(dtype))
    return right and bodies.ring() == (rank - 1) % size


def barriers() -> bool:
    everyone = [list(range(triton_dist.world_size()))]
    return not any(bodies.barriers(level, True, completes, everyone) for level in bodies.LEVELS for completes in (True, False))


def team_barriers() -> bool:
    size = triton_dist.world_size()
    splits = [[list(range(0, size, 2)), list(range(1, size, 2))], [[size - 1, *range(size - 2)]]]
    splits = [[team for team in teams if team] for teams in splits]
    return not any(
        bodies.barriers(level, False, completes, teams) for teams in splits for level in bodies.LEVELS for completes in (True, False)
    )


def teams_in_turn() -> bool:
    """A number that one team leaves is the next one's."""
    size = triton_dist.world_size()
    if size < 2:
        return True
    if size == 2:
        return bodies.teams_in_turn([list(range(size - 1, -1, -1))] * 2)[1::2] == [0, 0]
    return not any(bodies.teams_in_turn([[0, 1], [1, 2], [size - 1, 2, 0]])[1::2])


def teams() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    ranks = list(range(size))[::-1]
    found = bodies.asks_about_teams(ranks)
    return (
        found[:8] == [ranks.index(rank), size, rank, size, size, size, -1, -1]
        and found[8 : 8 + size] == ranks
        and found[16 : 16 + size] == [ranks.index(other) for other in range(size)]
    )


def collectives() -> bool:
    size = triton_dist.world_size()
    everyone, some = list(range(size)), list(range(size - 1, -1, -2))
    kinds = ("broadcast", "fcollect")
    wrong = [bodies.collectives(kind, level, typed, everyone) for kind in kinds for level in bodies.LEVELS for typed in (False, True)]
    return not any(wrong) and not any(bodies.collectives(kind, "block", False, some) for kind in kinds)


def pointers() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    found = bodies.pointers()
    neighbour = [100 * ((rank + 1) % size) + index for index in range(16)]
    return found[:20] == [*neighbour, 1, 1, 1, 1] and found[20 : 20 + size] == [100 * peer for peer in range(size)]


PARTS: list[Callable[[], bool]] = [
    pointers, teams, scalars, each_thread, copies, ping_pong, conditions, signals, barriers, team_barriers, teams_in_turn, collectives,
    replayed_graph, stress, rates,
]  # fmt: skip


def main() -> None:
    triton_dist.initialize(heap_size=1 << 30, wait_timeout=SECONDS)
    chosen = sys.argv[1:]
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        try:
            outcome = "right" if part() else "wrong"
        except triton_dist.errors.TritonDistError as error:
            # The world has failed: no rank can go on.
            print(f"{part.__name__}: wrong on rank {triton_dist.rank()}: {error}", flush=True)
            raise
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, outcome)
        if triton_dist.rank() == 0:
            wrong = [rank for rank, there in enumerate(everyone) if there != "right"]
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
    triton_dist.finalize()


if __name__ == "__main__":
    main()
