"""Accesses that were made, and sets of them, by number: what a cell of shadow memory holds.

A *history* is a set of accesses as a linked list: a number stands for its newest access and for the number of the rest. Cells with the same
past have the same number, so that a whole tile is looked at by its few distinct numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .order import Order

if TYPE_CHECKING:
    from ..recording.events import Moment

READ, WRITE, ATOMIC = "read", "write", "atomic"
"""Kinds of access; an atomic one that only reads is a READ with an order."""

_LONG = 24


class Access:
    """One source line's accesses by one actor between two points of order.

    time, thread_time: the actor's, see ``actors``. thread: index of the thread, or BLOCK. order: None for an ordinary access.
    location: number of the source line in a program's kernel, a text for other actors. places, lanes: of accesses by threads that have
    an address each, the addresses in ascending order and the threads.
    """

    __slots__ = ("actor", "time", "thread", "thread_time", "warp_time", "location", "kind", "order", "places", "lanes", "moment")

    def __init__(
        self, actor: Any, time: int, thread: int, thread_time: int, location: Any, kind: str, order: Order | None = None, warp_time: int = 0
    ) -> None:
        self.actor = actor
        self.time = time
        self.thread = thread
        self.thread_time = thread_time
        self.warp_time = warp_time
        self.location = location
        self.kind = kind
        self.order = order
        self.places: np.ndarray | None = None
        self.lanes: np.ndarray | None = None
        self.moment: Moment | None = None
        """When it was, where the run is recorded."""

    @property
    def by_threads(self) -> bool:
        """Whether it is known which thread of the block did it."""
        return self.thread >= 0 or self.lanes is not None

    def thread_at(self, address: int) -> int:
        """The thread that accessed an address."""
        if self.lanes is None or self.places is None:
            return self.thread
        return int(self.lanes[min(int(np.searchsorted(self.places, address)), len(self.lanes) - 1)])


class Histories:
    """All histories of one simulation; number 0 is the empty one."""

    def __init__(self) -> None:
        self.newest: list[Any] = [None]
        self.rest: list[int] = [0]
        self._length: list[int] = [0]
        self._added: dict[tuple[int, int], int] = {}

    def new(self, access: Access, rest: int = 0) -> int:
        """A history of ``access`` and the accesses of another one."""
        self.newest.append(access)
        self.rest.append(rest)
        self._length.append(1 + self._length[rest])
        return len(self.newest) - 1

    def accesses(self, number: int) -> list[Access]:
        """The accesses of a history, the newest first."""
        found = []
        while number:
            found.append(self.newest[number])
            number = self.rest[number]
        return found

    def with_read(self, number: int, mine: int) -> int:
        """``number`` and one more reader, whose own history is ``mine``."""
        if not number:
            return mine
        known = self._added.get((number, mine))
        if known is not None:
            return known
        access, head = self.newest[mine], self.newest[number]
        if head is access:
            return number
        if head.actor is access.actor and not head.by_threads and not access.by_threads and head.kind == access.kind:
            result = self.new(access, self.rest[number]) if self.rest[number] else mine  # the later one stands for both
        elif self._length[number] >= _LONG and self._length[number] & (self._length[number] - 1) == 0:
            result = self.new(access, self._latest_of_each(number, access))
        else:
            result = self.new(access, number)
        self._added[number, mine] = result
        return result

    def _latest_of_each(self, number: int, but: Access) -> int:
        """A history without accesses that a later one of the same actor stands for, and without those before ``but``."""
        kept: dict[Any, Access] = {}
        for access in self.accesses(number):
            key = (access.actor, access.kind, access.order, access.thread, None if access.lanes is None else id(access))
            if key not in kept and access.actor is not but.actor and not (access.order is but.order and but.actor.covers(access)):
                kept[key] = access
        result = 0
        for access in reversed(kept.values()):
            result = self.new(access, result)
        return result

    def __len__(self) -> int:
        return len(self.newest)

    def renumber(self, used: np.ndarray) -> np.ndarray:
        """Forget all histories but those in ``used``; returns for each old number the new one."""
        keep = set(used.tolist()) | {0}
        for number in list(keep):
            while number:
                keep.add(number)
                number = self.rest[number]
        order = sorted(keep)
        new = np.zeros(len(self.newest), np.int32)
        new[order] = np.arange(len(order), dtype=np.int32)
        self.newest = [self.newest[number] for number in order]
        self.rest = [int(new[self.rest[number]]) for number in order]
        self._length = [self._length[number] for number in order]
        self._added.clear()
        return new
