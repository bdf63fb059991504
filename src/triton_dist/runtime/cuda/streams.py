"""Streams, events and signals of the host on CUDA; what ``runtime.streams`` asks of every kind of machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...errors import InvalidArgumentError
from ..lazy_views import is_plain
from ..streams import Wait, Write
from . import driver

if TYPE_CHECKING:
    from .world import CudaWorld

_idle: dict[int, list[int]] = {}
"""Streams of worlds that have ended, by device. They are not destroyed: tensors that live on may be recorded on them, and torch asks
them when it frees these.
"""

_WAITS = {"ge": 0, "eq": 1}
"""Conditions that a stream can wait for, as the driver numbers them."""


class CudaStreams:
    """torch's streams and events, and the driver's stream writes and waits."""

    def __init__(self, world: CudaWorld) -> None:
        self._world = world
        self._own: list[int] = []

    def new_stream(self, priority: int) -> torch.cuda.Stream:
        return torch.cuda.Stream(self._world.device, priority=priority)

    def new_own_stream(self) -> torch.cuda.Stream:
        idle = _idle.get(self._world.device.index)
        non_blocking = 1
        self._own.append(idle.pop() if idle else int(driver.call("cuStreamCreate", non_blocking)))
        return torch.cuda.ExternalStream(self._own[-1], self._world.device)

    def close(self) -> None:
        """Leave what ``new_own_stream`` made to the next world; the device is idle."""
        _idle.setdefault(self._world.device.index, []).extend(self._own)
        self._own.clear()

    def current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._world.device)

    @contextlib.contextmanager
    def use(self, stream: torch.cuda.Stream) -> Iterator[None]:
        with torch.cuda.stream(stream):
            yield

    @property
    def capturing(self) -> bool:
        """Whether what is queued on the current stream goes into a CUDA graph now."""
        return torch.cuda.is_current_stream_capturing()

    def key(self, stream: torch.cuda.Stream) -> int:
        return stream.cuda_stream

    def busy(self, stream: torch.cuda.Stream, what: str) -> bool:
        return not stream.query()

    def synchronize(self, stream: torch.cuda.Stream | None, what: str) -> None:
        self._world.synchronize(stream, what)

    def new_event(self, enable_timing: bool) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=enable_timing)

    def record(self, event: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
        event.record(stream)

    def wait(self, event: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
        stream.wait_event(event)

    def event_busy(self, event: torch.cuda.Event, what: str) -> bool:
        return not event.query()

    def event_synchronize(self, event: torch.cuda.Event) -> None:
        event.synchronize()
        self._world.raise_failure()

    def elapsed_time(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end)

    def write_value(self, target: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
        self._world.heap.check_alive(target, "write_value")
        bits = target.element_size() * 8
        driver.call(f"cuStreamWriteValue{bits}", stream.cuda_stream, target.data_ptr(), value & ((1 << bits) - 1), 0)

    def wait_value(self, target: torch.Tensor, value: int, compare: str, stream: torch.cuda.Stream) -> None:
        self._world.heap.check_alive(target, "wait_value")
        if self._world.bounded:
            self._wait_by_kernel(target, value, compare, stream)
            return
        bits = target.element_size() * 8
        driver.call(f"cuStreamWaitValue{bits}", stream.cuda_stream, target.data_ptr(), value & ((1 << bits) - 1), _wait_flag(compare))

    def _wait_by_kernel(self, target: torch.Tensor, value: int, compare: str, stream: torch.cuda.Stream) -> None:
        from . import stream_waits  # a kernel: its package is not there yet when this module is

        _wait_flag(compare)  # the same are refused
        stream_waits.wait(target, value, compare, stream)

    def signal_batch(self, steps: Sequence[Write | Wait], stream: torch.cuda.Stream) -> None:
        kinds = driver.bindings().CUstreamBatchMemOpType
        operations: list[Any] = []

        def run_operations() -> None:
            if operations:
                driver.call("cuStreamBatchMemOp", stream.cuda_stream, len(operations), operations, 0)
                operations.clear()

        for step in steps:
            if isinstance(step, Wait) and self._world.bounded:
                run_operations()
                self._wait_by_kernel(step.target, step.value, step.cmp, stream)
                continue
            bits = step.target.element_size() * 8
            operation = driver.bindings().CUstreamBatchMemOpParams()
            waits = isinstance(step, Wait)
            part = operation.waitValue if waits else operation.writeValue
            part.operation = getattr(kinds, f"CU_STREAM_MEM_OP_{'WAIT' if waits else 'WRITE'}_VALUE_{bits}")
            part.address = step.target.data_ptr()
            setattr(part, "value" if bits == 32 else "value64", step.value & ((1 << bits) - 1))
            part.flags = _wait_flag(step.cmp) if isinstance(step, Wait) else 0
            operations.append(operation)
        run_operations()

    def copy(self, destination: torch.Tensor, source: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """By the copy engine where both are contiguous, else by torch's kernel."""
        for tensor in (destination, source):
            self._world.heap.check_alive(tensor, "copy_async")
        if all(tensor.is_contiguous() and is_plain(tensor) for tensor in (destination, source)):
            size: Any = source.numel() * source.element_size()
            if size:
                driver.call("cuMemcpyAsync", destination.data_ptr(), source.data_ptr(), size, stream.cuda_stream)
        else:
            with torch.cuda.stream(stream):
                destination.copy_(source, non_blocking=True)
        for tensor in (destination, source):
            tensor.record_stream(stream)


def _wait_flag(compare: str) -> int:
    if compare not in _WAITS:
        raise InvalidArgumentError(f"wait_value: a CUDA stream can wait for {sorted(_WAITS)} only, not {compare!r}; wait in a kernel")
    return _WAITS[compare]
