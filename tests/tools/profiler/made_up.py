"""Profiles that no kernel recorded."""

from __future__ import annotations

from triton_dist.runtime.address_map import heap_base
from triton_dist.tools.profiler import Clock, ClockReading, Notify, Profile, RankProfile, Task, Track, Word

NAMES = ("send", "wait", "product")
SEND, WAIT, PRODUCT = range(3)
OFFSET = 1 << 22
"""Of the first signal word in each rank's heap."""


def clock(offset: int, bound: float = 0.0, resolution: float = 0.0) -> Clock:
    """A clock that is ``offset`` ahead of rank 0's all the time."""
    reading = ClockReading(0, offset, bound, resolution)
    return Clock(reading, reading)


def wait(rank: int, start: int, end: int, value: int = 1, cmp: str = "eq", count: int = 1, index: int = 0, nbytes: int = 4) -> Task:
    """A wait of ``rank`` for words from number ``index`` on."""
    return Task(WAIT, start, end - start, Word(heap_base(rank) + OFFSET + index * nbytes, cmp, value, count, nbytes=nbytes))


def notify(rank: int, to: int, time: int, value: int = 1, operation: str = "set", index: int = 0, nbytes: int = 4) -> Notify:
    """``rank`` sets word number ``index`` of rank ``to``."""
    return Notify(SEND, time, Word(heap_base(rank) + OFFSET + index * nbytes, operation, value, rank=to, nbytes=nbytes))


def track(*records: Task | Notify, block: int = 0, sm: int = 0) -> Track:
    """What one block recorded."""
    tasks = [record for record in records if isinstance(record, Task)]
    notifies = [record for record in records if isinstance(record, Notify)]
    times = [task.start for task in tasks] + [task.end for task in tasks if task.end is not None] + [sent.time for sent in notifies]
    return Track(block, 0, sm, min(times), max(times), tasks, notifies)


def profile(*ranks: list[Track], clocks: list[Clock] | None = None, dropped: int = 0) -> Profile:
    """What ranks recorded; all of them dropped as many records."""
    clocks = clocks or [clock(0)] * len(ranks)
    return Profile([RankProfile(rank, tracks, dropped, clocks[rank]) for rank, tracks in enumerate(ranks)], NAMES)
