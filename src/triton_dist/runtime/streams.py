"""Streams, events and signals set or awaited by the host: neutral names that mean the same on every kind of machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import torch

from ..errors import InvalidArgumentError
from .world import require_world

if TYPE_CHECKING:
    from ..sim.context import RankContext

COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
"""What ``wait_value`` can wait for."""


def device() -> torch.device:
    """The device whose tensors this rank's kernels take: ``cpu`` in the simulator."""
    require_world("device()")
    return torch.device("cpu")


class Event:
    """A point in a stream, recorded by ``record`` and waited for by other streams or the host.

    Waiting for an event that was never recorded returns at once, as on CUDA. Every event keeps its time.
    """

    def __init__(self, enable_timing: bool = True) -> None:
        from ..sim.work import DeviceEvent

        self._context = require_world("Event()")
        self._event = DeviceEvent()

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of the work queued so far on ``stream`` (default: the current stream)."""
        from ..sim.work import RecordEvent

        context = _owner("Event.record()", self._context)
        context.submit(RecordEvent(self._event), stream=_id(stream))

    def wait(self, stream: Stream | None = None) -> None:
        """Make work queued on ``stream`` (default: the current stream) from now on wait for the event."""
        from ..sim.work import WaitEvent

        context = _owner("Event.wait()", self._context)
        context.submit(WaitEvent(self._event), stream=_id(stream))

    def query(self) -> bool:
        """Whether the work before the event has finished."""
        _owner("Event.query()", self._context)
        if not self._event.done:
            self._context.poll("Event.query()")
        return self._event.done

    def synchronize(self) -> None:
        """Make the host wait for the event."""
        _owner("Event.synchronize()", self._context)
        if not self._event.done:
            event = self._event
            self._context.block("Event.synchronize()", lambda: event.done)

    def elapsed_time(self, end: Event) -> float:
        """Simulated time from this event to ``end``, both recorded and finished; in milliseconds, as on CUDA."""
        first, last = self._event.recorded, end._event.recorded
        if first is None or last is None or not (first.done and last.done):
            raise InvalidArgumentError("elapsed_time needs two events that were recorded and have finished; synchronize() on the later one")
        return (last.end - first.end) / 1e6


class Stream:
    """A queue of device work of this rank: in order inside the stream, concurrent with other streams.

    priority: accepted as on CUDA; the simulator treats all streams alike.
    """

    def __init__(self, priority: int = 0, *, _context: RankContext | None = None, _id: int | None = None) -> None:
        self._context = _context or require_world("Stream()")
        self.stream_id = self._context.machine.new_stream(self._context.rank) if _id is None else _id

    def __repr__(self) -> str:
        return f"Stream({self.stream_id} of rank {self._context.rank})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (other._context, other.stream_id) == (self._context, self.stream_id)

    def __hash__(self) -> int:
        return hash((id(self._context), self.stream_id))

    def __enter__(self) -> Self:
        _owner("with Stream", self._context)
        self._entered = [*getattr(self, "_entered", ()), self._context.stream]
        self._context.stream = self.stream_id
        return self

    def __exit__(self, *exception: object) -> None:
        self._context.stream = self._entered.pop()

    def wait_event(self, event: Event) -> None:
        """Make work queued on this stream from now on wait for ``event``."""
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Make work queued on this stream from now on wait for everything queued on ``other`` so far."""
        self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record ``event`` (default: a new one) on this stream and return it."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether everything queued on this stream has finished."""
        _owner("Stream.query()", self._context)
        if self._context.busy(self.stream_id):
            self._context.poll(f"Stream.query() on stream {self.stream_id}")
        return not self._context.busy(self.stream_id)

    def synchronize(self) -> None:
        """Make the host wait until everything queued on this stream has finished."""
        _owner("Stream.synchronize()", self._context).synchronize(self.stream_id, "Stream.synchronize()")


def current_stream() -> Stream:
    """The stream that launches and torch operators of this rank go to now."""
    context = require_world("current_stream()")
    return Stream(_context=context, _id=context.stream)


