"""Streams, events and signals of the host on the simulator; what ``runtime.streams`` asks of every kind of machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from ..errors import InvalidArgumentError
from ..runtime.lazy_views import is_plain
from ..runtime.streams import Wait, Write
from .torch_accesses import accesses_of
from .torch_mode import queue_copy, register
from .work import DeviceEvent, RecordEvent, TorchCall, WaitEvent, WaitValue, WriteValue

if TYPE_CHECKING:
    from .context import RankContext


class SimStreams:
    """The streams of one rank. A stream is its number on the machine, an event a DeviceEvent."""

    def __init__(self, context: RankContext) -> None:
        self._context = context

    @property
    def capturing(self) -> bool:
        """Whether a CUDA graph of a script under ``triton-dist run`` records what is queued on the current stream now."""
        return self._context.capture is not None and self._context.capture.takes(self._context.stream)

    def new_stream(self, priority: int) -> int:
        return self._context.machine.new_stream(self._context.rank)

    def new_own_stream(self) -> int:
        return self.new_stream(0)

    def current(self) -> int:
        return self._context.stream

    @contextlib.contextmanager
    def use(self, stream: int) -> Iterator[None]:
        before, self._context.stream = self._context.stream, stream
        try:
            yield
        finally:
            self._context.stream = before

    def key(self, stream: int) -> int:
        return stream

    def busy(self, stream: int, what: str) -> bool:
        if self._context.busy(stream):
            self._context.poll(f"{what} on stream {stream}")
        busy, races = self._context.busy(stream), self._context.machine.races
        if not busy and races is not None:
            races.host_waited(self._context.rank, stream)
        return busy

    def synchronize(self, stream: int | None, what: str) -> None:
        self._context.synchronize(stream, what)

    def new_event(self, enable_timing: bool) -> DeviceEvent:
        return DeviceEvent()

    def record(self, event: DeviceEvent, stream: int) -> None:
        self._context.submit(RecordEvent(event), stream=stream)

    def wait(self, event: DeviceEvent, stream: int) -> None:
        self._context.submit(WaitEvent(event), stream=stream)

    def event_busy(self, event: DeviceEvent, what: str) -> bool:
        if not event.done:
            self._context.poll(what)
        if event.done:
            self._learn(event)
        return not event.done

    def _learn(self, event: DeviceEvent) -> None:
        """The host has seen that an event has happened."""
        races = self._context.machine.races
        if races is not None and event.recorded is not None and event.recorded.reached is not None:
            races.host(self._context.rank).learn(event.recorded.reached)

    def event_synchronize(self, event: DeviceEvent) -> None:
        if not event.done:
            self._context.block("Event.synchronize()", lambda: event.done)
        self._learn(event)
        if event.recorded is not None:
            self._context.machine.host_waited(self._context.rank, event.recorded.end)

    def elapsed_time(self, begin: DeviceEvent, end: DeviceEvent) -> float:
        first, last = begin.recorded, end.recorded
        if first is None or last is None or not (first.done and last.done):
            raise InvalidArgumentError("elapsed_time needs two events that were recorded and have finished; synchronize() on the later one")
        return (last.end - first.end) / 1e6

    def write_value(self, target: torch.Tensor, value: int, stream: int) -> None:
        register(self._context, target)
        self._context.submit(WriteValue(target.data_ptr(), value, target.element_size() * 8), stream=stream, keep=target)

    def wait_value(self, target: torch.Tensor, value: int, compare: str, stream: int) -> None:
        register(self._context, target)
        self._context.submit(WaitValue(target.data_ptr(), value, compare, target.element_size() * 8), stream=stream, keep=target)

    def signal_batch(self, steps: Sequence[Write | Wait], stream: int) -> None:
        for step in steps:
            if isinstance(step, Wait):
                self.wait_value(step.target, step.value, step.cmp, stream)
            else:
                self.write_value(step.target, step.value, stream)

    def copy(self, destination: torch.Tensor, source: torch.Tensor, stream: int) -> None:
        if all(tensor.is_contiguous() and is_plain(tensor) for tensor in (destination, source)):
            queue_copy(self._context, destination, source, stream)
        else:
            accesses = accesses_of((source,), (destination,)) if self._context.machine.races is not None else ()
            work = TorchCall(lambda: destination.copy_(source), "copy_async", accesses=accesses)
            self._context.submit(work, stream=stream, keep=(destination, source))
