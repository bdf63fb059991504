"""``torch.cuda.Stream``, ``torch.cuda.Event`` and their kin on the streams of a simulated rank."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import torch

from ...errors import InvalidArgumentError, UnsupportedOperationError
from ...runtime.foreign_streams import stream_handle
from .. import context
from ..context import RankContext
from ..work import DeviceEvent
from .tensors import DeviceMode

_NO_IPC = "events are not shared between processes on the simulator, whose ranks are one; let the ranks meet in a barrier"


def here(what: str) -> RankContext:
    """The simulated rank whose script runs in this thread. Raises InvalidArgumentError in a thread that the script started."""
    rank = context.current()
    if rank is None:
        raise InvalidArgumentError(
            f"{what} was called in a thread that is no rank's: threads that a script starts are none; under triton-dist run call CUDA from "
            "the thread that runs the script"
        )
    return rank


def cuda_device(rank: RankContext) -> torch.device:
    """The rank's GPU as its script names it."""
    return torch.device("cuda", rank.local_rank)


def device_index(device: Any) -> int:
    """The index of a device given as torch.cuda takes it; -1 for the current one. Raises InvalidArgumentError for one that is no GPU."""
    if device is None:
        return -1
    device = DeviceMode.named_device(device)
    if device.type != "cuda":
        raise InvalidArgumentError(f"expected a CUDA device, not {device}")
    return -1 if device.index is None else device.index


def _check_own(device: Any, what: str) -> RankContext:
    """The rank, if ``device`` is its GPU. Raises InvalidArgumentError for any other."""
    rank = here(what)
    if device_index(device) not in (-1, rank.local_rank):
        raise InvalidArgumentError(f"{what} on {device!r}: simulated rank {rank.rank} has the GPU {cuda_device(rank)} only; use that")
    return rank


def handle_of(stream: Any, what: str) -> int:
    """The machine's number of a stream: of ours, torch's name for it, a driver handle, or anything with ``__cuda_stream__``.

    Raises InvalidArgumentError if this rank has no such stream.
    """
    rank = here(what)
    if stream is None:
        return rank.stream
    number = stream_handle(stream, what)
    if not 0 <= number < len(rank.machine.streams_of(rank.rank)):
        raise InvalidArgumentError(f"{what}: rank {rank.rank} has no stream with the handle {number:#x}")
    return number


class Stream:
    """``torch.cuda.Stream``, also ``torch.Stream``: the handle is the number of a stream of this rank; 0 is the default stream."""

    device_type = 1
    device_index: int

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **_same_stream: Any) -> None:
        rank = _check_own(device, "torch.cuda.Stream()")
        self.priority = priority
        self.device = cuda_device(rank)
        self.device_index = rank.local_rank
        self.stream_id = rank.streams.new_stream(priority) if stream_id is None else stream_id

    @property
    def cuda_stream(self) -> int:
        """The handle that the driver API takes."""
        return self.stream_id

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest priority, as an H100 has them."""
        return 0, -5

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (other.stream_id, other.device_index) == (self.stream_id, self.device_index)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x}>"

    def __enter__(self) -> Self:
        using = StreamContext(self)
        using.__enter__()
        self._entered = [*getattr(self, "_entered", ()), using]
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.pop().__exit__(*exception)

    def query(self) -> bool:
        """Whether everything queued on the stream has finished."""
        return not here("Stream.query()").streams.busy(self.stream_id, "Stream.query()")

    def synchronize(self) -> None:
        """Make the host wait for everything queued on the stream."""
        here("Stream.synchronize()").synchronize(self.stream_id, "torch.cuda.Stream.synchronize()")

    def wait_event(self, event: AnyEvent) -> None:
        """Make later work of the stream wait for ``event``."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Make later work of this stream wait for everything queued on ``stream`` so far."""
        event = Event()
        event.record(stream)
        event.wait(self)

    def record_event(self, event: AnyEvent | None = None) -> AnyEvent:
        """Record ``event`` (default: a new one) on this stream and return it."""
        event = event if event is not None else Event()
        event.record(self)
        return event


class ExternalStream(Stream):
    """``torch.cuda.ExternalStream``: the stream of a driver handle."""

    def __init__(self, stream_ptr: int, device: Any = None, **_options: Any) -> None:
        super().__init__(stream_id=handle_of(stream_ptr, "torch.cuda.ExternalStream"))


