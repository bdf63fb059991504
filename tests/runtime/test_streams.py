"""Streams, events, host signals and the copy engine of a rank.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

import gc

import pytest
import torch

from tests.worlds.world import meet
from triton_dist.errors import DeadlockError, InvalidArgumentError
from triton_dist.runtime import streams, symmetric
from triton_dist.runtime import world as runtime
from triton_dist.sim.simulate import simulate

SEEDS = range(4)


def test_device():
    assert simulate(streams.device, 2) == [torch.device("cpu")] * 2


def compare_streams() -> str:
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


def test_streams_are_values(world):
    assert world(compare_streams, 2)[1].endswith("of rank 1)")


def leave_by_error() -> bool:
    before = streams.current_stream()
    with pytest.raises(ZeroDivisionError), streams.stream(streams.Stream()):
        raise ZeroDivisionError
    return streams.current_stream() == before


def test_stream_is_left_after_an_error(world):
    assert world(leave_by_error, 1) == [True]


def wait_in_a_chain() -> list[float]:
    gate = symmetric.symm_zeros(1, torch.int32)
    producer, consumer, late = streams.Stream(), streams.Stream(), streams.Stream()
    x = (torch.zeros(4, device=streams.device()).fill_(1) + 1) * 2  # loads the kernels used below, before a stream waits
    producer.wait_stream(streams.current_stream())
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


@pytest.mark.parametrize("seed", SEEDS)
def test_wait_event_and_wait_stream(world, seed):
    assert world(wait_in_a_chain, 2, seed=seed) == [[8.0] * 4] * 2


def wait_for_nothing() -> bool:
    event = streams.Event()
    event.wait()
    event.synchronize()
    return event.query()


def test_events_before_any_record(world):
    assert world(wait_for_nothing, 1) == [True]


def ask_until_done() -> int:
    gate = symmetric.symm_zeros(1, torch.int32)
    streams.wait_value(gate, runtime.world_size(), "eq", streams.Stream())
    event = streams.Event()
    streams.write_value(symmetric.symm_peer(gate, (runtime.rank() + 1) % runtime.world_size()), runtime.world_size())
    event.record()
    asked = 0
    while not event.query():
        asked += 1
    while not streams.current_stream().query():
        asked += 1
    return asked


@pytest.mark.parametrize("world_size", [2, 3])
def test_query_lets_the_machine_move(world, world_size):
    world(ask_until_done, world_size)


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


def time_a_copy() -> float:
    first, last = streams.Event(enable_timing=True), streams.Event(enable_timing=True)
    first.record()
    streams.copy_async(torch.empty(1 << 20, device=streams.device()), torch.empty(1 << 20, device=streams.device()))
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def test_elapsed_time(world):
    for seed in SEEDS:
        (milliseconds,) = world(time_a_copy, 1, seed=seed)
        assert milliseconds > 0


def test_elapsed_time_of_what_was_not_recorded():
    def fn():
        with pytest.raises(InvalidArgumentError, match="recorded"):
            streams.Event().elapsed_time(streams.Event())

    simulate(fn, 1)


def signal_everyone(cmp: str, against: int, written: int, dtype: torch.dtype) -> list[int]:
    rank, size = runtime.rank(), runtime.world_size()
    words = symmetric.symm_zeros(size, dtype)
    arrived = torch.ones(size, device=streams.device())
    for source in range(size):
        arrived[source].fill_(0)  # loads the kernels that the next loop uses, one of them for odd addresses, before a stream waits
    for source in range(size):
        streams.wait_value(words[source], against, cmp)
        arrived[source].fill_(1)  # arrived[source] = 1 would wait for the stream
    for peer in range(size):
        streams.write_value(symmetric.symm_peer(words, peer)[rank], written, streams.Stream())
    assert arrived.tolist() == [1.0] * size
    return words.tolist()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize(("cmp", "against", "written"), [("eq", 3, 3), ("eq", -5, -5), ("ge", 3, 3), ("ge", 1, 5)])
def test_signals_between_ranks(world, cmp, against, written, world_size, dtype):
    """Where the machine is CUDA these are the comparisons that a stream can make."""
    assert world(signal_everyone, world_size, args=(cmp, against, written, dtype)) == [[written] * world_size] * world_size


COMPARISONS = {"ne": (0, 3), "gt": (2, 3), "lt": (0, -1), "le": (-1, -1)}
"""Comparisons that a CUDA stream can't make: the value waited against, and one that fulfils it; the word starts at 0."""


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("cmp", COMPARISONS)
def test_comparisons_of_the_simulator(cmp, dtype):
    against, written = COMPARISONS[cmp]
    assert simulate(signal_everyone, 3, args=(cmp, against, written, dtype)) == [[written] * 3] * 3


