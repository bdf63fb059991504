"""The records of a buffer as what each block did and when."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from ...errors import LostRecordsWarning
from . import layout
from .buffer import read_words


@dataclass(frozen=True)
class Word:
    """Signal words that a task waits for or a notify sets.

    address: of the first one, on the rank that recorded. count: how many follow each other there (a wait). rank: where it is set (a
    notify), or -1. value: its lowest 32 bits, signed. operation: the comparison ("eq", "ge", ...), or "set" or "add". nbytes: of one
    word, 4 or 8.
    """

    address: int
    operation: str
    value: int
    count: int = 1
    rank: int = -1
    nbytes: int = 4


@dataclass(frozen=True)
class Task:
    """From a start to its end. type: the number that was recorded. start, duration: nanoseconds; a task that has not ended has none.

    word: what it waits for, if it was recorded as a wait.
    """

    type: int
    start: int
    duration: int | None
    word: Word | None = None

    @property
    def end(self) -> int | None:
        """Nanoseconds."""
        return None if self.duration is None else self.start + self.duration


@dataclass(frozen=True)
class Notify:
    """A word is about to be set. type: the number that was recorded. time: nanoseconds."""

    type: int
    time: int
    word: Word


@dataclass
class Track:
    """What one block, or one of its groups, recorded in a launch.

    block: number of the program, the first axis counted first. sm: multiprocessor. tasks: ordered by start. first, last: nanoseconds of the
    first and the last record. unmatched: ends without a start.
    """

    block: int
    group: int
    sm: int
    first: int = 0
    last: int = 0
    tasks: list[Task] = field(default_factory=list)
    notifies: list[Notify] = field(default_factory=list)
    unmatched: int = 0


@dataclass
class Contents:
    """All that is in a buffer. dropped: records that found no room in it."""

    tracks: list[Track]
    dropped: int


def parse_to_tracks(profiler_buffer: torch.Tensor) -> list[Track]:
    """What is in a buffer, a track for each block, group and launch, ordered by their first records. Waits for this rank's device work.

    Warns (LostRecordsWarning) of records that found no room and of those that make no sense. Raises InvalidArgumentError.
    """
    return read_contents(profiler_buffer).tracks


def read_contents(profiler_buffer: torch.Tensor) -> Contents:
    """As ``parse_to_tracks``, with the number of records that are missing."""
    words = read_words(profiler_buffer)
    dropped = int(words[layout.DROPPED])
    chunks = words[layout.HEADER :].reshape(-1, layout.CHUNK, 2)
    tracks = [track for chain in _chains(chunks) if (track := _track(chain)) is not None]
    _warn(tracks, dropped)
    _warn_of_leaders(chunks)
    return Contents(sorted(tracks, key=lambda track: (track.first, track.block, track.group)), dropped)


def _chains(chunks: np.ndarray) -> Iterator[list[np.ndarray]]:
    """The chunks of each track, in order."""
    following = {int(head[0]) & 0xFFFFFFFF: number for number, head in enumerate(chunks[:, 0]) if int(head[0]) & 0xFFFFFFFF}
    for number, head in enumerate(chunks[:, 0]):
        if not head[1] or int(head[0]) & 0xFFFFFFFF:  # was not filled in, or goes on from another one
            continue
        chain = [chunks[number]]
        while (number := following.get(number + 1, -1)) >= 0:
            chain.append(chunks[number])
        yield chain


def _track(chain: list[np.ndarray]) -> Track | None:
    """None if a block recorded nothing."""
    whose = int(chain[0][0, 1])
    track = Track(whose >> layout.BLOCK_SHIFT & 0xFFFFFFFF, whose >> layout.GROUP_SHIFT, whose >> layout.SM_SHIFT & 0xFFF)
    slots = [(int(first), int(second)) for chunk in chain for first, second in chunk[1:] if second]
    if not slots:
        return None
    track.first = slots[0][0]
    started: list[tuple[int, int, Word | None]] = []  # type, time, word
    for number, (time, second) in enumerate(slots):
        kind, task = _kind(second), second >> layout.TASK_SHIFT
        if kind == layout.WORD:
            continue
        track.last = time
        word = _word(slots[number + 1], kind) if number + 1 < len(slots) else None
        if kind in (layout.START, layout.WAIT):
            started.append((task, time, word))
        elif kind == layout.NOTIFY and word is not None:
            track.notifies.append(Notify(task, time, word))
        elif kind == layout.END:
            place = next((place for place in reversed(range(len(started))) if started[place][0] == task), None)
            if place is None:
                track.unmatched += 1
                continue
            _, begin, waited = started.pop(place)
            track.tasks.append(Task(task, begin, time - begin, waited))
    track.tasks += [Task(task, begin, None, word) for task, begin, word in started]
    track.tasks.sort(key=lambda task: (task.start, -(task.duration or 0)))
    return track


def _kind(second: int) -> int:
    return second & (1 << layout.KIND_BITS) - 1


def _word(slot: tuple[int, int], kind: int) -> Word | None:
    """What a slot says of the wait or notify before it; None if it is no such slot (it found no room), or of another kind of record."""
    address, second = slot
    if _kind(second) != layout.WORD or kind not in (layout.WAIT, layout.NOTIFY):
        return None
    value = second >> layout.TASK_SHIFT & 0xFFFFFFFF
    value -= (value >> 31) << 32
    argument, operation = second >> layout.ARGUMENT_SHIFT & layout.ARGUMENT_MAX, second >> layout.OPERATION_SHIFT & 0xF
    nbytes, operation = (8 if operation & layout.WIDE else 4), operation & ~layout.WIDE
    if kind == layout.WAIT:
        return Word(address, layout.COMPARISONS[operation], value, count=argument, nbytes=nbytes)
    return Word(address, layout.OPERATIONS[operation], value, rank=argument, nbytes=nbytes)


def _warn(tracks: list[Track], dropped: int) -> None:
    if dropped:
        kept = sum(2 * len(track.tasks) + 2 * len(track.notifies) for track in tracks)
        warnings.warn(
            f"{dropped} records found no room in the profiler buffer and are missing (about {kept} are there); allocate a larger one, and "
            "empty it between launches by reset_profiler_buffer",
            LostRecordsWarning,
            stacklevel=4,
        )
    unmatched = sum(track.unmatched for track in tracks)
    if unmatched:
        block = next(track.block for track in tracks if track.unmatched)
        warnings.warn(
            f"{unmatched} ends of tasks have no start, the first one of block {block}: record(True, TASK) and record(False, TASK) take the "
            "same task, and each returns the profiler that the next record is made with",
            LostRecordsWarning,
            stacklevel=4,
        )


def _warn_of_leaders(chunks: np.ndarray) -> None:
    """Several threads that each think they are the one that records."""
    threads: dict[int, set[int]] = defaultdict(set)
    for first, second in chunks[:, 0]:
        if second:
            threads[int(second) & ~(0xFFF << layout.SM_SHIFT)].add(int(first) >> 32)
    whose = next((whose for whose, leaders in threads.items() if len(leaders) > 1), None)
    if whose is not None:
        warnings.warn(
            f"block {whose >> layout.BLOCK_SHIFT & 0xFFFFFFFF} has records of {len(threads[whose])} threads in one group: is_leader must "
            "hold for one thread, such as tid(0) == 0; leave it out where the whole block comes",
            LostRecordsWarning,
            stacklevel=4,
        )