@contextlib.contextmanager
def stream(target: Stream | None) -> Iterator[Stream | None]:
    """Make ``target`` the current stream inside the ``with`` block; None changes nothing."""
    if target is None:
        yield None
        return
    with target:
        yield target


def synchronize() -> None:
    """Make the host wait until everything queued on every stream of this rank has finished."""
    require_world("synchronize()").synchronize()


def write_value(target: torch.Tensor, value: int, stream: Stream | None = None) -> None:
    """Store ``value`` into the signal word ``target`` in stream order: work queued before is visible to whoever sees it.

    target: one element (such as ``flags[3]``) of a 32- or 64-bit integer dtype, in this rank's memory or a peer's.
    """
    from ..sim.work import WriteValue

    context, address, bits = _signal_word("write_value", target)
    context.submit(WriteValue(address, value, bits), stream=_id(stream), keep=target)


def wait_value(target: torch.Tensor, value: int, cmp: str = "ge", stream: Stream | None = None) -> None:
    """Make work queued on ``stream`` from now on wait until the signal word ``target`` compares to ``value``. The host goes on.

    target: as for ``write_value``. cmp: "ge" (the default, as CUDA's stream waits), "eq", "ne", "gt", "lt", "le".
    """
    from ..sim.work import WaitValue

    if cmp not in COMPARISONS:
        raise InvalidArgumentError(f"wait_value: cmp={cmp!r} is not one of {COMPARISONS}")
    context, address, bits = _signal_word("wait_value", target)
    context.submit(WaitValue(address, value, cmp, bits), stream=_id(stream), keep=target)


def copy_async(destination: torch.Tensor, source: torch.Tensor, stream: Stream | None = None) -> None:
    """Copy ``source`` to ``destination`` by the copy engine, in stream order; the host goes on.

    Both have the same shape and dtype; either may lie in a peer's symmetric memory (``symm_peer``). The bytes land in pieces and
    in no given order before the copy is done. Tensors that are not contiguous are copied by a kernel instead.
    """
    from ..sim.torch_mode import queue_copy
    from ..sim.work import TorchCall

    context = require_world("copy_async")
    if destination.shape != source.shape or destination.dtype != source.dtype:
        raise InvalidArgumentError(
            f"copy_async: destination is {destination.dtype} {list(destination.shape)} but source is {source.dtype} {list(source.shape)}; "
            "give both the same dtype and shape"
        )
    if destination.is_contiguous() and source.is_contiguous():
        queue_copy(context, destination, source, _id(stream))
    else:
        work = TorchCall(lambda: destination.copy_(source), "copy_async")
        context.submit(work, stream=_id(stream), keep=(destination, source))


def _id(stream: Stream | None) -> int | None:
    if stream is None:
        return None
    _owner("stream=", stream._context)
    return stream.stream_id


def _owner(what: str, owner: RankContext) -> RankContext:
    """The rank that runs here, which has to be ``owner``, the one that made the stream or event in question."""
    context = require_world(what)
    if context is not owner:
        ended = "" if context.simulation is owner.simulation else " of a simulation that has ended"
        raise InvalidArgumentError(
            f"{what}: rank {context.rank} uses a stream or event that rank {owner.rank}{ended} made; they belong to one rank, so make them "
            "in the function that simulate runs"
        )
    return context


def _signal_word(what: str, target: torch.Tensor) -> tuple[Any, int, int]:
    context = require_world(what)
    if not isinstance(target, torch.Tensor) or target.numel() != 1:
        raise InvalidArgumentError(f"{what}: target must be one element of a tensor, such as flags[3], not {target!r}")
    bits = target.element_size() * 8
    if target.dtype.is_floating_point or target.dtype == torch.bool or bits not in (32, 64):
        raise InvalidArgumentError(f"{what}: a signal word has a 32- or 64-bit integer dtype, not {target.dtype}")
    from ..sim.torch_mode import register

    register(context, target)
    return context, target.data_ptr(), bits
