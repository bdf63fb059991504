"""A put or a get as an actor: it goes on while its program does."""

from __future__ import annotations

from typing import Any

from .actors import BLOCK, WARP, Actor, Launch, Threads
from .clocks import Clock, join_entries
from .program_actor import ProgramActor

TMA_STORE = "TMA store"
"""The label of one (see ``bulk_stores``), as reports call it."""


class PendingActor(Actor):
    """A copy that a program has begun and that ends later. It comes after what its callers have done and learnt.

    threads: its callers, None for the whole block. location: number of the source line that began it.
    delivered: what a fence behind it knows, the write of its target; None for a get, which a fence does not complete.
    ended: the launch whose end covers it. begun, interval, warp_time: entries and times of the program; who knows of them knows that it
        has begun.
    """

    __slots__ = ("location", "issuer", "ended", "threads", "delivered", "begun", "interval", "warp_time")

    def __init__(self, issuer: ProgramActor, label: str, threads: Threads) -> None:
        slots = issuer.checker.slots
        slot, time = issuer.put_slots.pop() if issuer.put_slots else slots.take_for_put(issuer.launch.stream)
        super().__init__(issuer.rank, slot, label)
        release = issuer.release_of(threads)
        self.seen = join_entries(release.clock, release.entries)
        self.time = time
        self.begun = release.entries
        self.interval = release.entries[0][1] if threads is None else issuer.time
        self.warp_time = issuer.warp_time
        issuer.dirty = True
        self.issuer = issuer
        self.at = self.location = issuer.at
        self.threads = threads
        self.delivered: Clock | None = None
        self.ended: Launch | None = None

    @property
    def kernel(self) -> Any:
        """The kernel that began it."""
        return self.issuer.kernel

    def is_known(self, clock: Clock) -> bool:
        """Whether whoever knows ``clock`` knows that it has begun."""
        (slot, _), *threads = self.begun
        if clock.has(slot, self.interval) or any(clock.has(other, time) for other, time in threads):
            return True
        slot = -1 if self.threads is None else self.issuer.thread_slots.get(("warp", self.threads[0] // WARP), -1)
        return slot >= 0 and clock.has(slot, self.warp_time)

    def publish(self) -> Clock:
        self.seen = clock = join_entries(self.seen, ((self.slot, self.time),))
        self.time += 1
        self.records.clear()
        return clock

    def end(self) -> tuple[int, int]:
        """All of its program know that it has ended; gives its slot, for another one."""
        self.publish()
        self.ended = self.issuer.launch
        return self.slot, self.time

    def comes_before(self, access: Any, clock: Clock, thread: int = BLOCK) -> bool:
        if clock.has(self.slot, access.time):
            return True
        end = None if self.ended is None else self.ended.end
        return end is not None and clock.coarse_at(end[0]) >= end[1]

    def describe(self, location: Any = "") -> str:
        return f"{self.issuer.describe()}, its {self.label}"

    def line(self, location: Any) -> str:
        return self.issuer.line(location)
