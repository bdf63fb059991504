"""Who accesses memory: host threads, streams and process groups, programs, and puts that are under way.

An actor's own time counts the points at which others may learn of what it did before. An access is stamped with the actor's time; it comes
before everything that is done by whoever knows that time of the actor.

Programs are in ``program_actor``, puts and gets in ``copies``.
"""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from .clocks import EMPTY, Clock, join, learn
from .order import SCOPE_NAMES, reaches

BLOCK = -1
"""In place of a thread's index: the threads of the block together, each element by an unknown one."""

EACH = -2
"""In place of a thread's index: every thread of the block does the same by itself."""

WARP = 32

Threads = tuple[int, ...] | None
"""Threads of a block that make one call: one, a warp, or None for the whole block."""

ELEMENT = -3
"""In place of a thread's index: for each element of a tile of atomics the one thread that does it."""


class Release:
    """What an acquire of the word may learn: ``clock`` plus ``entries`` of fine slots.

    scope: of the releasing access (or of its fence, if that is narrower). write_scope: of the access itself.
    actor, location: who released, for scopes and reports.
    silent: it is a write that releases nothing. keeps: it goes on with the release sequence before it. touch: the access, where
    ``entries`` do not say when it was. of_launch: it is a relaxed write, which releases only what came before its kernel. source: whose
    releases of a word the latest one stands for: of the actor, or of its whole launch.
    """

    __slots__ = ("clock", "entries", "scope", "actor", "location", "keeps", "silent", "touch", "of_launch", "source", "write_scope")

    def __init__(self, clock: Clock, entries: tuple[tuple[int, int], ...], scope: int, actor: Any, location: int) -> None:
        self.keeps = self.silent = self.of_launch = False
        self.touch: Any = None
        self.clock = clock
        self.entries = entries
        self.scope = self.write_scope = scope
        self.actor = self.source = actor
        self.location = location


class Actor:
    """A host thread, a stream or a process group. ``block`` is what scopes compare: for a program the program itself.

    seen: what it knows, its own time before ``time`` included. known: numbers of histories that are known to be ordered before it.
    """

    __slots__ = (
        "rank", "slot", "time", "seen", "known", "label", "records", "ignored", "program_time", "free_slots", "put_slots",
        "_ends", "_latest", "at",
    )  # fmt: skip

    thread_time = warp_time = 0
    """Only programs have threads."""

    def __init__(self, rank: int, slot: int, label: str) -> None:
        self.rank = rank
        self.slot = slot
        self.time = 1
        self.seen = EMPTY
        self.known: set[int] = set()
        self.label = label
        self.records: dict[Any, int] = {}
        self.ignored: list[Ignored] = []
        self.at: Any = -1
        """What it does just now, for reports: a label, as there is no source line."""
        # Of a stream: what its finished launches leave to the next one.
        self.program_time = 0
        self.free_slots: list[int] = []
        self.put_slots: list[tuple[int, int]] = []
        self._ends: list[int] = []
        self._latest: list[int] = []

    def publish(self) -> Clock:
        """All that it did and knows, for another one to learn; what it does from now on is later."""
        self.seen = clock = self.seen.with_coarse(self.slot, self.time)
        self.time += 1
        self.records.clear()
        return clock

    def learn(self, clock: Clock) -> None:
        """Come after all that ``clock`` covers."""
        self.seen = join(self.seen, clock)

    def release(self, scope: int, location: int) -> Release:
        """Publish by a word."""
        return Release(self.publish(), (), scope, self, location)

    def acquire(self, release: Release, scope: int, thread: int = BLOCK) -> None:
        """Learn from a word, if the scopes reach each other."""
        if reaches(release.scope, release.actor.rank, release.actor, scope, self.rank, self):
            self.seen = learn(self.seen, release.clock, release.entries)
        else:
            why = f"the scopes {SCOPE_NAMES[release.scope]} and {SCOPE_NAMES[scope]} do not reach from one GPU to the other"
            self.ignore(release, why, narrow=True)

    def ignore(self, release: Any, why: str, narrow: bool = False) -> None:
        """Remember for reports that a word was seen which ordered nothing."""
        if len(self.ignored) >= 32:
            del self.ignored[:16]
        self.ignored.append(Ignored(release.actor, release.location, self.at, why, narrow))

    def covers(self, access: Any) -> bool:
        """Whether an access of another actor comes before what this one does now."""
        return access.actor.comes_before(access, self.seen)

    def comes_before(self, access: Any, clock: Clock, thread: int = BLOCK) -> bool:
        """Whether an access of this actor is covered by ``clock``."""
        return clock.coarse_at(self.slot) >= access.time

    def launch_ended(self, launch: Launch) -> None:
        """All programs of a launch of this stream have finished: what comes in the stream is behind them."""
        self.seen = join(self.seen, *launch.learnt)
        launch.end = (self.slot, self.time)
        self.program_time = launch.latest
        self.free_slots += launch.slots
        self.put_slots += launch.put_slots
        if len(self._ends) >= 64:
            del self._ends[:32], self._latest[:32]
        self._ends.append(self.time)
        self._latest.append(launch.latest)
        self.publish()

    def finished_at(self, clock: Clock) -> int:
        """The latest time of this stream's programs that is covered by the launches of which ``clock`` knows the end."""
        at = bisect.bisect_right(self._ends, clock.coarse_at(self.slot))
        return self._latest[at - 1] if at else 0

    def describe(self, location: Any = "") -> str:
        """As reports name it. location: what it did; all there is to say of a group of ranks."""
        if self.rank < 0:
            return str(location) or self.label
        return f"{self.label}, {location}" if location else self.label

    def line(self, location: Any) -> str:
        """The source line of an access: none, as it is not in a kernel."""
        return ""


class Ignored:
    """A word was seen, but nothing was learnt from it: who wrote it where, where it was read, and why. narrow: because of a scope."""

    __slots__ = ("writer", "written_at", "read_at", "why", "narrow")

    def __init__(self, writer: Any, written_at: int, read_at: int, why: str, narrow: bool = False) -> None:
        self.writer = writer
        self.written_at = written_at
        self.read_at = read_at
        self.why = why
        self.narrow = narrow


class Launch:
    """What the programs of one launch share.

    base: what all of them know when they start. learnt: what those that have ended knew beyond that. end: (slot, time) of the stream
    that covers all of them, once the launch has finished.
    """

    __slots__ = ("stream", "base", "time", "end", "slots", "put_slots", "latest", "learnt")

    def __init__(self, stream: Actor, base: Clock) -> None:
        self.stream = stream
        self.base = base
        self.time = self.latest = stream.program_time + 1
        self.end: tuple[int, int] | None = None
        self.slots: list[int] = []
        self.put_slots: list[tuple[int, int]] = []
        self.learnt: list[Clock] = []


def too_narrow(scope: int, rank: int, other_scope: int, other_rank: int) -> str:
    """Why a pair of accesses orders nothing."""
    narrow, way = SCOPE_NAMES[min(scope, other_scope)], f"from rank {rank} to rank {other_rank}"
    if rank == other_rank:
        return f"its scope {narrow} ends at the block, and both are different blocks; use gpu"
    return f'its scope {narrow} does not reach {way if min(rank, other_rank) >= 0 else "what a stream or a copy writes"}; use "sys"'


def thread_of(active: np.ndarray | None, count: int) -> int:
    """Who does an access under a mask of threads: the index of the only one, or EACH."""
    if active is None:
        return EACH
    lanes = np.flatnonzero(np.broadcast_to(active, (count,)))
    return int(lanes[0]) if lanes.size == 1 else EACH
