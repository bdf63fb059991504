"""CUDA graphs on the simulator: what is queued while a stream is captured is kept, and each replay queues it again."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

from ...errors import CaptureError, InvalidArgumentError, UnsupportedOperationError
from ..context import RankContext
from ..work import RecordEvent, WaitEvent, Work
from . import streams
from .streams import here


class Capture:
    """What one rank records: (stream, work or function that queues it anew), in the order of the calls.

    A stream takes part once it waits for an event that was recorded in the capture. ``records`` maps the ends of captured streams:
    every one of them must have been joined to the first stream when the capture ends.
    """

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.streams = {origin}
        self.steps: list[tuple[int, Work | Callable[[int], object]]] = []
        self.kept: list[Any] = []
        self._records: dict[int, int] = {}
        self._open: dict[int, int] = {}
        """For each side stream the number of its last step that nobody has waited for."""

    def takes(self, stream: int, work: Any = None) -> bool:
        """Whether what is queued on ``stream`` goes into the graph; a wait for a captured event brings its stream in."""
        if stream not in self.streams and isinstance(work, WaitEvent) and id(work.record) in self._records:
            self.streams.add(stream)
        return stream in self.streams

    def add(self, stream: int, work: Work | Callable[[int], object], keep: Any = None) -> None:
        """Record one step. Raises CaptureError for a wait for an event of work outside of the graph."""
        self.kept.append(keep)
        number = len(self.steps)
        if isinstance(work, RecordEvent):
            self._records[id(work)] = number
        elif isinstance(work, WaitEvent):
            if work.record is None or work.record.done:
                return
            if id(work.record) not in self._records:
                raise CaptureError(
                    "a captured stream waits for an event that was recorded outside of the capture; record it inside, or wait before it"
                )
            self._join(self._records[id(work.record)])
        self.steps.append((stream, work))
        if stream != self.origin:
            self._open[stream] = number

    def _join(self, number: int) -> None:
        stream = self.steps[number][0]
        if self._open.get(stream, -1) <= number:
            self._open.pop(stream, None)

    def check_joined(self) -> None:
        """Raises CaptureError for a side stream whose work the first stream does not wait for."""
        if self._open:
            raise CaptureError(
                f"the capture ends while stream(s) {sorted(self._open)} have captured work that nothing waits for; "
                "let the stream of the capture wait for them (wait_stream) before the end"
            )


class CUDAGraph:
    """``torch.cuda.CUDAGraph``. Random numbers that were drawn in the capture are the same in every replay."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._capture: Capture | None = None
        self._side_streams: dict[int, int] = {}
        self._recording = False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Record what is queued on the current stream from now on. Raises CaptureError in another capture or on the default stream."""
        rank = here("CUDAGraph.capture_begin()")
        if rank.capture is not None:
            raise CaptureError("a capture begins inside another one; end that first")
        if rank.stream == 0:
            raise CaptureError("the default stream can't be captured; make another stream the current one, as torch.cuda.graph does")
        if self._capture is not None:
            raise CaptureError("this CUDAGraph holds a graph already; reset() it or make a new one")
        rank.capture = self._capture = Capture(rank.stream)
        self._recording = True

    def capture_end(self) -> None:
        """End the recording. Raises CaptureError if work of other streams was not joined."""
        rank = here("CUDAGraph.capture_end()")
        if not self._recording or rank.capture is not self._capture or self._capture is None:
            raise CaptureError("capture_end() without a capture_begin() of the same graph")
        rank.capture = None
        self._recording = False
        capture = self._capture
        try:
            capture.check_joined()
        except CaptureError:
            self._capture = None
            raise
        self._side_streams = {stream: rank.streams.new_stream(0) for stream in sorted(capture.streams - {capture.origin})}

    def replay(self) -> None:
        """Queue the graph's work on the current stream. Raises CaptureError before a capture has ended or inside another one."""
        rank = here("CUDAGraph.replay()")
        if self._capture is None or self._recording:
            raise CaptureError("replay() of a CUDAGraph that holds no graph; capture something first")
        if rank.capture is not None:
            raise CaptureError("replay() inside a capture is not possible")
        places = {self._capture.origin: rank.stream, **self._side_streams}
        records: dict[int, RecordEvent] = {}
        for stream, step in self._capture.steps:
            _queue_again(rank, places[stream], step, records)

    def reset(self) -> None:
        """Forget the graph and what it keeps alive."""
        self._capture = None
        self._side_streams = {}

    def pool(self) -> tuple[int, int]:
        """A name of the graph's memory; memory is not pooled here."""
        return graph_pool_handle()

    def enable_debug_mode(self) -> None:
        """Nothing to enable."""

    def debug_dump(self, debug_path: str) -> None:
        """Raises UnsupportedOperationError: there is no graph of the driver to print."""
        raise UnsupportedOperationError(
            "CUDAGraph.debug_dump: the simulator's graphs are no graphs of the driver; triton-dist run --report shows what they ran"
        )

    def instantiate(self) -> None:
        """Nothing to make: ``replay`` needs no preparation."""


def _queue_again(rank: RankContext, stream: int, step: Work | Callable[[int], object], records: dict[int, RecordEvent]) -> None:
    """Queue one recorded step. records: for each captured record of an event, by identity, the one of this replay."""
    if not isinstance(step, Work):
        step(stream)
        return
    work = copy.copy(step)
    if isinstance(step, RecordEvent):
        assert isinstance(work, RecordEvent)
        work.waiters = []
        records[id(step)] = work
    elif isinstance(work, WaitEvent):
        work.record = records[id(work.record)]
    rank.machine.submit(rank.rank, stream, work)


class graph:  # noqa: N801  (torch's name)
    """``torch.cuda.graph(g)``: captures what the body queues, on a stream of its own."""

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global") -> None:
        if not isinstance(cuda_graph, CUDAGraph):
            raise InvalidArgumentError(f"torch.cuda.graph takes a torch.cuda.CUDAGraph, not {cuda_graph!r}")
        self.cuda_graph = cuda_graph
        self._stream = stream

    def __enter__(self) -> None:
        here("torch.cuda.graph").synchronize(why="torch.cuda.graph")
        self._entered = contextlib.ExitStack()
        self._entered.enter_context(streams.StreamContext(self._stream if self._stream is not None else streams.Stream()))
        self.cuda_graph.capture_begin()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        with self._entered:
            if error is None:
                self.cuda_graph.capture_end()
            else:
                here("torch.cuda.graph").capture = None
                self.cuda_graph._recording = False
                self.cuda_graph.reset()


def graph_pool_handle() -> tuple[int, int]:
    """``torch.cuda.graph_pool_handle``."""
    return 0, 1


def is_current_stream_capturing() -> bool:
    """``torch.cuda.is_current_stream_capturing``."""
    return here("torch.cuda.is_current_stream_capturing()").streams.capturing
