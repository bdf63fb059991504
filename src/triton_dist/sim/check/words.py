"""Words that are accessed atomically: what whoever acquires them learns, and who accessed them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..memory import VIEW_BASE, WORDS
from ..requests import COMPARISONS
from .actors import Release
from .clocks import EMPTY, learn, meet, told
from .order import GPU, SYS, Order, reaches

if TYPE_CHECKING:
    from .clocks import Clock
    from .shadow import Shadow
    from .signals import SignalState


Touch = tuple[int, int, int, Any, Order, int]
"""An atomic access of a word: time, thread, thread_time, location, order and warp_time, as of an Access. There are too many for objects."""


_LOGGED = 16
"""Writes of a word that are logged at most."""


def is_known(actor: Any, release: Release) -> bool:
    """Whether ``actor`` knows of a logged write."""
    by, entries = release.actor, release.entries
    if by is actor:
        return True
    if len(entries) == 1:
        slot, time = entries[0]
        if told.get(slot, 0) < time:  # nobody was ever told: what most waits find
            return _has_its_end(actor.seen, by)
    return _knows(actor.seen, release)


def _knows(clock: Clock, release: Release) -> bool:
    """Whether a clock has a logged write."""
    if release.entries:
        slot, time = release.entries[-1]
        if clock.has(slot, time):
            return True
        if len(release.entries) > 1:  # by one thread; or its block has met since
            slot, time = release.entries[0]
            if clock.has(slot, time + 1):
                return True
        return _has_its_end(clock, release.actor)
    return release.touch is not None and release.actor.comes_before(release.touch, clock)


def _has_its_end(clock: Clock, actor: Any) -> bool:
    """Whether a clock has the end of a program's launch: of one that has finished it may say no more than that."""
    launch = getattr(actor, "launch", None)
    return launch is not None and launch.end is not None and clock.coarse_at(launch.end[0]) >= launch.end[1]


def _includes(by: Release, one: Release) -> bool:
    """Whether who learns what ``by`` released has learnt of ``one``, too."""
    if by is one or _knows(by.clock, one):
        return True
    if not one.entries:
        return False
    (block, since), (last, until) = one.entries[0], one.entries[-1]
    return any((slot == last and time >= until) or (slot == block and time > since) for slot, time in by.entries)


def _follows(write: Release, update: Release) -> bool:
    """Whether a read-modify-write goes on with the release sequence of the write it has seen: if the scope of each includes the other."""
    by, of = update.actor, write.actor
    return update.write_scope == write.write_scope == SYS or reaches(write.write_scope, of.rank, of, update.write_scope, by.rank, by)


def _place(release: Release) -> tuple[Any, int, int]:
    """Releases of a sequence of which the latest stands for all: by one thread, or by a block together, at one scope."""
    return release.source, release.entries[-1][0] if release.entries else -1, release.scope


def _is_later(release: Release, other: Release) -> bool:
    """Whether one of two releases of a place says no less: a write behind an older fence says less than an earlier release."""
    return not release.entries or not other.entries or release.entries[-1][1] >= other.entries[-1][1]


def _said_again(other: Release, release: Release, scope: int) -> bool:
    """Whether a read-modify-write that acquires at a scope and releases tells all who would learn from a release before it."""
    by, of = release.actor, other.actor
    return other.scope <= release.scope and reaches(other.scope, of.rank, of, scope, by.rank, by)


