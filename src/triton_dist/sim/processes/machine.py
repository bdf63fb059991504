"""The machine of one process: it runs the programs and streams of one rank, next to the machines of the other processes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from ..launch import KernelLaunch
from ..machine import Machine
from ..memory import WORDS, element_index
from ..pending import PendingCopies, PendingCopy
from ..requests import COMPARISONS, SPIN, WaitRequest
from ..stream_queues import Stream
from ..symmetric_memory.signals import PadThread
from ..timeline import Timeline
from ..work import Task, Work, WriteValue
from .exclusive import ExclusiveKernels, locked_steps
from .memory import GuardedMemory
from .shared_lock import SharedLock
from .teams import ProcessTeams

_SLICE = 0.002
"""Seconds that one step should take, so that a thread that wants the machine does not wait long."""


class _NoTimeline(Timeline):
    """A process may live for days, so what ran when is not kept."""

    def ran(self, *span: object) -> None:
        """Not recorded."""

    def waited(self, *wait: object) -> None:
        """Not recorded."""


class _LockedCopies(PendingCopies):
    """Copies that land while no other process changes a word: a signal that follows one may be an addition."""

    def __init__(self, machine: Machine, lock: SharedLock) -> None:
        super().__init__(machine)
        self._lock = lock

    def _land(self, copy: PendingCopy) -> None:
        with self._lock:
            super()._land(copy)


class ProcessMachine(Machine):
    """The pretended GPU of ``rank``; those of the other ranks are in other processes. lock: of all processes.

    Called by the holder of the memory's baton, except for ``submit``, ``new_stream`` and ``busy``.
    """

    memory: GuardedMemory
    teams: ProcessTeams

    def __init__(self, rank: int, world_size: int, memory: GuardedMemory, lock: SharedLock) -> None:
        self._submitted: dict[tuple[int, int], int] = defaultdict(int)
        self._completed: dict[tuple[int, int], int] = defaultdict(int)
        self._seen: dict[int, int] = {}
        self._failure: BaseException | None = None
        self.submitted: Callable[[], None] = lambda: None
        """Called when there is new work."""
        self._kernels = ExclusiveKernels(lock)
        self._lock = lock
        super().__init__(world_size, seed=rank, memory=memory, timeline=_NoTimeline())
        self.rank = rank
        self.pending = _LockedCopies(self, lock)

    def recorded_time(self, clock: float) -> int:
        """The host's clock, which all processes share: simulated ones of different processes tell nothing about each other."""
        return time.monotonic_ns()

    def new_stream(self, rank: int) -> int:
        with self.memory.baton:
            return super().new_stream(rank)

    def submit(self, rank: int, stream: int, work: Work) -> Work:
        with self.memory.baton:
            if self._failure is not None:
                raise self._failure
            if isinstance(work, KernelLaunch):
                work.kernel = self._kernels.of(work.kernel)
            self._submitted[rank, stream] += 1
            super().submit(rank, stream, work)
        self.submitted()
        return work

    def completed(self, work: Work) -> None:
        stream = work.queue
        if isinstance(stream, Stream):
            self._completed[stream.rank, stream.number] += 1
        super().completed(work)

    def busy(self, rank: int, stream: int | None = None) -> bool:
        """Without the baton: every torch operator asks, and only the program adds work."""
        if rank != self.rank or self._failure is not None:
            return False
        places = [(rank, stream)] if stream is not None else list(self._submitted)
        return any(self._completed[place] != self._submitted[place] for place in places)

    def start_task(self, work: Work) -> None:
        task = Task(work, self)
        if isinstance(work, (WriteValue, PadThread)):
            task.generator = locked_steps(work.execute, self._lock)(task)
        self._ready(task)

    def run_slice(self) -> bool:
        """``step``, for about ``_SLICE`` seconds. Whether anything ran."""
        begin, before = time.perf_counter(), self.steps
        moved = self.step()
        turns = self.steps - before
        if turns:
            self.batch = max(1, min(1024, int(_SLICE * turns / (time.perf_counter() - begin + 1e-9))))
        return moved

    @property
    def runnable(self) -> bool:
        """Whether something can run now."""
        return bool(self._runnable or self._turns)

    @property
    def spinning(self) -> list:
        """Programs in loops that saw no change."""
        return list(self._spinning)

    @property
    def waits_for_others(self) -> bool:
        """Whether something is parked or spins, which other processes may end by writing a word."""
        return bool(self.memory.watchers or self._spinning)

    def look_at_words(self) -> bool:
        """Wake what waits for a word that another process has written since the last look. Whether anything was woken.

        A program that spins is tried again at each look, which is not counted: it may see no change.
        """
        watchers = self.memory.watchers
        view = WORDS[8]
        seen: dict[int, int] = {}
        woken: list = []
        for granule in list(watchers):
            value = view[element_index(granule << 3, 8)]
            before = self._seen.get(granule)
            if value != before if before is not None else any(_holds(actor.waiting) for actor in watchers[granule]):
                woken += watchers.pop(granule)
            else:
                seen[granule] = value
        self._seen = seen
        if woken:
            self._wake(woken)
        if self._spinning:
            self._spin_version = -1
        return bool(woken)

    def abandon(self, failure: BaseException) -> None:
        """Nothing that is queued runs any more, and new work is refused by ``failure``; torch operators find their stream idle."""
        self._failure = failure

    def start_over(self) -> None:
        """Drop everything that is queued or runs; new work is taken again."""
        self.drop({self.rank})
        self._completed = defaultdict(int, self._submitted)
        self._seen.clear()
        self._failure = None

    def forgive_idling(self) -> None:
        """Loops that run without changing memory are right for now: they may wait for another process that still works."""
        self._idle_steps = 0


def _holds(request: object) -> bool:
    """Whether what a parked program waits for is there. When in doubt it is: the program looks for itself."""
    if request is SPIN or not isinstance(request, WaitRequest) or request.compare not in COMPARISONS:
        return True
    seen = WORDS[request.itemsize][element_index(request.address, request.itemsize)]
    return COMPARISONS[request.compare](seen, request.expected, 1 << (8 * request.itemsize - 1))
