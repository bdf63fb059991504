"""Streams, events, host signals and the copy engine of a simulated rank."""

import gc

import pytest
import torch
import torch.distributed as dist

from triton_dist.errors import DeadlockError, InvalidArgumentError
from triton_dist.runtime import streams, symmetric, world
from triton_dist.sim.simulate import simulate

SEEDS = range(4)


def test_device():
    assert simulate(streams.device, 2) == [torch.device("cpu")] * 2


def test_streams_are_values():
    def fn():
        default, other = streams.current_stream(), streams.Stream()
        assert default == streams.current_stream()
        assert default != other
        assert len({default, streams.current_stream(), other}) == 2
        with streams.stream(other) as entered:
            assert entered is other
            assert streams.current_stream() == other
            with other, streams.stream(None):
                assert streams.current_stream() == other
            assert streams.current_stream() == other
        assert streams.current_stream() == default
        return repr(other)

    assert simulate(fn, 2)[1].endswith("of rank 1)")


def test_stream_is_left_after_an_error():
    def fn():
        before = streams.current_stream()
        with pytest.raises(ZeroDivisionError), streams.stream(streams.Stream()):
            raise ZeroDivisionError
        return streams.current_stream() == before

    assert simulate(fn, 1) == [True]


@pytest.mark.parametrize("seed", SEEDS)
def test_wait_event_and_wait_stream(seed):
    def fn():
        gate = symmetric.symm_zeros(1, torch.int32)
        producer, consumer, late = streams.Stream(), streams.Stream(), streams.Stream()
        x = torch.zeros(4)
        with streams.stream(producer):
            streams.wait_value(gate, 1)
            x.fill_(3)
            done = producer.record_event()
        consumer.wait_event(done)
        with streams.stream(consumer):
            y = x + 1
        late.wait_stream(consumer)
        with streams.stream(late):
            z = y * 2
        assert not done.query()
        assert not consumer.query()
        streams.write_value(gate, 1)
        late.synchronize()
        assert done.query()
        assert late.query()
        return z.tolist()

    assert simulate(fn, 2, seed=seed) == [[8.0] * 4] * 2


def test_events_before_any_record():
    def fn():
        event = streams.Event()
        event.wait()
        event.synchronize()
        return event.query()

    assert simulate(fn, 1) == [True]


def test_query_lets_the_machine_move():
    def fn():
        gate = symmetric.symm_zeros(1, torch.int32)
        streams.wait_value(gate, world.world_size(), "eq", streams.Stream())
        event = streams.Event()
        streams.write_value(symmetric.symm_peer(gate, (world.rank() + 1) % world.world_size()), world.world_size())
        event.record()
        asked = 0
        while not event.query():
            asked += 1
        while not streams.current_stream().query():
            asked += 1
        return asked

    simulate(fn, 3)


def test_query_of_what_never_comes():
    def fn():
        gate = symmetric.symm_zeros(1, torch.int32)
        streams.wait_value(gate, 1)
        while not streams.current_stream().query():
            pass

    with pytest.raises(DeadlockError) as caught:
        simulate(fn, 2)
    assert "gate[0]" in str(caught.value)
    assert "Stream.query()" in str(caught.value)


def test_elapsed_time():
    def fn():
        first, last = streams.Event(enable_timing=True), streams.Event(enable_timing=True)
        with pytest.raises(InvalidArgumentError, match="recorded"):
            first.elapsed_time(last)
        first.record()
        streams.copy_async(torch.empty(1 << 20), torch.empty(1 << 20))
        last.record()
        last.synchronize()
        return first.elapsed_time(last)

    for seed in SEEDS:
        (milliseconds,) = simulate(fn, 1, seed=seed)
        assert milliseconds > 0


COMPARISONS = {"eq": (3, 3), "ne": (0, 3), "gt": (2, 3), "ge": (3, 3), "lt": (0, -1), "le": (-1, -1)}
"""For each comparison the value waited against, and a value that fulfils it; the word starts at 0."""


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("cmp", COMPARISONS)
def test_signals_between_ranks(cmp, dtype):
    against, written = COMPARISONS[cmp]

    def fn():
        rank, size = world.rank(), world.world_size()
        words = symmetric.symm_zeros(size, dtype)
        arrived = torch.zeros(size)
        for source in range(size):
            streams.wait_value(words[source], against, cmp)
            arrived[source] = 1
        for peer in range(size):
            streams.write_value(symmetric.symm_peer(words, peer)[rank], written, streams.Stream())
        assert arrived.tolist() == [1.0] * size
        return words.tolist()

    assert simulate(fn, 3) == [[written] * 3] * 3


