"""Words that are accessed atomically: what whoever acquires them learns, and who accessed them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..memory import VIEW_BASE, WORDS
from ..requests import COMPARISONS
from .actors import Release
from .history import WRITE, Access
from .order import GPU, SYS, Order

if TYPE_CHECKING:
    from .shadow import Shadow


Touch = tuple[int, int, int, Any, Order]
"""An atomic access of a word: time, thread, thread_time, location and order, as of an Access. There are too many for objects."""


_LOGGED = 8
"""Writes of a word that are logged at most."""


def _knowledge(actor: Any) -> Callable[[Any], bool]:
    """A function that says whether ``actor`` knows of a logged write."""
    seen = actor.seen
    time_of = seen.fine_at

    def known(entry: Any) -> bool:
        _, release, _, writer, touch = entry
        if writer is actor:
            return True
        if release is not None and release.entries:
            slot, time = release.entries[-1]
            return time_of(slot) >= time
        access = Access(writer, touch[0], touch[1], touch[2], touch[3], WRITE, touch[4])
        return writer.comes_before(access, seen)

    return known


class Word:
    """One word. A *release sequence* is a release and the atomic read-modify-writes behind it: an acquire of the last one learns from all.

    releases: of the present release sequence, the latest of each actor and scope. unreleased: (actor, location, order) of the last write
    if it released nothing. writers, readers: the last atomic access of each actor that wrote, or only read.
    rank: of all that accessed it, -2 for several. narrowest: the narrowest scope of them.
    log: the latest writes, see ``releases_seen``; ``dropped`` came before them, and left the releases ``base``. writer: of all that are
    logged, None for several. seen_by: for each actor how many writes it has waited for.
    quiet: whether it is a signal of several ranks and no ordinary access has touched it: what most words are.
    shadow, cell, granule: where its shadow cell is, and the size of cells for which that is right.
    """

    __slots__ = (
        "address", "itemsize", "shadow", "releases", "unreleased", "writers", "readers", "rank", "narrowest", "cell", "granule", "limit", "quiet",
        "log", "base", "index", "dropped", "seen_by", "writer",
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
        self.log: list[tuple[int, Release | None, bool, Any, Touch]] = []
        self.base: dict[Any, Release] = {}
        self.dropped = 0
        self.seen_by: dict[Any, int] = {}
        self.writer: Any = None
        self.index = (address - VIEW_BASE) // itemsize

    def wrote(self, release: Release | None, keeps: bool, actor: Any, touch: Touch) -> None:
        """Log a write; memory has the value before it."""
        log = self.log
        if len(log) >= _LOGGED:
            self.base = {(other.actor, other.scope): other for other in self._releases_after(_LOGGED // 2)}
            del log[: _LOGGED // 2]
            self.dropped += _LOGGED // 2
        if actor is not self.writer:
            self.writer = actor if not log else None
        log.append((WORDS[self.itemsize][self.index], release, keeps, actor, touch))

    def releases_seen(self, actor: Any, compare: str, expected: int) -> Iterable[Release]:
        """What a wait for a value learns for sure: it may have ended at the first value for which it holds, not only at the present one.

        The first value is counted from the last write that the waiter knows of or has waited for before: it sees no older one.
        """
        log, known = self.log, _knowledge(actor)
        state, last = max(self.seen_by.get(actor, 0) - self.dropped, 0), len(log)
        if self.writer is None:
            # Of several writers' writes a late one may be known and an earlier one not.
            state = next((number for number in range(last, state, -1) if known(log[number - 1])), state)
        holds, half = COMPARISONS[compare], 1 << (8 * self.itemsize - 1)
        while state < last:
            entry = log[state]
            if holds(entry[0], expected, half) and not known(entry):
                break
            state += 1
        if len(self.seen_by) > 256:
            self.seen_by.clear()
        self.seen_by[actor] = state + self.dropped
        return self.releases.values() if state == last else self._releases_after(state)

    def _releases_after(self, count: int) -> Iterable[Release]:
        """The releases of the release sequence that the write number ``count`` ended with."""
        found: dict[Any, Release] = {}
        for _, release, keeps, actor, _ in reversed(self.log[:count]):
            if release is not None:
                if not keeps and not found:
                    return (release,)
                found.setdefault((actor, release.scope), release)
            if not keeps:
                return found.values()
        return {**self.base, **found}.values()

    def is_quiet(self) -> bool:
        """Whether it is quiet, and still of an allocation that lives."""
        return self.quiet and not self.shadow.allocation.freed

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
        if release is not None:
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
        self.log.clear()
        self.seen_by.clear()
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
