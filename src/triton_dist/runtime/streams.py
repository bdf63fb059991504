"""Streams, events and signals set or awaited by the host: neutral names that mean the same on every kind of machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from ..errors import InvalidArgumentError
from .world import World, require_world

COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
"""What ``wait_value`` can wait for."""


def device() -> torch.device:
    """The device whose tensors this rank's kernels take: its GPU, or ``cpu`` in the simulator (under ``triton-dist run`` "cuda")."""
    world = require_world("device()")
    return getattr(world, "shown_device", None) or world.device


class Event:
    """A point in a stream, recorded by ``record`` and waited for by other streams or the host.

    Waiting for an event that was never recorded returns at once, as on CUDA. In the simulator every event keeps its time.
    """

    def __init__(self, enable_timing: bool = True) -> None:
        self._world = require_world("Event()")
        self._event = self._world.streams.new_event(enable_timing)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the end of the work queued so far on ``stream`` (default: the current stream)."""
        world = _owner("Event.record()", self._world)
        world.streams.record(self._event, _handle(world, stream))

    def wait(self, stream: Stream | None = None) -> None:
        """Make work queued on ``stream`` (default: the current stream) from now on wait for the event."""
        world = _owner("Event.wait()", self._world)
        world.streams.wait(self._event, _handle(world, stream))

    def query(self) -> bool:
        """Whether the work before the event has finished."""
        return not _owner("Event.query()", self._world).streams.event_busy(self._event, "Event.query()")

    def synchronize(self) -> None:
        """Make the host wait for the event."""
        _owner("Event.synchronize()", self._world).streams.event_synchronize(self._event)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to ``end``, both recorded and finished; simulated time in the simulator."""
        return self._world.streams.elapsed_time(self._event, end._event)


class Stream:
    """A queue of device work of this rank: in order inside the stream, concurrent with other streams.

    On GPUs it is one of torch's 32 of its priority, which come round: the 33rd is the first again.
    priority: as on CUDA; the simulator treats all streams alike. handle: the machine's own stream: a ``torch.cuda.Stream``, or
    its number in the simulator.
    """

    def __init__(self, priority: int = 0, *, _world: World | None = None, _handle: Any = None) -> None:
        self._world = _world or require_world("Stream()")
        self.handle = self._world.streams.new_stream(priority) if _handle is None else _handle

    def __repr__(self) -> str:
        return f"Stream({self._key} of rank {self._world.rank})"

    @property
    def _key(self) -> Any:
        return self._world.streams.key(self.handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (other._world, other._key) == (self._world, self._key)

    def __hash__(self) -> int:
        return hash((id(self._world), self._key))

    def __enter__(self) -> Self:
        entered = contextlib.ExitStack()
        entered.enter_context(_owner("with Stream", self._world).streams.use(self.handle))
        self._entered = [*getattr(self, "_entered", ()), entered]
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.pop().close()

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
        return not _owner("Stream.query()", self._world).streams.busy(self.handle, "Stream.query()")

    def synchronize(self) -> None:
        """Make the host wait until everything queued on this stream has finished."""
        _owner("Stream.synchronize()", self._world).streams.synchronize(self.handle, "Stream.synchronize()")


def current_stream() -> Stream:
    """The stream that launches and torch operators of this rank go to now."""
    world = require_world("current_stream()")
    return Stream(_world=world, _handle=world.streams.current())


def own_stream() -> Stream:
    """A stream that no other call returns, so that what waits on it holds nobody else up; it lives as long as the world."""
    world = require_world("own_stream()")
    return Stream(_world=world, _handle=world.streams.new_own_stream())


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
    world = _signal_world("write_value", target, value)
    world.streams.write_value(target, value, _handle(world, stream))


def wait_value(target: torch.Tensor, value: int, cmp: str = "ge", stream: Stream | None = None) -> None:
    """Make work queued on ``stream`` from now on wait until the signal word ``target`` compares to ``value``. The host goes on.

    target: as for ``write_value``. cmp: "ge" (the default, as CUDA's stream waits) or "eq"; in the simulator "ne", "gt", "lt", "le", too.
    """
    if cmp not in COMPARISONS:
        raise InvalidArgumentError(f"wait_value: cmp={cmp!r} is not one of {COMPARISONS}")
    world = _signal_world("wait_value", target, value)
    world.streams.wait_value(target, value, cmp, _handle(world, stream))


@dataclass(frozen=True)
class Write:
    """Store ``value`` into the signal word ``target``; see ``write_value``."""

    target: torch.Tensor
    value: int


@dataclass(frozen=True)
class Wait:
    """Wait until the signal word ``target`` compares to ``value``; see ``wait_value``."""

    target: torch.Tensor
    value: int
    cmp: str = "ge"


def signal_batch(steps: Sequence[Write | Wait], stream: Stream | None = None) -> None:
    """Several ``write_value`` and ``wait_value``, in order; on GPUs one operation of the stream, which is quicker."""
    if not steps:
        return
    world = require_world("signal_batch")
    for step in steps:
        _signal_world("signal_batch", step.target, step.value)
    world.streams.signal_batch(steps, _handle(world, stream))


def copy_async(destination: torch.Tensor, source: torch.Tensor, stream: Stream | None = None) -> None:
    """Copy ``source`` to ``destination`` by the copy engine, in stream order; the host goes on.

    Both have the same shape and dtype; either may lie in a peer's symmetric memory (``symm_peer``). The bytes land in pieces and
    in no given order before the copy is done. Tensors that are not contiguous, or lazily negated or conjugated, are
    copied by a kernel instead.
    """
    world = require_world("copy_async")
    if destination.shape != source.shape or destination.dtype != source.dtype:
        raise InvalidArgumentError(
            f"copy_async: destination is {destination.dtype} {list(destination.shape)} but source is {source.dtype} {list(source.shape)}; "
            "give both the same dtype and shape"
        )
    world.streams.copy(destination, source, _handle(world, stream))


def _handle(world: World, stream: Stream | None) -> Any:
    if stream is None:
        return world.streams.current()
    _owner("stream=", stream._world)
    return stream.handle


def _owner(what: str, owner: World) -> World:
    """The rank that runs here, which has to be ``owner``, the one that made the stream or event in question."""
    world = require_world(what)
    if world is not owner:
        ended = "" if getattr(world, "simulation", None) is getattr(owner, "simulation", None) else " of a simulation that has ended"
        raise InvalidArgumentError(
            f"{what}: rank {world.rank} uses a stream or event that rank {owner.rank}{ended} made; they belong to one rank, so make them "
            "in the function that simulate runs"
        )
    return world


def _signal_world(what: str, target: torch.Tensor, value: int) -> World:
    """The world, once it is clear that ``target`` is a signal word and that ``value`` fits into it."""
    world = require_world(what)
    if not isinstance(target, torch.Tensor) or target.numel() != 1:
        raise InvalidArgumentError(f"{what}: target must be one element of a tensor, such as flags[3], not {target!r}")
    bits = target.element_size() * 8
    if target.dtype.is_floating_point or target.dtype == torch.bool or bits not in (32, 64):
        raise InvalidArgumentError(f"{what}: a signal word has a 32- or 64-bit integer dtype, not {target.dtype}")
    limits = torch.iinfo(target.dtype)
    if not isinstance(value, int) or not limits.min <= value <= limits.max:
        raise InvalidArgumentError(f"{what}: value={value!r} must be an integer that a word of {target.dtype} can hold")
    return world
