"""What streams on CUDA ask of the driver; the driver itself is tested in ``tests/gpu``."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import pytest
import torch
from triton import compile as compile_kernel

from tests.primitives.compile_targets import source_of, target_of
from triton_dist.errors import InvalidArgumentError
from triton_dist.runtime.cuda import stream_waits, streams
from triton_dist.runtime.streams import Wait, Write

STREAM = SimpleNamespace(cuda_stream=42)


@pytest.fixture
def calls(monkeypatch):
    """The driver's calls, noted instead of made."""
    noted: list[tuple] = []
    monkeypatch.setattr(streams.driver, "call", lambda *call: noted.append(call))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: noted.append(("record_stream", tensor.data_ptr())))
    return noted


@pytest.fixture
def machine():
    heap = SimpleNamespace(check_alive=lambda tensor, what: None)
    return streams.CudaStreams(SimpleNamespace(device=torch.device("cuda", 0), heap=heap, bounded=False))


@pytest.mark.parametrize(
    ("dtype", "value", "sent"),
    [(torch.int32, 7, 7), (torch.int32, -1, (1 << 32) - 1), (torch.int64, -1, (1 << 64) - 1), (torch.int64, 1 << 40, 1 << 40)],
)
def test_words_are_written_and_awaited_by_width(machine, calls, dtype, value, sent):
    word = torch.zeros(4, dtype=dtype)[2]
    bits = torch.iinfo(dtype).bits
    machine.write_value(word, value, STREAM)
    machine.wait_value(word, value, "ge", STREAM)
    machine.wait_value(word, value, "eq", STREAM)
    assert calls == [
        (f"cuStreamWriteValue{bits}", 42, word.data_ptr(), sent, 0),
        (f"cuStreamWaitValue{bits}", 42, word.data_ptr(), sent, 0),
        (f"cuStreamWaitValue{bits}", 42, word.data_ptr(), sent, 1),
    ]


def test_waits_with_a_bound_are_kernels(machine, calls, monkeypatch):
    """In order with the writes before and behind them."""
    machine._world.bounded = True
    monkeypatch.setattr(stream_waits, "wait", lambda word, *what: calls.append(("wait", word.data_ptr(), *what)))
    monkeypatch.setattr(streams.driver, "call", lambda *call: calls.append((call[0], call[2])))
    kinds = SimpleNamespace(CU_STREAM_MEM_OP_WRITE_VALUE_32=2)
    operation = lambda: SimpleNamespace(writeValue=SimpleNamespace())  # noqa: E731
    bindings = SimpleNamespace(CUstreamBatchMemOpType=kinds, CUstreamBatchMemOpParams=operation)
    monkeypatch.setattr(streams.driver, "bindings", lambda: bindings)
    words = torch.zeros(3, dtype=torch.int32)
    machine.wait_value(words[0], 2, "eq", STREAM)
    steps = [Write(words[0], 1), Write(words[1], 1), Wait(words[1], 1), Write(words[2], 0), Wait(words[2], 3, "eq"), Wait(words[0], 1)]
    machine.signal_batch(steps, STREAM)
    first, second, third = (word.data_ptr() for word in words)
    assert calls == [
        ("wait", first, 2, "eq", STREAM),
        ("cuStreamBatchMemOp", 2),
        ("wait", second, 1, "ge", STREAM),
        ("cuStreamBatchMemOp", 1),
        ("wait", third, 3, "eq", STREAM),
        ("wait", first, 1, "ge", STREAM),
    ]
    for refused in (lambda: machine.wait_value(words[0], 1, "lt", STREAM), lambda: machine.signal_batch([Wait(words[0], 1, "lt")], STREAM)):
        with pytest.raises(InvalidArgumentError, match="wait in a kernel"):
            refused()


@pytest.mark.parametrize("comparison", ["ge", "eq"])
@pytest.mark.parametrize("bits", [32, 64])
def test_the_kernel_of_a_wait_acquires(bits, comparison):
    types = {"word": f"*i{bits}", "value": "i32"}
    source = source_of(stream_waits.stream_wait_kernel, types, {"COMPARISON": comparison}, ())
    ptx = compile_kernel(source, target=target_of(90), options={"num_warps": 1}).asm["ptx"]
    assert f"ld.acquire.sys.global.b{bits}" in ptx
    assert ".reqntid 32" in ptx


def test_other_comparisons_are_refused(machine, calls):
    with pytest.raises(InvalidArgumentError, match="'lt'; wait in a kernel"):
        machine.wait_value(torch.zeros(1, dtype=torch.int32), 1, "lt", STREAM)
    assert not calls


def test_contiguous_copies_go_to_the_copy_engine(machine, calls):
    source, destination = torch.arange(12.0).reshape(3, 4), torch.zeros(3, 4)
    machine.copy(destination[1:], source[1:], STREAM)
    at, of = destination.data_ptr() + 16, source.data_ptr() + 16
    assert calls == [("cuMemcpyAsync", at, of, 32, 42), ("record_stream", at), ("record_stream", of)]


@pytest.mark.parametrize("lazily", [torch._neg_view, torch.conj])
@pytest.mark.parametrize("of", ["source", "destination"])
def test_copies_of_lazy_views_are_kernels(machine, calls, monkeypatch, lazily, of):
    """The copy engine would move what their memory holds."""
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    source, destination = torch.full((3,), 1 + 2j), torch.zeros(3, dtype=torch.complex64)
    views = {"source": source, "destination": destination}
    views[of] = lazily(views[of])
    machine.copy(views["destination"], views["source"], STREAM)
    assert torch.equal(views["destination"], views["source"]) and torch.equal(destination, lazily(source))
    assert "cuMemcpyAsync" not in [call[0] for call in calls]


def test_streams_of_a_world_outlive_it(machine, calls, monkeypatch):
    """torch asks a stream that a tensor was recorded on when it frees the tensor; the next world takes them over."""
    numbers = itertools.count(1)
    monkeypatch.setattr(streams, "_idle", {})
    monkeypatch.setattr(streams.driver, "call", lambda *call: calls.append(call) or next(numbers))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device.index))
    assert {machine.new_own_stream(), machine.new_own_stream()} == {(1, 0), (2, 0)}
    machine.close()
    machine.close()
    assert {call[0] for call in calls} == {"cuStreamCreate"}
    other = streams.CudaStreams(SimpleNamespace(device=torch.device("cuda", 1), heap=None, bounded=False))
    assert other.new_own_stream() == (3, 1), "of another GPU"
    again = streams.CudaStreams(machine._world)
    assert sorted(again.new_own_stream() for _ in range(3)) == [(1, 0), (2, 0), (4, 0)]


def test_nothing_is_copied_of_nothing(machine, calls):
    machine.copy(torch.zeros(0), torch.zeros(0), STREAM)
    assert [call[0] for call in calls] == ["record_stream"] * 2


def test_other_copies_are_kernels_on_that_stream(machine, calls, monkeypatch):
    entered = []

    class Use:
        def __init__(self, stream):
            entered.append(stream)

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            entered.append(None)

    monkeypatch.setattr(torch.cuda, "stream", Use)
    source, destination = torch.arange(12.0).reshape(3, 4), torch.zeros(3, 4)
    machine.copy(destination[:, 1:3], source[:, 1:3], STREAM)
    assert entered == [STREAM, None] and torch.equal(destination[:, 1:3], source[:, 1:3]) and destination[:, 0].sum() == 0
    assert "cuMemcpyAsync" not in [call[0] for call in calls]
