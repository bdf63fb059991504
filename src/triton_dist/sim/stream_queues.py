"""The streams of all ranks: queues of work, one after the other, and the simulated clock of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .cost_model import OperatorTime
from .gpus import GPU
from .work import Copy, Work

if TYPE_CHECKING:
    from .check.checker import RaceChecker
    from .recording.recorder import Recorder


@dataclass(eq=False)
class Stream:
    """A queue of work of one rank; ``active`` is what has been started and not finished. clock: simulated nanoseconds.

    counts: how much work of each class it has been given.
    """

    rank: int
    number: int
    queue: deque[Work] = field(default_factory=deque)
    active: Work | None = None
    clock: float = 0.0
    advancing: bool = False
    counts: dict[type, int] = field(default_factory=dict)


class StreamQueues:
    """What ranks have submitted, in order. A base of the machine, which runs it.

    gpu: the model whose copies and operators take time.
    """

    races: RaceChecker | None = None
    """Looks for data races, if asked to."""
    recorder: Recorder | None = None
    """Keeps what happens, if asked to."""

    def __init__(self, world_size: int, gpu: GPU) -> None:
        self.gpu = gpu
        self.host_clock = [0.0] * world_size
        """For each rank the simulated time up to which its host function has waited for work; what it submits begins no earlier."""
        self.finished = 0
        """Work items that have finished."""
        self._streams = {(rank, 0): Stream(rank, 0) for rank in range(world_size)}
        self._stream_count = [1] * world_size

    def new_stream(self, rank: int) -> int:
        """Number of a new stream of ``rank``; 0 is the default stream."""
        number = self._stream_count[rank]
        self._stream_count[rank] += 1
        self._streams[rank, number] = Stream(rank, number)
        return number

    def submit(self, rank: int, stream: int, work: Work) -> Work:
        """Append work to a stream; it starts when everything before it has finished."""
        queue = self._streams[rank, stream]
        work.rank = rank
        work.queue = queue
        work.issued = self.host_clock[rank]
        kind = type(work)
        work.number = queue.counts.get(kind, 0)
        queue.counts[kind] = work.number + 1
        if self.races is not None:
            work.known = self.races.submitted(work)
        if self.recorder is not None:
            self.recorder.submitted(work)
        queue.queue.append(work)
        self._advance(queue)
        return work

    def follow(self, rank: int, stream: int, function: Callable[[], object]) -> None:
        """Call ``function`` when everything that is now in a stream has finished, before what comes behind it."""
        queue = self._streams[rank, stream]
        last = queue.queue[-1] if queue.queue else queue.active
        if last is None:
            function()
        else:
            last.followers.append(function)

    def busy(self, rank: int, stream: int | None = None) -> bool:
        """Whether ``rank`` has unfinished work, on one stream or on any."""
        if stream is not None:
            queue = self._streams[rank, stream]
            return queue.active is not None or bool(queue.queue)
        return any(queue.active is not None or queue.queue for queue in self.streams_of(rank))

    def streams_of(self, rank: int) -> list[Stream]:
        """All streams of a rank."""
        return [self._streams[rank, number] for number in range(self._stream_count[rank])]

    def _advance(self, stream: Stream) -> None:
        if stream.advancing:
            return
        stream.advancing = True
        try:
            while stream.active is None and stream.queue:
                work = stream.active = stream.queue.popleft()
                work.begin = max(stream.clock, work.issued)
                if self.races is not None:
                    self.races.begins(work)
                if self.recorder is not None:
                    self.recorder.work_begins(work)
                self._start(work)
        finally:
            stream.advancing = False

    def _start(self, work: Work) -> None:
        """Begin a work item, whose turn it is."""
        raise NotImplementedError

    def completed(self, work: Work) -> None:
        """Called by work that has finished."""
        self.finished += 1
        if self.recorder is not None:
            self.recorder.work_ends(work)
        stream = work.queue
        if stream is not None:
            stream.clock = max(stream.clock, work.end)
            for follower in work.followers:
                follower()
            work.followers.clear()
            stream.active = None
            self._advance(stream)

    def rank_clock(self, rank: int) -> float:
        """Simulated nanoseconds at which the last finished work of a rank ended."""
        return max(stream.clock for stream in self.streams_of(rank))

    @property
    def clock(self) -> float:
        """Simulated nanoseconds at which the last finished work ended."""
        return max(stream.clock for stream in self._streams.values())

    def host_waited(self, rank: int, time: float) -> None:
        """The host function of ``rank`` has waited for something that ended at ``time``."""
        self.host_clock[rank] = max(self.host_clock[rank], time)

    def take_time(self, rank: int, stream: int, nanoseconds: float) -> None:
        """An idle stream was used for something that ran at once in the host's thread."""
        queue = self._streams[rank, stream]
        queue.clock = max(queue.clock, self.host_clock[rank]) + nanoseconds

    def meet(self, places: list[tuple[int, int]], nanoseconds: float) -> None:
        """Streams, as (rank, number), did something together that takes ``nanoseconds`` and begins when the last of them is there."""
        begin = max(max(self._streams[place].clock, self.host_clock[place[0]]) for place in places)
        for place in places:
            self._streams[place].clock = begin + nanoseconds

    def copied(self, copy: Copy, begin: float, size: int) -> float:
        """When a piece of a copy is done that begins at ``begin``."""
        return begin + size / self.gpu.costs.copy_engine

    def computed(self, rank: int, begin: float, time: OperatorTime) -> float:
        """When a torch operator of ``rank`` is done that begins at ``begin``."""
        return begin + time.alone

    def stream_clock(self, rank: int, stream: int) -> float:
        """Simulated nanoseconds at which the last finished work of a stream ended."""
        return self._streams[rank, stream].clock
