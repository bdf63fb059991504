"""Words that are accessed atomically: what whoever acquires them learns, and who accessed them."""

from __future__ import annotations

from typing import Any, NamedTuple

from .actors import Release
from .order import GPU, SYS, Order


class Touch(NamedTuple):
    """An atomic access of a word, with the fields of an Access."""

    time: int
    thread: int
    thread_time: int
    location: Any
    order: Order


class Word:
    """One word. A *release sequence* is a release and the atomic read-modify-writes behind it: an acquire of the last one learns from all.

    releases: of the present release sequence, the latest of each actor and scope. unreleased: (actor, location, order) of the last write
    if it released nothing. writers, readers: the last atomic access of each actor that wrote, or only read.
    rank: of all that accessed it, -2 for several. narrowest: the narrowest scope of them.
    cell, granule: where its shadow cell is, and the size of cells for which that is right.
    """

    __slots__ = ("address", "itemsize", "releases", "unreleased", "writers", "readers", "rank", "narrowest", "cell", "granule", "limit")

    def __init__(self, address: int, itemsize: int) -> None:
        self.address = address
        self.itemsize = itemsize
        self.releases: dict[Any, Release] = {}
        self.unreleased: tuple[Any, Any, Order | None] | None = None
        self.writers: dict[Any, Touch] = {}
        self.readers: dict[Any, Touch] = {}
        self.rank = -1
        self.narrowest = SYS
        self.cell = self.granule = 0
        self.limit = 64

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
                if other is not actor and touch.order.scope == SYS and actor.covers(make_access(other, touch)):
                    del kind[other]
        self.limit = max(64, 2 * (len(self.writers) + len(self.readers)))
