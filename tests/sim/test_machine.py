"""The machine: residency, streams, events, copies, signals of the host, determinism, and what it says when nothing can move."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.runtime.streams import copy_async, wait_value, write_value
from triton_dist.sim.gpus import GPU
from triton_dist.sim.machine import Machine
from triton_dist.sim.timeline import Timeline


@triton_dist.jit
def ring_kernel(flags, rounds):
    program = tl.program_id(0)
    peer = (dl.rank() + 1) % dl.num_ranks()
    for number in range(rounds):
        dl.notify(flags + program, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(flags + program, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("schedule", ["random", "round_robin"])
def test_signals_go_round(world_size, schedule):
    def run():
        flags = triton_dist.symm_zeros((5,), torch.int32)
        ring_kernel[(5,)](flags, 7)
        return flags.tolist()

    assert triton_dist.simulate(run, world_size, schedule=schedule, seed=3) == [[7] * 5] * world_size


@triton.jit
def order_kernel(log, counter):
    place = tl.atomic_add(counter, 1)
    tl.store(log + place, dl.rank() * 100 + tl.program_id(0))


def logged_order(seed: int, schedule: str = "random") -> list[int]:
    """The order in which the programs of three ranks came to one counter on rank 0."""

    def run():
        log, counter = triton_dist.symm_zeros((24,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
        order_kernel[(8,)](triton_dist.symm_peer(log, 0), triton_dist.symm_peer(counter, 0))
        triton_dist.synchronize()
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
        return log.tolist()

    return triton_dist.simulate(run, 3, seed=seed, schedule=schedule)[0]


def test_a_seed_is_a_schedule():
    orders = {seed: logged_order(seed) for seed in range(4)}
    assert all(sorted(order) == [100 * rank + program for rank in range(3) for program in range(8)] for order in orders.values())
    assert orders[2] == logged_order(2)
    assert len({tuple(order) for order in orders.values()}) > 1
    assert logged_order(0, "round_robin") == logged_order(1, "round_robin")


@triton.jit
def wait_for_last_kernel(flags, DONE: tl.constexpr):
    """Program 0 waits for what the last program sets."""
    if tl.program_id(0) == 0:
        dl.wait(flags, 1, "gpu", "acquire")
    elif tl.program_id(0) == tl.num_programs(0) - 1:
        tl.atomic_xchg(flags, DONE, sem="release")


@triton.jit
def all_wait_for_last_kernel(flags):
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.atomic_xchg(flags, 1, sem="release")
    dl.wait(flags, 1, "gpu", "acquire")


def launch_waiting(programs: int):
    flags = triton_dist.symm_zeros((1,), torch.int32)
    all_wait_for_last_kernel[(programs,)](flags)
    triton_dist.synchronize()
    return flags.item()


def test_a_grid_that_fits_may_wait_for_its_last_program():
    assert triton_dist.simulate(launch_waiting, 1, args=(8,), gpu=GPU("8 SMs", 90, 8, 1 << 17)) == [1]


def test_a_grid_larger_than_the_gpu_that_waits_for_itself_is_a_deadlock():
    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(launch_waiting, 1, args=(20,), gpu=GPU("8 SMs", 90, 8, 1 << 17))
    text = str(caught.value)
    assert "12 of the 20 programs of all_wait_for_last_kernel can't start" in text
    assert "(8, 0, 0)" in text and "all 8 SMs are taken" in text
    assert "8 programs" in text and "flags[0]" in text and "nobody wrote it" in text


def test_programs_start_as_others_end():
    def run():
        log, counter = torch.zeros(100, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        order_kernel[(100,)](log, counter)
        return sorted(log.tolist())

    assert triton_dist.simulate(run, 1, gpu=GPU("2 SMs", 90, 2, 1 << 17)) == [list(range(100))]


def test_an_earlier_kernel_takes_the_sms_first():
    """A waiting kernel that fills the GPU keeps the kernel out that would wake it; with one SM left it does not."""

    def run(programs):
        flags = triton_dist.symm_zeros((1,), torch.int32)
        waiting, setting = triton_dist.Stream(), triton_dist.Stream()
        with triton_dist.stream(waiting):
            wait_kernel[(programs,)](flags)
        with triton_dist.stream(setting):
            set_kernel[(1,)](flags)
        triton_dist.synchronize()
        return flags.item()

    assert triton_dist.simulate(run, 1, args=(3,), gpu=GPU("4 SMs", 90, 4, 1 << 17)) == [1]
    with pytest.raises(errors.DeadlockError, match="1 of the 1 programs of set_kernel can't start"):
        triton_dist.simulate(run, 1, args=(4,), gpu=GPU("4 SMs", 90, 4, 1 << 17))


@triton.jit
def wait_kernel(flags):
    dl.wait(flags, 1, "gpu", "acquire")


@triton.jit
def set_kernel(flags):
    tl.atomic_xchg(flags, 1, sem="release")


def test_one_stream_is_in_order_and_a_blocked_one_is_a_deadlock():
    def run():
        flags = triton_dist.symm_zeros((1,), torch.int32)
        wait_kernel[(1,)](flags)
        set_kernel[(1,)](flags)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(run, 1)
    assert "queued behind kernel wait_kernel" in str(caught.value) and "set_kernel" in str(caught.value)


def test_the_host_can_set_and_await_signals_on_a_stream():
    def run():
        flags = triton_dist.symm_zeros((2,), torch.int32)
        peer = (triton_dist.rank() + 1) % triton_dist.world_size()
        wait_kernel[(1,)](flags)
        side = triton_dist.Stream()
        write_value(triton_dist.symm_peer(flags, peer)[0], 1, stream=side)
        wait_value(flags[0], 1, "ge", stream=side)
        write_value(flags[1], 7, stream=side)
        triton_dist.synchronize()
        return flags.tolist()

    assert triton_dist.simulate(run, 3) == [[1, 7]] * 3


def test_events_order_streams():
    def run():
        data = torch.zeros(1 << 16)
        first, second = triton_dist.Stream(), triton_dist.Stream()
        copy_async(data, torch.ones(1 << 16), stream=first)
        second.wait_event(first.record_event())
        out = torch.zeros(1 << 16)
        copy_async(out, data, stream=second)
        triton_dist.synchronize()
        return out.sum().item()

    for seed in range(5):
        assert triton_dist.simulate(run, 1, seed=seed) == [1 << 16]


def test_a_copy_lands_in_pieces_and_late():
    """Without an event the second copy may see part of the first: some schedule shows it."""

    def run():
        data, out = torch.zeros(1 << 18), torch.zeros(1 << 18)
        copy_async(data, torch.ones(1 << 18), stream=triton_dist.Stream())
        copy_async(out, data, stream=triton_dist.Stream())
        triton_dist.synchronize()
        return out.sum().item()

    sums = {triton_dist.simulate(run, 1, seed=seed)[0] for seed in range(12)}
    assert len(sums) > 1


def test_an_event_that_never_comes_is_named():
    def run():
        flags = triton_dist.symm_zeros((1,), torch.int32)
        blocked, waiting = triton_dist.Stream(), triton_dist.Stream()
        with triton_dist.stream(blocked):
            wait_kernel[(1,)](flags)
        waiting.wait_event(blocked.record_event())
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError, match="wait for an event of rank 0's stream 1"):
        triton_dist.simulate(run, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 0}, "from 1 to 127"),
        ({"world_size": 200}, "from 1 to 127"),
        ({"world_size": 2, "schedule": "fair"}, "use one of"),
        ({"world_size": 3, "num_nodes": 2}, "divide"),
        ({"world_size": 2, "gpu": "h1000"}, "h100"),
    ],
)
def test_bad_machines_are_named(options, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        Machine(**options)


def test_the_time_line_knows_who_ended_a_wait():
    timeline = Timeline()

    def run():
        flags = triton_dist.symm_zeros((2,), torch.int32)
        ring_kernel[(2,)](flags, 4)

    triton_dist.simulate(run, 2, timeline=timeline)
    assert {span.rank for span in timeline.spans if span.kind == "program"} == {0, 1}
    assert timeline.waits and all(wait.end >= wait.begin for wait in timeline.waits)
    assert {wait.writer_rank for wait in timeline.waits if wait.rank == 0} == {1}
    assert all(re.match(r"flags\[[01]\] of rank [01]", wait.word) for wait in timeline.waits)


@triton.jit
def wait_for_time_kernel(out, nanoseconds):
    begin = tl.extra.cuda.globaltimer()
    now = begin
    while now < begin + nanoseconds:
        now = tl.extra.cuda.globaltimer()
    tl.store(out, now - begin)


@triton.jit
def poll_with_timeout_kernel(flag, out, nanoseconds):
    deadline = tl.extra.cuda.globaltimer() + nanoseconds
    while (tl.load(flag, volatile=True) == 0) & (tl.extra.cuda.globaltimer() < deadline):
        pass
    tl.store(out, tl.load(flag, volatile=True) + 10)


def test_a_loop_that_waits_for_a_time_ends():
    out = torch.zeros(1, dtype=torch.int64)
    wait_for_time_kernel[(1,)](out, 50_000)
    assert 50_000 <= out.item() < 60_000


def test_a_poll_with_a_time_out_gives_up_or_sees_the_flag():
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    poll_with_timeout_kernel[(1,)](flag, out, 20_000)
    assert out.item() == 10

    def run():
        flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        with triton_dist.stream(triton_dist.Stream()):
            poll_with_timeout_kernel[(1,)](flag, out, 10_000_000)
        set_kernel[(1,)](flag)
        triton_dist.synchronize()
        return out.item()

    assert triton_dist.simulate(run, 1) == [11]
