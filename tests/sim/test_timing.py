"""Runs for their time only (``simulate(execute="timing")``): what they find out, what stays real in them, what they still report."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_dist
import triton_dist.language as dl
from triton_dist import simulate
from triton_dist.errors import DeadlockError, InvalidArgumentError, OutOfBoundsError
from triton_dist.runtime.streams import Event, Stream, copy_async, current_stream, write_value
from triton_dist.runtime.symmetric import symm_empty, symm_peer, symm_zeros
from triton_dist.sim.gpus import GPU, GPUS

H100 = GPUS["h100"]
HEAP = 8 << 30


def with_costs(**costs) -> GPU:
    """An H100 some of whose costs are others."""
    return replace(H100, costs=replace(H100.costs, **costs))


def milliseconds(work) -> float:
    """Simulated milliseconds that ``work()`` takes on the current stream, after one call before."""
    work()
    triton_dist.synchronize()
    begin, end = Event(), Event()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def timed(work, world_size: int = 1, **options) -> float:
    """The slowest rank's ``milliseconds`` of the function that ``work()`` returns."""
    return max(simulate(lambda: milliseconds(work()), world_size, execute="timing", heap_size=HEAP, **options))


@triton_dist.jit
def product_kernel(a, b, c, flags, rows, columns, depth, shards, first, WAITS: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(rows, 128), tl.cdiv(columns, 128)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_m = (tile // tiles_n + first * tiles_m // shards) % tiles_m
        row, column = tile_m * 128, tile % tiles_n * 128
        if WAITS:
            row = dl.consume_token(row, dl.wait(flags + tile_m * shards // tiles_m, 1, "sys", "acquire", waitValue=1))
        total = tl.zeros((128, 128), tl.float32)
        for step in range(0, tl.cdiv(depth, 64)):
            total = tl.dot(a.load([row, step * 64]), b.load([column, step * 64]).T, total)
        c.store([row, column], total.to(c.dtype))


def multiply(a, b, c, flags=None, shards=1, first=0) -> None:
    """``c = a @ b.T`` by as many programs as the GPU has SMs."""
    tiles = triton.cdiv(a.shape[0], 128) * triton.cdiv(b.shape[0], 128)
    sms = triton.runtime.driver.active.utils.get_device_properties(triton.runtime.driver.active.get_current_device())[
        "multiprocessor_count"
    ]
    descriptors = [TensorDescriptor.from_tensor(x, block) for x, block in ((a, [128, 64]), (b, [128, 64]), (c, [128, 128]))]
    product_kernel[(min(tiles, sms),)](*descriptors, flags, a.shape[0], b.shape[0], a.shape[1], shards, first, WAITS=flags is not None)


def product(m: int, n: int, k: int):
    """A function that makes the tensors of a product and returns the call."""

    def work():
        a, b, c = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((m, k), (n, k), (m, n)))
        return lambda: multiply(a, b, c)

    return work


def all_gather_product(m: int, n: int, k: int, overlapped: bool):
    """The same for an all-gather by the copy engine and a product, one after the other or shard by shard."""

    def work():
        rank, size = triton_dist.rank(), triton_dist.world_size()
        rows = m // size
        gathered = symm_empty((m, k), torch.bfloat16)
        b, c = torch.empty((n, k), dtype=torch.bfloat16), torch.empty((m, n), dtype=torch.bfloat16)
        flags = torch.zeros(size, dtype=torch.int32)
        side = Stream()

        def call():
            flags.zero_()
            main = current_stream()
            write_value(flags[rank], 1)
            side.wait_stream(main)
            for distance in range(1, size):
                peer = (rank + distance) % size
                piece = slice(peer * rows, (peer + 1) * rows)
                copy_async(gathered[piece], symm_peer(gathered, peer)[piece], side)
                write_value(flags[peer], 1, side)
            if not overlapped:
                main.wait_stream(side)
            multiply(gathered, b, c, flags, size, rank)
            main.wait_stream(side)

        return call

    return work


def gather(m: int, k: int):
    """The all-gather of ``all_gather_product`` alone."""

    def work():
        rank, size = triton_dist.rank(), triton_dist.world_size()
        rows = m // size
        gathered = symm_empty((m, k), torch.bfloat16)

        def call():
            for distance in range(1, size):
                piece = slice((rank + distance) % size * rows, ((rank + distance) % size + 1) * rows)
                copy_async(gathered[piece], symm_peer(gathered, (rank + distance) % size)[piece])

        return call

    return work


def test_an_unknown_way_to_execute():
    with pytest.raises(InvalidArgumentError, match="execute='fast'"):
        simulate(lambda: None, 1, execute="fast")


@pytest.mark.parametrize("axis", range(3))
def test_larger_products_take_longer(axis):
    times = []
    for factor in (1, 2, 4):
        sizes = [2048, 4096, 2048]
        sizes[axis] *= factor
        times.append(timed(product(*sizes)))
    assert times[0] < times[1] < times[2]
    assert times[2] / times[1] > 1.7


def test_a_large_product_runs_near_the_rate_of_the_matrix_units():
    sizes = 8192, 8192, 8192
    seconds = timed(product(*sizes)) / 1e3
    flop_per_s = 2 * sizes[0] * sizes[1] * sizes[2] / seconds
    rate = H100.costs.matrix_flop_per_ns["fp16"] * 1e9 * H100.sm_count
    assert 0.7 * rate < flop_per_s < rate


def test_half_the_sms_take_twice_as_long():
    whole = timed(product(8192, 8192, 2048))
    half = timed(product(8192, 8192, 2048), gpu=replace(H100, sm_count=66))
    assert half / whole == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("size", [1 << 24, 1 << 28])
def test_twice_the_links_copy_twice_as_fast(size):
    def pull():
        source, target = symm_empty((size,), torch.int8), torch.empty(size, dtype=torch.int8)
        return lambda: copy_async(target, symm_peer(source, 1 - triton_dist.rank()))

    options = {"copy_start_ns": 0.0, "event_ns": 0.0}
    slow = timed(pull, 2, gpu=with_costs(link=100.0, copy_engine=100.0, **options))
    fast = timed(pull, 2, gpu=with_costs(link=200.0, copy_engine=200.0, **options))
    assert slow / fast == pytest.approx(2, rel=0.02)
    assert slow == pytest.approx(size / 100 / 1e6, rel=0.02)


def test_copies_share_the_links_of_their_source():
    """All ranks pull from rank 0 at once: three times as long as one that pulls, though each copy engine could do better."""

    def pull(pullers: int):
        def work():
            source, target = symm_empty((1 << 26,), torch.int8), torch.empty(1 << 26, dtype=torch.int8)
            pulls = 1 <= triton_dist.rank() <= pullers
            return lambda: copy_async(target, symm_peer(source, 0)) if pulls else None

        return work

    one, three = timed(pull(1), 4), timed(pull(3), 4)
    assert three / one == pytest.approx(3 * H100.costs.copy_engine / H100.costs.link, rel=0.1)


def test_overlapping_hides_the_shorter_part():
    sizes = 8192, 4096, 8192
    compute, move = timed(product(*sizes)), timed(gather(sizes[0], sizes[2]), 4)
    serial = timed(all_gather_product(*sizes, overlapped=False), 4)
    overlapped = timed(all_gather_product(*sizes, overlapped=True), 4)
    assert 0.3 * compute < move < compute
    assert serial == pytest.approx(compute + move, rel=0.1)
    assert max(compute, move) <= overlapped < 1.15 * max(compute, move)


def test_products_of_two_streams_fill_each_others_last_waves():
    """No tile divides the product evenly: behind one another each leaves SMs idle, on streams of their own others use them."""

    def on(streams: int):
        others = [current_stream(), *(Stream() for _ in range(streams - 1))]
        left, right = torch.empty(512, 8192, dtype=torch.bfloat16), torch.empty(8192, 4352, dtype=torch.bfloat16)

        def work():
            begin = current_stream().record_event()
            for index in range(4):
                others[index % streams].wait_event(begin)
                with others[index % streams]:
                    torch.mm(left, right)
            for other in others[1:]:
                current_stream().wait_stream(other)

        return work

    four, one = timed(lambda: on(4)), timed(lambda: on(1))
    assert four < 0.92 * one
    costs = H100.costs
    assert four > 4 * 2 * 512 * 8192 * 4352 / (132 * costs.matrix_flop_per_ns["fp16"]) * 1e-6  # not faster than the GPU


def test_slow_links_are_the_bound_of_the_overlapped_form():
    sizes, slow = (4096, 2048, 4096), {"link": 20.0, "copy_engine": 20.0}
    move = timed(gather(sizes[0], sizes[2]), 4, gpu=with_costs(**slow))
    overlapped = timed(all_gather_product(*sizes, overlapped=True), 4, gpu=with_costs(**slow))
    assert move <= overlapped < 1.25 * move


def test_seeds_and_schedules_do_not_change_the_time_much():
    times = [timed(all_gather_product(4096, 2048, 2048, overlapped=True), 3, seed=seed) for seed in range(4)]
    times.append(timed(all_gather_product(4096, 2048, 2048, overlapped=True), 3, schedule="round_robin"))
    assert max(times) < 1.03 * min(times)


def test_tensors_take_no_memory():
    """48 GiB of tensors, none of which is touched."""

    def work():
        a, b = torch.empty(1 << 17, 4096, dtype=torch.bfloat16), torch.randn(1 << 16, 4096, dtype=torch.bfloat16)
        c = torch.empty(a.shape[0], 1 << 16, dtype=torch.bfloat16)
        gathered = symm_empty((1 << 18, 1 << 14), torch.bfloat16)
        return lambda: (torch.matmul(a, b.t(), out=c), gathered[: 1 << 17].add_(1), c.sum())

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert max(simulate(lambda: milliseconds(work()), 2, execute="timing", heap_size=16 << 30)) > 50
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


@triton.jit
def ticket_kernel(counter, taken, values, out, BLOCK: tl.constexpr):
    ticket = tl.atomic_add(counter, 1)
    tl.store(taken + ticket, tl.program_id(0))
    offset = ticket * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offset, tl.load(values + offset) * 2 + 1)


def test_integers_and_control_flow_are_real():
    def fn():
        counter, taken = torch.zeros(1, dtype=torch.int32), torch.full((40,), -1, dtype=torch.int32)
        values = torch.arange(640, dtype=torch.int64)
        out = torch.zeros_like(values)
        ticket_kernel[(40,)](counter, taken, values, out, BLOCK=16)
        return counter.item(), sorted(taken.tolist()), torch.equal(out, 2 * values + 1)

    assert simulate(fn, 1, execute="timing") == [(40, list(range(40)), True)]


@triton.jit
def copy_kernel(source, target, count, BLOCK: tl.constexpr):
    for begin in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        tl.store(target + offset, tl.load(source + offset, mask=offset < count), mask=offset < count)


def test_few_integers_are_copied_and_many_only_take_time():
    def fn(count: int):
        source = torch.arange(count, dtype=torch.int32)
        target = torch.zeros_like(source)
        nanoseconds = milliseconds(lambda: copy_kernel[(4,)](source, target, count, BLOCK=1024)) * 1e6
        return torch.equal(source, target), nanoseconds

    ((copied, few),) = simulate(fn, 1, args=(4 * 16384,), execute="timing")
    ((_, more),) = simulate(fn, 1, args=(4 * 16384 * 64,), execute="timing")
    assert copied
    assert few < more < 100 * few


@triton.jit
def long_kernel(x, out, rounds, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for number in range(rounds):
        total += tl.load(x + number * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), total)


def test_a_long_loop_costs_what_its_rounds_cost():
    def work(rounds: int):
        x, out = torch.empty(10_000_000 * 256), torch.empty(256)
        return lambda: long_kernel[(1,)](x, out, rounds, BLOCK=256)

    short, long = timed(lambda: work(1_000_000)), timed(lambda: work(10_000_000))
    assert long / short == pytest.approx(10, rel=0.01)


def test_a_tile_outside_is_still_out_of_bounds():
    def fn():
        long_kernel[(1,)](torch.empty(100), torch.empty(256), 1, BLOCK=256)

    with pytest.raises(OutOfBoundsError, match=r"x\[100\]"):
        simulate(fn, 1, execute="timing")


@triton_dist.jit
def answer_kernel(flags, waits):
    peer = 1 - dl.rank()
    if waits == 0:
        dl.notify(flags, peer, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, 1, "sys", "acquire", waitValue=1)


def test_a_deadlock_is_still_reported_and_a_signal_takes_its_time():
    def fn(waits: int):
        flags = symm_zeros((1,), torch.int32, name="flags")
        begin, end = Event(), Event()
        begin.record()
        answer_kernel[(1,)](flags, waits)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e6 - H100.costs.launch_ns

    # Each rank's program is busy with its notify, then looks at its word; the peer's signal is on its way meanwhile.
    costs = H100.costs
    expected = max(costs.signal_ns, costs.notify_ns + costs.wait_ns)
    assert simulate(fn, 2, args=(0,), execute="timing") == pytest.approx([expected] * 2, rel=0.05)
    with pytest.raises(DeadlockError, match=r"flags\[0\]"):
        simulate(fn, 2, args=(1,), execute="timing")


@pytest.mark.parametrize("execute", ["data", "timing"])
def test_torch_operators_take_time(execute):
    def fn(size: int):
        a = torch.zeros(size, size)
        return milliseconds(lambda: torch.mm(a, a))

    small, large = (simulate(fn, 1, args=(size,), execute=execute)[0] for size in (256, 1024))
    assert 0 < small < large


def test_collectives_take_time_and_meet():
    """A rank that comes late makes all of them late."""

    def fn(late: bool):
        dist.init_process_group("nccl")
        full = torch.zeros(1 << 24)
        shard = torch.zeros(1 << 22)
        work = torch.zeros(1 << 28) if late and dist.get_rank() == 1 else torch.zeros(1)

        def call():
            work.add_(1)
            dist.all_gather_into_tensor(full, shard)

        return milliseconds(call)

    early, late = (simulate(fn, 4, args=(late,), execute="timing") for late in (False, True))
    assert max(early) > 3 * (1 << 24) / H100.costs.collective / 1e6
    assert min(late) > max(early) + 0.9 * 2 * (1 << 30) / H100.costs.hbm / 1e6 / 2


def test_work_that_the_host_submits_after_a_wait_begins_after_it():
    def fn():
        slow, other = Stream(), Stream()
        x = torch.empty(1 << 26)
        copy_async(x, torch.empty(1 << 26), slow)
        slow.synchronize()
        begin, end = Event(), Event()
        begin.record(other)
        copy_async(x[:4], x[4:8], slow)
        end.record(slow)
        end.synchronize()
        return begin.elapsed_time(end)

    for execute in ("data", "timing"):
        (between,) = simulate(fn, 1, execute=execute)
        assert 0 < between < 0.01
