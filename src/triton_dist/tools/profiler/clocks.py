"""How the GPUs' clocks differ, measured by messages that go to and fro.

A GPU's clock counts nanoseconds from a start of its own and runs a little faster or slower than another one's. Rank 0 writes down when a
message left (t0) and when the answer came (t3), the peer when the message came (t1) and when its answer left (t2). Had both taken the same
time under way, the peer's clock less rank 0's would be ((t1 - t0) + (t2 - t3)) / 2; whatever the two times were, it is no further from that
than half of what both took, ((t3 - t0) - (t2 - t1)) / 2. The exchange with the smallest such half is used (as in D. Mills, "Internet Time
Synchronization: the Network Time Protocol", IEEE Trans. Communications 39(10), 1991).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import torch
import triton.language as tl

import triton_dist.language as dl
from triton_dist.errors import InvalidArgumentError
from triton_dist.jit_function import jit
from triton_dist.language.extra.language_extra import globaltimer
from triton_dist.runtime import streams, symmetric
from triton_dist.runtime.preload import Launch, preload
from triton_dist.runtime.world import require_world

from .language import now

ROUNDS = 32
"""Exchanges with each peer."""

_TICKS = 16
_MOST_READS = 1 << 16


@dataclass(frozen=True)
class ClockReading:
    """A rank's clock at one time, in nanoseconds.

    at: what it showed. offset: it less rank 0's. bound: how far the offset may be off. resolution: the clock's smallest step.
    What a clock shows is an integer, since it may be the time since 1970, of which a float has no single nanoseconds.
    """

    at: int
    offset: int
    bound: float
    resolution: float


@dataclass(frozen=True)
class Clock:
    """A rank's clock between two readings; it is taken to run evenly. On one clock for all both are zero."""

    before: ClockReading
    after: ClockReading

    @property
    def bound(self) -> float:
        """Nanoseconds that ``aligned`` may be off: those of the reading that is worse, and a step of the clock."""
        return max(self.before.bound, self.after.bound) + max(self.before.resolution, self.after.resolution)

    def aligned(self, time: int) -> int:
        """What rank 0's clock showed when this one showed ``time``."""
        first, last = self.before, self.after
        drift = (last.offset - first.offset) / (last.at - first.at) if last.at > first.at else 0.0
        return time - first.offset - round((time - first.at) * drift)


SAME_CLOCK = Clock(ClockReading(0, 0, 0.0, 0.0), ClockReading(0, 0, 0.0, 0.0))
"""Of rank 0, and of ranks that share a clock."""


@jit
def exchange_kernel(words, times, ROUNDS: tl.constexpr):
    """One program a rank. words: (world_size,) int32, symmetric, 0 before. times: (world_size, ROUNDS, 2) int64, of this rank.

    Word 0 of a peer is set by rank 0, word p of rank 0 by peer p; each by the number of the round.
    """
    rank = dl.rank()
    if rank == 0:
        for peer in range(1, dl.num_ranks()):
            for number in range(ROUNDS):
                here = times + (peer * ROUNDS + number) * 2
                left = now()
                dl.notify(words, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
                dl.wait(words + peer, 1, "sys", "acquire", waitValue=number + 1)
                came = now()
                tl.store(here, left.to(tl.int64))
                tl.store(here + 1, came.to(tl.int64))
    else:
        for number in range(ROUNDS):
            here = times + (rank * ROUNDS + number) * 2
            dl.wait(words, 1, "sys", "acquire", waitValue=number + 1)
            came = now()
            dl.notify(words + rank, 0, signal=number + 1, sig_op="set", comm_scope="intra_node")
            tl.store(here, came.to(tl.int64))
            tl.store(here + 1, came.to(tl.int64))


@jit
def ticks_kernel(times, TICKS: tl.constexpr, MOST_READS: tl.constexpr):
    """One program. times: (TICKS,) int64: the clock each time it was seen to have gone on."""
    last = globaltimer()
    for number in range(TICKS):
        now = globaltimer()
        reads = 0
        while (now == last) & (reads < MOST_READS):
            now = globaltimer()
            reads += 1
        tl.store(times + number, now.to(tl.int64))
        last = now


def measure_resolution() -> float:
    """The smallest step of this rank's clock that was seen, nanoseconds; of the simulator's, what it takes to read it."""
    times = torch.zeros(_TICKS, dtype=torch.int64, device=streams.device())
    ticks_kernel[(1,)](times, TICKS=_TICKS, MOST_READS=_MOST_READS, num_warps=1)
    streams.synchronize()
    steps = times.diff()
    return float(steps[steps > 0].min()) if bool((steps > 0).any()) else 0.0


def measure_clock(rounds: int = ROUNDS) -> ClockReading:
    """This rank's clock beside rank 0's. Every rank calls it; it takes some 10 us a peer and round, and waits for the device.

    rounds: exchanges with each peer; more find one that was less disturbed. Raises InvalidArgumentError, NotInitializedError.
    """
    if not isinstance(rounds, int) or rounds < 1:
        raise InvalidArgumentError(f"measure_clock: rounds={rounds!r} must be a positive number")
    world = require_world("measure_clock")
    resolution = measure_resolution()
    words = symmetric.symm_zeros((world.world_size,), torch.int32)
    times = torch.zeros(world.world_size, rounds, 2, dtype=torch.int64, device=streams.device())
    exchange = Launch(exchange_kernel, (words, times), {"ROUNDS": rounds, "num_warps": 1})
    preload("measure_clock", rounds, lambda: [exchange])
    world.gather(None)  # a rank that still compiles would keep the others waiting in their kernels
    exchange.run()
    streams.synchronize()
    by_rank = world.gather(times.tolist())
    symmetric.symm_free(words)
    own = ClockReading(by_rank[0][-1][-1][-1], 0, 0.0, resolution)
    if world.rank != 0:
        own = best_reading(by_rank[0][world.rank], by_rank[world.rank][world.rank], resolution)
    return best_of_gpu(world.rank, world.gather((_gpu(world.device), own)))


def _gpu(device: torch.device) -> Hashable:
    """Which GPU it is, the same in every process; None for none."""
    if device.type != "cuda":
        return None
    from triton_dist.runtime.cuda.peers import gpu_of

    return gpu_of(device.index or 0)


def best_of_gpu(rank: int, said: Sequence[tuple[Hashable, ClockReading]]) -> ClockReading:
    """What a rank takes for its reading. said: by rank its GPU and its own reading.

    Ranks that share a GPU have one clock, and of their readings take the one that was disturbed least. Rank 0's is exact; an exchange with
    a rank that takes turns with it on its GPU would be off by as long as a turn is.
    """
    gpu, own = said[rank]
    readings = [own] if gpu is None else [own, *(reading for other, reading in said if other == gpu)]
    return replace(min(readings, key=lambda reading: reading.bound), resolution=own.resolution)


def best_reading(of_first: list[list[int]], of_peer: list[list[int]], resolution: float) -> ClockReading:
    """From the exchanges with one peer. of_first: [t0, t3] of each, by rank 0's clock; of_peer: [t1, t2], by the peer's."""
    found = []
    for (left, back), (came, answered) in zip(of_first, of_peer, strict=True):
        # Rounded down, the offset is up to half a nanosecond further off.
        found.append(((back - left - (answered - came) + 1) / 2, ((came - left) + (answered - back)) // 2, came))
    bound, offset, at = min(found)
    return ClockReading(at, offset, max(bound, 0.0), resolution)