class StreamContext:
    """``torch.cuda.stream(stream)``: makes it the current stream inside the ``with`` block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> Stream | None:
        self._entered = contextlib.ExitStack()
        if self.stream is not None:
            self._entered.enter_context(here("torch.cuda.stream").streams.use(handle_of(self.stream, "torch.cuda.stream")))
        return self.stream

    def __exit__(self, *exception: object) -> None:
        self._entered.close()


class AnyEvent:
    """``torch.Event``: ``elapsed_time`` is simulated time."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        rank = _check_own(device, "torch.Event()")
        self.device = cuda_device(rank)
        self._event = DeviceEvent()
        self._timed = enable_timing

    @property
    def cuda_event(self) -> int:
        """Something that names the event; 0 before it is recorded."""
        return 0 if self._event.recorded is None else id(self._event)

    def record(self, stream: Any = None) -> None:
        """Mark the end of the work queued so far on ``stream`` (default: the current one)."""
        here("Event.record()").streams.record(self._event, handle_of(stream, "Event.record"))

    def wait(self, stream: Any = None) -> None:
        """Make later work of ``stream`` (default: the current one) wait for the event."""
        here("Event.wait()").streams.wait(self._event, handle_of(stream, "Event.wait"))

    def query(self) -> bool:
        """Whether the work before the event has finished."""
        return not here("Event.query()").streams.event_busy(self._event, "torch.cuda.Event.query()")

    def synchronize(self) -> None:
        """Make the host wait for the event."""
        here("Event.synchronize()").streams.event_synchronize(self._event)

    def elapsed_time(self, end_event: AnyEvent) -> float:
        """Simulated milliseconds from this event to ``end_event``. Raises InvalidArgumentError as torch raises for untimed events."""
        if not (self._timed and end_event._timed):
            raise InvalidArgumentError("elapsed_time: both events must be made with enable_timing=True")
        return here("Event.elapsed_time()").streams.elapsed_time(self._event, end_event._event)

    def ipc_handle(self) -> bytes:
        """Raises UnsupportedOperationError: the ranks share one process."""
        raise UnsupportedOperationError(f"Event.ipc_handle: {_NO_IPC}")

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> AnyEvent:
        """Raises UnsupportedOperationError as ``ipc_handle`` does."""
        raise UnsupportedOperationError(f"Event.from_ipc_handle: {_NO_IPC}")


class Event(AnyEvent):
    """``torch.cuda.Event``, whose arguments are in another order."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        super().__init__(enable_timing=enable_timing)


def current_stream(device: Any = None) -> Stream:
    """``torch.cuda.current_stream``."""
    return Stream(stream_id=here("torch.cuda.current_stream()").stream)


def default_stream(device: Any = None) -> Stream:
    """``torch.cuda.default_stream``."""
    return Stream(stream_id=0)


def set_stream(stream: Stream | None) -> None:
    """``torch.cuda.set_stream``."""
    if stream is not None:
        here("torch.cuda.set_stream()").stream = handle_of(stream, "torch.cuda.set_stream")


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """``torch.cuda.get_stream_from_external``."""
    return ExternalStream(data_ptr)


class device(contextlib.ContextDecorator):  # noqa: N801  (torch's name)
    """``torch.cuda.device(...)`` and ``device_of``: there is one GPU, so it changes nothing."""

    def __init__(self, device: Any = None) -> None:
        """``device``: anything that torch takes there."""

    def __enter__(self) -> None:
        """Nothing to choose."""

    def __exit__(self, *exception: object) -> None:
        """Nothing to put back."""


def current_raw_stream(device: int = -1) -> int:
    """``torch._C._cuda_getCurrentRawStream``: the handle of the current stream."""
    return here("torch._C._cuda_getCurrentRawStream()").stream


def record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """``torch.Tensor.record_stream``: nothing to do, queued work keeps the tensors alive that it uses. The stream must be one.

    In torch's place, whose parser takes no stream but its own.
    """
    if stream is None:
        raise InvalidArgumentError("Tensor.record_stream(None): pass the stream that uses the tensor, such as torch.cuda.current_stream()")
    handle_of(stream, "Tensor.record_stream")