def wait_for_words_of_peers() -> list[int]:
    """Every rank sets its own word only; its streams wait for the words where they are, in the memory of the others."""
    word = symmetric.symm_zeros(1, torch.int64)
    side = streams.Stream()
    for peer in range(runtime.world_size()):
        streams.wait_value(symmetric.symm_peer(word, peer), peer + 1, "eq", side)
    streams.write_value(word, runtime.rank() + 1)
    side.synchronize()
    meet()
    return word.tolist()


@pytest.mark.parametrize("world_size", [2, 3])
def test_waiting_for_a_word_of_a_peer(world, world_size):
    assert world(wait_for_words_of_peers, world_size) == [[rank + 1] for rank in range(world_size)]


def wait_for_less() -> None:
    word = symmetric.symm_zeros(1, torch.int32)
    streams.write_value(word, 5)
    streams.wait_value(word, 4)
    streams.synchronize()


def test_default_comparison_is_at_least(world):
    world(wait_for_less, 1)


def copy_and_signal() -> float:
    data, word = symmetric.symm_zeros(1000), symmetric.symm_zeros(1, torch.int64)
    right = (runtime.rank() + 1) % runtime.world_size()
    source = torch.full((1000,), runtime.rank() + 1.0, device=streams.device())
    streams.copy_async(symmetric.symm_peer(data, right), source)
    streams.write_value(symmetric.symm_peer(word, right), 1)
    with streams.stream(streams.Stream()):
        streams.wait_value(word, 1)
        return data.sum().item()


@pytest.mark.parametrize("world_size", [2, 3])
def test_signal_orders_earlier_work(world, world_size):
    """Whoever sees the signal sees what its stream did before."""
    expected = [1000.0 * ((rank - 1) % world_size + 1) for rank in range(world_size)]
    for seed in SEEDS:
        assert world(copy_and_signal, world_size, seed=seed) == expected


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
        (lambda t: streams.write_value(t[0], 1 << 31), "can hold"),
        (lambda t: streams.wait_value(t[0], -(1 << 31) - 1), "can hold"),
        (lambda t: streams.write_value(t[0], 1.5), "must be an integer"),
    ],
)
def test_bad_signals(call, text):
    with pytest.raises(InvalidArgumentError, match=text):
        simulate(lambda: call(torch.zeros(2, dtype=torch.int32)), 1)


def copy_and_drop() -> tuple[float, list[float]]:
    device = streams.device()
    source = torch.arange(100_000, dtype=torch.float32, device=device) + runtime.rank()
    inbox = symmetric.symm_zeros(100_000)
    plain, strided = torch.zeros(100_000, device=device), torch.zeros(100, 2, device=device)
    copier = streams.Stream()
    copier.wait_stream(streams.current_stream())
    streams.copy_async(symmetric.symm_peer(inbox, runtime.rank()), source, copier)
    streams.copy_async(plain, inbox, copier)
    streams.copy_async(strided[:, 1], source[:100], copier)
    source = None
    gc.collect()
    copier.synchronize()
    return plain[-1].item(), strided[3].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_copy_async(world, seed):
    assert world(copy_and_drop, 2, seed=seed) == [(99_999.0, [0.0, 3.0]), (100_000.0, [0.0, 4.0])]


def put_and_get() -> tuple[list[float], list[float]]:
    """Contiguous tensors and slices that are not, to and from the next rank."""
    device, rank = streams.device(), runtime.rank()
    after = (rank + 1) % runtime.world_size()
    grid = symmetric.symm_zeros((8, 8), torch.float32)
    own = torch.full((8, 8), rank + 1.0, device=device)
    meet()
    streams.copy_async(symmetric.symm_peer(grid, after)[:4], own[:4])
    streams.copy_async(symmetric.symm_peer(grid, after)[4:, 2:4], own[4:, 2:4])
    streams.synchronize()
    meet()
    got, part = torch.zeros(8, 8, device=device), torch.zeros(4, 2, device=device)
    streams.copy_async(got, symmetric.symm_peer(grid, after))
    streams.copy_async(part, symmetric.symm_peer(grid, after)[4:, 2:4])
    streams.synchronize()
    meet()
    return grid[:, 2].tolist() + grid[4:, 5].tolist(), got[:, 2].tolist() + part[:, 1].tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_copies_to_and_from_peers(world, world_size):
    results = world(put_and_get, world_size)
    for rank, (grid, got) in enumerate(results):
        assert grid == [(rank - 1) % world_size + 1.0] * 8 + [0.0] * 4
        assert got == [rank + 1.0] * 12


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
        made.setdefault(runtime.rank(), (streams.Stream(), streams.Event()))
        symmetric.symm_zeros(1)
        if runtime.rank() == 1:
            use(*made[0])

    with pytest.raises(InvalidArgumentError, match="rank 1 uses a stream or event that rank 0 made; they belong to one rank"):
        simulate(fn, 2)
    with pytest.raises(InvalidArgumentError, match="rank 0 of a simulation that has ended made"):
        simulate(fn, 2)