def test_default_comparison_is_at_least():
    def fn():
        word = symmetric.symm_zeros(1, torch.int32)
        streams.write_value(word, 5)
        streams.wait_value(word, 4)
        streams.synchronize()

    simulate(fn, 1)


def test_signal_orders_earlier_work():
    """Whoever sees the signal sees what its stream did before."""

    def fn():
        dist.init_process_group("gloo")
        data, word = symmetric.symm_zeros(1000), symmetric.symm_zeros(1, torch.int64)
        right = (world.rank() + 1) % world.world_size()
        source = torch.full((1000,), world.rank() + 1.0)
        streams.copy_async(symmetric.symm_peer(data, right), source)
        streams.write_value(symmetric.symm_peer(word, right), 1)
        with streams.stream(streams.Stream()):
            streams.wait_value(word, 1)
            return data.sum().item()

    for seed in SEEDS:
        assert simulate(fn, 3, seed=seed) == [3000.0, 1000.0, 2000.0]


def test_never_written_signal_is_named():
    def fn():
        flags = symmetric.symm_zeros(4, torch.int32)
        streams.wait_value(flags[2], 7, "eq")

    with pytest.raises(DeadlockError, match=r"flags\[2\] of rank 0 == 7; it is 0; nobody wrote it"):
        simulate(fn, 1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: streams.write_value(t, 1), "one element"),
        (lambda t: streams.write_value(5, 1), "one element"),
        (lambda t: streams.write_value(t[0].to(torch.float32), 1), "integer dtype"),
        (lambda t: streams.wait_value(t[0].to(torch.int8), 1), "integer dtype"),
        (lambda t: streams.wait_value(t[0], 1, "=="), "not one of"),
    ],
)
def test_bad_signals(call, text):
    with pytest.raises(InvalidArgumentError, match=text):
        simulate(lambda: call(torch.zeros(2, dtype=torch.int32)), 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_copy_async(seed):
    def fn():
        source = torch.arange(100_000, dtype=torch.float32) + world.rank()
        inbox = symmetric.symm_zeros(100_000)
        plain, strided = torch.zeros(100_000), torch.zeros(100, 2)
        copier = streams.Stream()
        copier.wait_stream(streams.current_stream())
        streams.copy_async(symmetric.symm_peer(inbox, world.rank()), source, copier)
        streams.copy_async(plain, inbox, copier)
        streams.copy_async(strided[:, 1], source[:100], copier)
        source = None
        gc.collect()
        copier.synchronize()
        return plain[-1].item(), strided[3].tolist()

    assert simulate(fn, 2, seed=seed) == [(99_999.0, [0.0, 3.0]), (100_000.0, [0.0, 4.0])]


def test_bad_copies():
    with pytest.raises(InvalidArgumentError, match=r"destination is torch.float32 \[2\] but source is torch.float32 \[3\]"):
        simulate(lambda: streams.copy_async(torch.zeros(2), torch.zeros(3)), 1)
    with pytest.raises(InvalidArgumentError, match="same dtype"):
        simulate(lambda: streams.copy_async(torch.zeros(2), torch.zeros(2, dtype=torch.int32)), 1)
    simulate(lambda: streams.copy_async(torch.zeros(0), torch.zeros(0)), 1)


USES = {
    "enter": lambda stream, event: stream.__enter__(),
    "stream synchronize": lambda stream, event: stream.synchronize(),
    "stream query": lambda stream, event: stream.query(),
    "stream argument": lambda stream, event: streams.copy_async(torch.zeros(1), torch.zeros(1), stream=stream),
    "record": lambda stream, event: event.record(),
    "record on it": lambda stream, event: streams.Event().record(stream),
    "wait": lambda stream, event: event.wait(),
    "event synchronize": lambda stream, event: event.synchronize(),
    "event query": lambda stream, event: event.query(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_streams_and_events_belong_to_one_rank(use):
    """A stream kept in a global variable, say, is not silently taken for one of another rank or of the next simulation."""
    made = {}

    def fn():
        made.setdefault(world.rank(), (streams.Stream(), streams.Event()))
        symmetric.symm_zeros(1)
        if world.rank() == 1:
            use(*made[0])

    with pytest.raises(InvalidArgumentError, match="rank 1 uses a stream or event that rank 0 made; they belong to one rank"):
        simulate(fn, 2)
    with pytest.raises(InvalidArgumentError, match="rank 0 of a simulation that has ended made"):
        simulate(fn, 2)
