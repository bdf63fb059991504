"""Words that are accessed atomically: what whoever acquires them learns, and who accessed them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..memory import VIEW_BASE, WORDS
from ..requests import COMPARISONS
from .actors import Release
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
    return release.actor is actor or _knows(actor.seen, release)


def _knows(clock: Clock, release: Release) -> bool:
    """Whether a clock has a logged write."""
    if release.entries:
        slot, time = release.entries[-1]
        if clock.has(slot, time):
            return True
        # Of a launch that has finished, a clock may say no more than that.
        launch = getattr(release.actor, "launch", None)
        end = None if launch is None else launch.end
        return end is not None and clock.coarse_at(end[0]) >= end[1]
    return release.touch is not None and release.actor.comes_before(release.touch, clock)


def carried(release: Release, update: Release) -> bool:
    """Whether a read-modify-write hands on what a release before it released: only if the scope of each includes the other."""
    by, of = update.actor, release.actor
    return update.scope == release.scope == SYS or reaches(release.scope, of.rank, of, update.scope, by.rank, by)


class Word:
    """One word. A *release sequence* is a release and the atomic read-modify-writes behind it: an acquire of the last one learns from all.

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
        self.base = {(other.source, other.scope): other for other in self._releases_after(half)}
        del self.writes[:half], self.values[:half]
        self.dropped += half

    def releases_seen(self, actor: Any, compare: str, expected: int) -> Iterable[Release]:
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
        while state < last and (not holds(values[state], expected, half) or is_known(actor, writes[state])):
            state += 1
        if len(seen_by) > 256:
            seen_by.clear()
        seen_by[actor] = state + dropped
        if state == last:
            return self.releases.values()
        if state and not writes[state - 1].keeps:
            found: Iterable[Release] = () if writes[state - 1].silent else (writes[state - 1],)
        else:
            found = self._releases_after(state)
        if self.narrowest == SYS:
            return found
        # It may have ended at a later value as well, which a narrow update left that does not hand all of these on.
        for number in range(state, last):
            if not writes[number].keeps:
                break
            if number + 1 == last or holds(values[number + 1], expected, half):
                update = writes[number]
                by = update.actor
                tells = not update.silent and reaches(update.scope, by.rank, by, SYS, actor.rank, actor)
                found = [one for one in found if carried(one, update) or (tells and _knows(update.clock, one))]
        return found

    def _releases_after(self, count: int) -> Iterable[Release]:
        """The releases of the release sequence that the write number ``count`` ended with."""
        found: dict[Any, Release] = {}
        narrow: list[Release] = []
        for release in reversed(self.writes[:count]):
            if not release.silent and all(carried(release, update) for update in narrow):
                found.setdefault((release.source, release.scope), release)
            if not release.keeps:
                return found.values()
            if release.scope != SYS:
                narrow.append(release)
        base = {key: release for key, release in self.base.items() if all(carried(release, update) for update in narrow)}
        return {**base, **found}.values()

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
        if not keeps and self.releases:
            self.releases = {}
        elif keeps and order is not None and order.scope != SYS and self.releases:
            by = Release(actor.seen, (), order.scope, actor, location)
            self.releases = {key: other for key, other in self.releases.items() if carried(other, by)}
        if release is not None and release.of_launch:
            if not keeps or not self.releases:
                self.unreleased = (actor, location, order)
            self.releases.setdefault((release.source, release.scope), release)
        elif release is not None:
            if keeps and order is not None and order.acquire:
                # It has learnt what these release, and says it again.
                self.releases = {key: other for key, other in self.releases.items() if other.scope > release.scope}
            self.releases[actor, release.scope] = release
            self.unreleased = None
        elif not keeps or not self.releases:
            self.unreleased = (actor, location, order)

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