class Word:
    """One word. A *release sequence* is a release and the atomic read-modify-writes behind it: an acquire of the last one learns from all.
    As in PTX, each has to be in the scope of the one before it, whoever acquires in that of the last, and in that of what it learns from.

    releases: of the present release sequence, the latest of each source and scope. unreleased: (actor, location, order) of the last write
    if it released nothing. writers, readers: the last atomic access of each actor that wrote, or only read.
    rank: of all that accessed it, -2 for several. narrowest: the narrowest scope of them.
    writes, values: the latest writes and what was there before each, see ``releases_seen``; ``dropped`` came before them, and left the
    releases ``base``. writer: of all that are logged, None for several. seen_by: for each actor how many writes it has waited for.
    quiet: whether it is a signal of several ranks and no ordinary access has touched it: what most words are.
    shadow, cell, granule: where its shadow cell is, and the size of cells for which that is right. lint: what the lints know of it.
    """

    __slots__ = (
        "address", "itemsize", "shadow", "releases", "unreleased", "writers", "readers", "rank", "narrowest", "cell", "granule", "limit",
        "quiet",
        "writes", "values", "base", "index", "dropped", "seen_by", "writer", "lint",
    )  # fmt: skip

    def __init__(self, address: int, itemsize: int, shadow: Shadow) -> None:
        self.address = address
        self.shadow = shadow
        self.itemsize = itemsize
        self.releases: dict[Any, Release] = {}
        self.unreleased: tuple[Any, Any, Order | None] | None = None
        self.writers: dict[Any, Touch] = {}
        self.readers: dict[Any, Touch] = {}
        self.rank = -1
        self.narrowest = SYS
        self.cell, self.granule = 0, -1
        self.limit = 64
        self.quiet = False
        self.writes: list[Release] = []
        self.values: list[int] = []
        self.base: dict[Any, Release] = {}
        self.dropped = 0
        self.seen_by: dict[Any, int] = {}
        self.writer: Any = None
        self.lint: SignalState | None = None
        self.index = (address - VIEW_BASE) // itemsize

    def log(self, release: Release) -> None:
        """Log a write; memory has the value before it."""
        writes = self.writes
        if len(writes) >= _LOGGED:
            self._fold()
        if release.actor is not self.writer:
            self.writer = None if writes else release.actor
        self.values.append(WORDS[self.itemsize][self.index])
        writes.append(release)

    def _fold(self) -> None:
        half = _LOGGED // 2
        # Nobody looks behind a write that starts anew.
        self.base = {_place(other): other for other in self._releases_after(half)} if self.writes[half].keeps else {}
        del self.writes[:half], self.values[:half]
        self.dropped += half

    def releases_now(self, actor: Any, scope: int) -> Iterable[Release]:
        """What an acquire of the present value may learn from."""
        if self.narrowest == scope == SYS or not self.writes or self._is_seen(self.writes[-1], actor, scope):
            return self.releases.values()
        return ()

    def releases_seen(self, actor: Any, scope: int, compare: str, expected: int) -> Iterable[Release]:
        """What a wait for a value learns for sure: it may have ended at the first value for which it holds, not only at the present one.

        The first value is counted from the last write that the waiter knows of or has waited for before: it sees no older one.
        """
        writes, values, dropped = self.writes, self.values, self.dropped
        last = len(writes)
        seen_by = self.seen_by
        state = seen_by.get(actor, 0) - dropped
        if state < 0:
            state = 0
        if self.writer is None:
            # Of several writers' writes a late one may be known and an earlier one not.
            state = next((number for number in range(last, state, -1) if is_known(actor, writes[number - 1])), state)
        holds, half = COMPARISONS[compare], 1 << (8 * self.itemsize - 1)
        while state < last:
            if holds(values[state], expected, half) and not is_known(actor, writes[state]):
                break
            state += 1
        if len(seen_by) > 256:
            seen_by.clear()
        seen_by[actor] = state + dropped
        widest = self.narrowest == scope == SYS
        if state == last:
            return self.releases.values() if widest else self.releases_now(actor, scope)
        if widest and (self.writer is not None or all(write.keeps for write in writes[state:])):
            # Who sees a later value learns all of this as well.
            if state and not writes[state - 1].keeps:
                return () if writes[state - 1].silent else (writes[state - 1],)
            return self._releases_after(state)
        ends = [end for end in range(state + 1, last) if holds(values[end], expected, half)]
        return self._learnt_at_all(actor, scope, [state, *ends, last])

    def _learnt_at_all(self, actor: Any, scope: int, ends: Sequence[int]) -> Iterable[Release]:
        """What a wait learns wherever it ended: behind so many of the logged writes."""
        by_end = [self._releases_at(end, actor, scope) for end in ends]
        if not all(by_end):
            return ()
        clocks = [functools.reduce(lambda clock, one: learn(clock, one.clock, one.entries), releases, EMPTY) for releases in by_end]
        first = by_end[0]
        both = Release(functools.reduce(meet, clocks), (), first[0].scope, first[0].actor, first[0].location)
        return [*(one for one in first if all(any(_includes(by, one) for by in later) for later in by_end[1:])), both]

    def _releases_at(self, count: int, actor: Any, scope: int) -> list[Release]:
        """What an acquire of the value learns that the write number ``count`` left."""
        if count and not self._is_seen(self.writes[count - 1], actor, scope):
            return []
        found = self._releases_after(count)
        return [one for one in found if reaches(one.scope, one.actor.rank, one.actor, scope, actor.rank, actor)]

    def _is_seen(self, write: Release, actor: Any, scope: int) -> bool:
        """Whether a read of a write's value is in its scope, and it in the read's."""
        return reaches(write.write_scope, write.actor.rank, write.actor, scope, actor.rank, actor)

    def _releases_after(self, count: int) -> Iterable[Release]:
        """The releases of the release sequence that the write number ``count`` ended with."""
        found: dict[Any, Release] = {}
        update: Release | None = None
        for write in reversed(self.writes[:count]):
            if update is not None and self.narrowest != SYS and not _follows(write, update):
                return found.values()
            if not write.silent:
                key = _place(write)
                if key not in found or not _is_later(found[key], write):
                    found[key] = write
            if not write.keeps:
                return found.values()
            update = write
        return {**self.base, **found}.values()

    def is_signal(self) -> bool:
        """Whether ranks set and acquire it, with the widest scope only."""
        return self.narrowest == SYS and self.rank == -2 and self.unreleased is None

    def came(self, rank: int, scope: int) -> bool:
        """Note an access. Whether the scopes of all that accessed it surely reach each other."""
        if rank != self.rank:
            self.rank = rank if self.rank == -1 else -2
        if scope < self.narrowest:
            self.narrowest = scope
        return self.narrowest == SYS or (self.narrowest == GPU and self.rank >= 0)

    def write(self, actor: Any, location: Any, order: Order | None, release: Release | None, keeps: bool) -> None:
        """A write or read-modify-write (``keeps`` the release sequence going); release: what it releases."""
        if self.releases and not (keeps and self._goes_on(actor, order)):
            self.releases = {}
        if release is not None and release.of_launch:
            if not keeps or not self.releases:
                self.unreleased = (actor, location, order)
            self.releases.setdefault(_place(release), release)
        elif release is not None:
            if keeps and order is not None and order.acquire and order.release:
                # What it has learnt from these, it says again; by a fence before it it would not.
                self.releases = {key: other for key, other in self.releases.items() if not _said_again(other, release, order.scope)}
            place = _place(release)
            if place not in self.releases or _is_later(release, self.releases[place]):
                self.releases[place] = release
            self.unreleased = None
        elif not keeps or not self.releases:
            self.unreleased = (actor, location, order)

    def _goes_on(self, actor: Any, order: Order | None) -> bool:
        """Whether a read-modify-write goes on with the release sequence."""
        if self.narrowest == SYS or order is None or not self.writes:
            return True
        return _follows(self.writes[-1], Release(actor.seen, (), order.scope, actor, -1))

    def overwritten(self, actor: Any, location: Any) -> None:
        """An ordinary store, ordered behind everything before: it starts anew."""
        self.releases = {}
        self.base = {}
        self.writes.clear()
        self.values.clear()
        self.seen_by.clear()
        self.lint = None
        self.unreleased = (actor, location, None)
        self.writers.clear()
        self.readers.clear()
        self.rank, self.narrowest = -1, SYS

    def prune(self, actor: Any, make_access: Any) -> None:
        """Drop accesses that come before what ``actor`` does now, once there are many."""
        touches = len(self.writers) + len(self.readers)
        if touches < self.limit:
            return
        for kind in (self.writers, self.readers):
            for other, touch in list(kind.items()):
                if other is not actor and touch[4].scope == SYS and actor.covers(make_access(other, touch)):
                    del kind[other]
        self.limit = max(64, 2 * (len(self.writers) + len(self.readers)))
