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

THIS_FILE = re.escape(__file__)


def line_of(text: str) -> int:
    """Number of the first line of this file that contains ``text``."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


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


# ---------------------------------------------------------------------- residency


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


# ---------------------------------------------------------------------- streams


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


# ---------------------------------------------------------------------- reports


@triton_dist.jit
def wrong_word_kernel(signals):
    if dl.rank() == 0:
        dl.notify(signals + 1, 1, signal=5, sig_op="set", comm_scope="intra_node")  # the wrong word
    else:
        dl.wait(signals + 3, 1, "sys", "acquire", waitValue=5)  # the waiting line


def test_the_report_names_rank_line_word_and_writer():
    def run():
        my_signals = triton_dist.symm_zeros((8,), torch.int32)
        wrong_word_kernel[(1,)](my_signals)
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError) as caught:
        triton_dist.simulate(run, 2)
    text = str(caught.value)
    waiting, writing = line_of("# the waiting line"), line_of("# the wrong word")
    assert re.search(
        rf"rank 1, program \(0, 0, 0\) of wrong_word_kernel at {THIS_FILE}:{waiting} waits for my_signals\[3\] of rank 1 == 5; it is 0",
        text,
    )
    assert re.search(rf"my_signals\[1\] = 5 by rank 0, program \(0, 0, 0\) of wrong_word_kernel at {THIS_FILE}:{writing}", text)
    assert "rank 1, host: synchronize()" in text


@triton_dist.jit
def overshoot_kernel(signals):
    dl.notify(signals, 0, signal=2, sig_op="add", comm_scope="intra_node")
    dl.wait(signals, 1, "sys", "acquire", waitValue=1)


def test_an_equality_wait_that_was_overtaken_shows_the_last_writer():
    def run():
        signals = triton_dist.symm_zeros((1,), torch.int64)
        overshoot_kernel[(1,)](signals)

    with pytest.raises(errors.DeadlockError, match=r"== 1; it is 2, last written by rank 0, program \(0, 0, 0\) of overshoot_kernel"):
        triton_dist.simulate(run, 1)


@triton.jit
def spin_kernel(flag):
    while tl.load(flag, volatile=True) != 1:
        pass


@triton.jit
def lock_kernel(lock, counter):
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    tl.store(counter, tl.load(counter) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def counting_spin_kernel(flag, out):
    polls = 0
    while tl.load(flag, volatile=True) != 1:
        polls += 1
    tl.store(out, polls)


def test_a_spin_loop_ends_when_memory_changes():
    def run():
        flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        side = triton_dist.Stream()
        with triton_dist.stream(side):
            spin_kernel[(2,)](flag)
            counting_spin_kernel[(1,)](flag, out)
        set_kernel[(1,)](flag)
        triton_dist.synchronize()
        return flag.item()

    assert triton_dist.simulate(run, 1) == [1]


def test_a_spin_lock_counts_right_on_every_schedule():
    def run():
        lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        lock_kernel[(40,)](lock, counter)
        return counter.item()

    assert [triton_dist.simulate(run, 1, seed=seed)[0] for seed in range(4)] == [40] * 4


def test_a_spin_loop_that_nobody_ends_is_a_deadlock():
    def run():
        spin_kernel[(3,)](torch.zeros(1, dtype=torch.int32))
        triton_dist.synchronize()

    with pytest.raises(errors.DeadlockError, match="3 programs .* of spin_kernel at .* spins in a loop that sees no change"):
        triton_dist.simulate(run, 1)


def test_a_loop_that_only_counts_is_a_livelock(monkeypatch):
    monkeypatch.setattr("triton_dist.sim.machine._LIVELOCK_STEPS", 5000)
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(errors.DeadlockError, match="livelock"):
        counting_spin_kernel[(1,)](flag, out)


# ---------------------------------------------------------------------- accesses


@triton.jit
def copy_kernel(source, target, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(target + offset, tl.load(source + offset))


def test_out_of_bounds_names_line_tensor_and_index():
    with pytest.raises(errors.OutOfBoundsError) as caught:
        copy_kernel[(1,)](torch.zeros(60), torch.zeros(64), COUNT=64)
    assert re.search(
        rf"{THIS_FILE}:{line_of('tl.store(target + offset, tl.load(source')}: load of source\[60\], 16 bytes past the end",
        str(caught.value),
    )
    with pytest.raises(errors.OutOfBoundsError, match=r"store of target\[33\], 124 bytes past the end: target has 33 elements"):
        copy_kernel[(1,)](torch.zeros(64), torch.zeros(33), COUNT=64)


@triton.jit
def at_kernel(data, index):
    tl.store(data + index, 1.0)


@pytest.mark.parametrize("index", [-1, 10, 1 << 20, -(1 << 20)])
def test_scalar_accesses_are_checked(index):
    with pytest.raises(errors.OutOfBoundsError, match=rf"store of data\[{index}\]"):
        at_kernel[(1,)](torch.zeros(10), index)


def test_neighbouring_tensors_are_not_reached():
    """A pointer belongs to its own tensor even where another one lies right behind it."""
    both = torch.zeros(20)
    near = torch.frombuffer(memoryview(both.numpy())[:10], dtype=torch.float32)
    at_kernel[(1,)](both, 15)
    assert both[15] == 1.0
    with pytest.raises(errors.OutOfBoundsError):
        at_kernel[(1,)](near, 40)


def test_null_and_unknown_pointers():
    with pytest.raises(errors.OutOfBoundsError, match="NULL pointer"):
        at_kernel[(1,)](torch.zeros(0), 0)


@triton.jit
def through_table_kernel(table, out):
    row = tl.program_id(0)
    pointer = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(out + row, tl.load(pointer + row))


def test_pointer_tables_and_use_after_free():
    tensors = [torch.arange(8.0) + 10 * row for row in range(3)]

    def run():
        inside = [tensor.clone() for tensor in tensors]
        table = torch.tensor([tensor.data_ptr() for tensor in inside])
        out = torch.zeros(3)
        through_table_kernel[(3,)](table, out)
        triton_dist.synchronize()
        return out.tolist()

    assert triton_dist.simulate(run, 1) == [[0.0, 11.0, 22.0]]

    def freed():
        inside = [tensor.clone() for tensor in tensors]
        table = torch.tensor([tensor.data_ptr() for tensor in inside])
        inside.clear()
        through_table_kernel[(3,)](table, torch.zeros(3))
        triton_dist.synchronize()

    with pytest.raises(errors.OutOfBoundsError):
        triton_dist.simulate(freed, 1)


@triton_dist.jit
def reach_kernel(data, peer):
    tl.store(dl.symm_at(data, peer), 1.0)


def test_symm_at_is_checked():
    def ordinary():
        reach_kernel[(1,)](torch.zeros(4), 0)
        triton_dist.synchronize()

    with pytest.raises(errors.NotSymmetricError, match="'data' is an ordinary tensor"):
        triton_dist.simulate(ordinary, 2)

    def beyond(peer):
        symmetric = triton_dist.symm_zeros((4,), torch.float32)
        reach_kernel[(1,)](symmetric, peer)
        triton_dist.synchronize()

    for peer in (2, -1):
        with pytest.raises(errors.UnreachablePeerError, match=f"no rank {peer} in a world of 2"):
            triton_dist.simulate(beyond, 2, args=(peer,))
    with pytest.raises(errors.UnreachablePeerError, match="node 1"):
        triton_dist.simulate(beyond, 2, args=(1,), num_nodes=2)


@triton_dist.jit
def notify_kernel(flags, peer):
    dl.notify(flags, peer, signal=1, sig_op="set", comm_scope="intra_node")


def test_notify_is_checked():
    def ordinary():
        notify_kernel[(1,)](torch.zeros(4, dtype=torch.int32), 0)
        triton_dist.synchronize()

    with pytest.raises(errors.NotSymmetricError):
        triton_dist.simulate(ordinary, 2)


# ---------------------------------------------------------------------- the rest


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


def test_arguments_live_until_the_launch_has_run():
    def run():
        out = torch.zeros(64)
        for number in range(20):
            copy_kernel[(1,)](torch.full((64,), float(number)), out, COUNT=64)
        return out.tolist()

    assert triton_dist.simulate(run, 2) == [[19.0] * 64] * 2


def test_a_freed_symmetric_tensor_is_not_an_ordinary_one():
    def run():
        data = triton_dist.symm_zeros((16,), torch.float32)
        address = data.data_ptr()
        triton_dist.symm_free(data)
        at_kernel[(1,)](address_of(address), 3)
        triton_dist.synchronize()

    with pytest.raises(errors.UseAfterFreeError, match=r"store of data\[3\]"):
        triton_dist.simulate(run, 2)


class address_of:
    """A launch argument that only has an address, as other libraries' tensors do."""

    dtype = torch.float32

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def test_launches_do_not_pile_up_memory():
    """Many launches with the same tensors leave nothing behind: no registrations, no suspended programs."""
    import gc
    import tracemalloc

    source, target = torch.ones(64), torch.zeros(64)

    def launch(times: int) -> None:
        for _ in range(times):
            copy_kernel[(2,)](source, target, COUNT=64)

    launch(20)
    gc.collect()
    tracemalloc.start()
    launch(20)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    launch(200)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 30_000
