"""Words that are accessed atomically: what whoever acquires them learns, and who accessed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .actors import Release
from .order import GPU, SYS, Order

if TYPE_CHECKING:
    from .shadow import Shadow


Touch = tuple[int, int, int, Any, Order]
"""An atomic access of a word: time, thread, thread_time, location and order, as of an Access. There are too many for objects."""


class Word:
    """One word. A *release sequence* is a release and the atomic read-modify-writes behind it: an acquire of the last one learns from all.

    releases: of the present release sequence, the latest of each actor and scope. unreleased: (actor, location, order) of the last write
    if it released nothing. writers, readers: the last atomic access of each actor that wrote, or only read.
    rank: of all that accessed it, -2 for several. narrowest: the narrowest scope of them.
    quiet: whether it is a signal of several ranks and no ordinary access has touched it: what most words are.
    shadow, cell, granule: where its shadow cell is, and the size of cells for which that is right.
    """

    __slots__ = ("address", "itemsize", "shadow", "releases", "unreleased", "writers", "readers", "rank", "narrowest", "cell", "granule", "limit", "quiet")

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
            self.releases.clear()
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
        self.releases.clear()
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
