"""Kernels that record what they do."""

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.tools.profiler import Profiler

OUTER, INNER, WAIT, SEND = (tl.constexpr(number) for number in range(4))
NAMES = ["outer", "inner", "wait", "send"]


@triton_dist.jit
def rounds_kernel(profile, values, rounds, GROUP: tl.constexpr, LEADER: tl.constexpr):
    """An outer task with as many inner ones as there are rounds, whose type is a number of the round."""
    if LEADER:
        profiler = Profiler.create(profile, GROUP, is_leader=(dl.tid(0) == 0))
    else:
        profiler = Profiler.create(profile, group_id=GROUP, num_groups=2)
    offset = tl.program_id(0) * 64 + tl.arange(0, 64)
    profiler = profiler.record(True, OUTER)
    for number in range(rounds):
        profiler = profiler.record(is_start=True, task_type=number + 1)
        tl.store(values + offset, tl.load(values + offset) + 1)
        profiler = profiler.record(is_start=False, task_type=number + 1)
    profiler = profiler.record(False, OUTER)


@triton.jit
def odd_kernel(profile):
    """An end without a start, and a start without an end. Plain triton.jit."""
    profiler = Profiler.create(profile, 0)
    profiler = profiler.record(False, INNER)
    profiler = profiler.record(True, OUTER)


@triton_dist.jit
def no_leader_kernel(profile):
    profiler = Profiler.create(profile, 0, is_leader=False)
    profiler = profiler.record(True, OUTER)
    profiler = profiler.record(False, OUTER)


@triton_dist.jit
def several_leaders_kernel(profile):
    profiler = Profiler.create(profile, 0, is_leader=(dl.tid(0) < 2))
    profiler = profiler.record(True, OUTER)
    profiler = profiler.record(False, OUTER)


@triton_dist.jit
def unknown_comparison_kernel(profile, flags):
    profiler = Profiler.create(profile, 0)
    profiler = profiler.record_wait(WAIT, flags, cmp="==")


@triton_dist.jit
def ring_kernel(profile, flags, ROUNDS: tl.constexpr, PROFILE: tl.constexpr):
    """Each rank's programs pass a number on to the same program of the next rank, and wait for the one before."""
    profiler = Profiler.create(profile, 0, ENABLE_PROFILING=PROFILE)
    peer = (dl.rank() + 1) % dl.num_ranks()
    flag = flags + tl.program_id(0)
    for number in range(ROUNDS):
        profiler = profiler.record_notify(SEND, flag, peer, signal=number + 1)
        dl.notify(flag, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
        profiler = profiler.record_wait(WAIT, flag, 1, value=number + 1, cmp="ge")
        dl.wait(flag, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")
        profiler = profiler.record(False, WAIT)


@triton_dist.jit
def plain_ring_kernel(profile, flags, ROUNDS: tl.constexpr, PROFILE: tl.constexpr):
    """``ring_kernel`` without a profiler."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    flag = flags + tl.program_id(0)
    for number in range(ROUNDS):
        dl.notify(flag, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(flag, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")


@triton_dist.jit
def add_kernel(profile, x, y, rounds, LEADER: tl.constexpr, PROFILE: tl.constexpr):
    """Adds tile by tile, in a loop whose number of rounds nobody knows, and one that goes on by a condition."""
    if LEADER:
        profiler = Profiler.create(profile, 0, is_leader=(dl.tid(0) == 0), ENABLE_PROFILING=PROFILE)
    else:
        profiler = Profiler.create(profile, 0, ENABLE_PROFILING=PROFILE)
    for number in range(rounds):
        profiler = profiler.record(True, number)
        offset = number * 128 + tl.arange(0, 128)
        tl.store(y + offset, tl.load(x + offset) + 1)
        profiler = profiler.record(False, number)
    left = rounds
    while left > 0:
        profiler = profiler.record(True, INNER)
        left = left - 1 - (tl.load(y + left) > 0).to(tl.int32)
        profiler = profiler.record(False, INNER)


@triton_dist.jit
def plain_add_kernel(profile, x, y, rounds, LEADER: tl.constexpr, PROFILE: tl.constexpr):
    """``add_kernel`` without a profiler."""
    for number in range(rounds):
        offset = number * 128 + tl.arange(0, 128)
        tl.store(y + offset, tl.load(x + offset) + 1)
    left = rounds
    while left > 0:
        left = left - 1 - (tl.load(y + left) > 0).to(tl.int32)
