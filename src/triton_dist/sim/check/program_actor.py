"""A program as an actor: a block of threads.

Between two block barriers its threads are not ordered, so its time counts barriers: what the block's threads did since the last barrier is
covered only by a release that is behind the next one. A release by one thread also covers what that thread did itself: that is counted by a
second time, ``thread_time``, under a slot of that thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .actors import BLOCK, EACH, ELEMENT, WARP, Ignored, Launch, Release, Threads, too_narrow
from .clocks import Clock, join, join_entries, learn, learn_one
from .order import SYS, reaches

if TYPE_CHECKING:
    from ..program import Program
    from .checker import RaceChecker
    from .copies import PendingActor

_NO_THREADS: dict[Any, int] = {}


class Fence:
    """What a thread's relaxed store behind a fence releases. threads, warps: what some knew beyond ``clock`` when all came to it."""

    __slots__ = ("clock", "time", "thread_time", "scope", "thread", "threads", "warps")

    def __init__(self, clock: Clock, time: int, thread_time: int, scope: int, thread: int) -> None:
        self.clock = clock
        self.threads: dict[int, Clock] = {}
        self.warps: dict[int, Clock] = {}
        self.time = time
        self.thread_time = thread_time
        self.scope = scope
        self.thread = thread

    def clock_of(self, thread: int) -> Clock:
        """What ``thread`` knew."""
        return self.threads.get(thread) or self.warps.get(thread // WARP, self.clock)


class ProgramActor:
    """One program. time: number of the present interval between block barriers. thread_time: counts releases and fences of single threads.

    dirty: whether anything was done since the last barrier that a barrier would order.
    thread_seen: what single threads have acquired since the last barrier, beyond ``seen``. warp_seen: the same of warps.
    warp_time: counts barriers of warps, under a slot for each warp. landed: copies that some of its threads know to have ended.
    bulk_stores: TMA stores that not all threads know to have ended.
    """

    __slots__ = (
        "program", "rank", "launch", "checker", "slot", "time", "thread_time", "seen", "known", "records", "dirty", "thread_seen", "fences",
        "observed", "ignored", "pid", "kernel", "threads", "warp_time", "thread_slots", "put_slots", "warp_seen", "landed",
        "bulk_stores",
    )  # fmt: skip

    def __init__(self, program: Program, launch: Launch, checker: RaceChecker) -> None:
        self.rank = program.rank
        self.pid = program.pid
        self.kernel = program.launch.kernel
        self.threads = program.threads
        self.program: Program | None = program
        self.launch = launch
        self.checker = checker
        self.slot = -1
        self.thread_slots = _NO_THREADS
        self.put_slots: list[tuple[int, int]] = []
        self.time = self.thread_time = self.warp_time = launch.time
        self.warp_seen: dict[int, Clock] = {}
        self.landed: list[PendingActor] = []
        self.bulk_stores: list[PendingActor] = []
        self.seen = launch.base
        self.known: set[int] = set()
        self.records: dict[Any, int] = {}
        self.dirty = False
        self.thread_seen: dict[int, Clock] = {}
        self.fences: list[Fence] = []
        self.observed: list[tuple[Release, int, int]] = []
        self.ignored: list[Ignored] = []

    def end(self) -> None:
        """It has returned: its launch knows what it knew. The end of a kernel is a fence for what its relaxed reads have seen."""
        for release, scope, _ in self.observed:
            self.acquire(release, scope)
        self.observed.clear()
        self.block_barrier()
        launch = self.launch
        launch.latest = max(launch.latest, self.time, self.thread_time, self.warp_time)
        if self.seen is not launch.base:
            launch.learnt.append(self.seen)
        launch.put_slots += self.put_slots
        launch.put_slots += [store.end() for store in self.bulk_stores]
        self.bulk_stores = []
        self.program = None
        self.known.clear()
        self.records.clear()
        self.ignored.clear()

    @property
    def at(self) -> int:
        """Number of the source line where it is."""
        return -1 if self.program is None else self.program.at

    def block_barrier(self) -> None:
        """All threads of the block meet: each is behind what the others did and learnt before."""
        if self.thread_seen or self.warp_seen:
            for clock in (*self.warp_seen.values(), *self.thread_seen.values()):
                self.seen = join(self.seen, clock)
            self.thread_seen.clear()
            self.warp_seen.clear()
            if self.bulk_stores:
                self.put_slots += [store.end() for store in self.bulk_stores if store.delivered is not None]
                self.bulk_stores = [store for store in self.bulk_stores if store.delivered is None]
        if self.landed:
            self.put_slots += self.checker.puts_ended(self.rank, self.landed)
            self.landed = []
        if self.dirty:
            self.dirty = False
            self.time += 1
            self.records.clear()

    def bulk_waited(self, active: np.ndarray | None) -> None:
        """Each thread that comes here waits for the TMA stores that it has started: the block's first thread has started them all."""
        if self.bulk_stores and (active is None or np.broadcast_to(active, (self.threads,))[0]):
            for store in self.bulk_stores:
                if store.delivered is None:
                    store.delivered = store.publish()
                    self.learn_by((0,), store.delivered)

    def warp_barrier(self, warps: Iterable[int]) -> None:
        """The threads of each of these warps meet: each is behind what the others of its warp did and learnt before."""
        for warp in warps:
            seen = self.clock_of(WARP * warp)
            for thread in range(WARP * warp, WARP * (warp + 1)):
                if thread in self.thread_seen:
                    seen = join(seen, self.thread_seen.pop(thread))
            self.warp_seen[warp] = join_entries(
                join(self.warp_seen.get(warp, self.seen), seen), ((self._slot_of(("warp", warp)), self.warp_time),)
            )
        self.warp_time += 1
        self.records.clear()

    def clock_of(self, thread: int) -> Clock:
        """What a thread knows, or all threads of the block (BLOCK)."""
        clock = self.thread_seen.get(thread)
        if clock is not None:
            return clock
        return self.warp_seen.get(thread // WARP, self.seen) if self.warp_seen and thread >= 0 else self.seen

    @property
    def threads_differ(self) -> bool:
        """Whether some thread knows what another one does not."""
        return bool(self.thread_seen or self.warp_seen)

    def release_of(self, threads: Threads) -> Release:
        """What ``threads`` together have done and learnt, for a call that they make together."""
        if threads is None:
            return self.release(SYS, self.at)
        if len(threads) == 1:
            return self.release(SYS, self.at, threads[0])
        warp = threads[0] // WARP
        self.warp_barrier([warp])
        clock = self.warp_seen[warp]
        return Release(
            clock, ((self._slot_of(BLOCK), self.time - self.dirty), (self._slot_of(("warp", warp)), self.warp_time - 1)), SYS, self, self.at
        )

    def learn_by(self, threads: Threads, clock: Clock) -> None:
        """Let threads come after all that ``clock`` covers."""
        if threads is None:
            self.seen = join(self.seen, clock)
            for known in (self.thread_seen, self.warp_seen):
                for key in known:
                    known[key] = join(known[key], clock)
            return
        for thread in threads:
            self.thread_seen[thread] = join(self.clock_of(thread), clock)

    def _slot_of(self, thread: Any) -> int:
        """The fine slot of a thread, of a warp ("warp", index), or of the block as a whole; made when it is first needed."""
        slot = self.slot if thread == BLOCK else self.thread_slots.get(thread, -1)
        if slot < 0:
            slot = self.checker.slots.take(self.launch)
            if thread == BLOCK:
                self.slot = slot
            else:
                self.thread_slots = {**self.thread_slots, thread: slot}
        return slot

    def _entries(self, time: int, thread: int, thread_time: int) -> tuple[tuple[int, int], ...]:
        """The block up to ``time``, and beyond that what ``thread`` did itself. No other release has the same last entry."""
        block = (self._slot_of(BLOCK), time)
        return block, (self._slot_of(thread), thread_time)

    def _tick(self) -> None:
        """What single threads do from now on is later than what they have published."""
        self.thread_time += 1
        if not self.dirty:
            self.time += 1
        self.records.clear()

    def release(self, scope: int, location: int, thread: int = BLOCK) -> Release:
        """Publish by a word.

        thread: BLOCK for a release behind a block barrier (``notify``), an index for one thread's own, EACH where every thread releases for
        itself and whoever reads sees one of them.
        """
        if thread == BLOCK:
            if self.thread_seen or self.warp_seen or self.landed:
                self.block_barrier()
            elif self.dirty:
                self.dirty = False
                self.time += 1
            time = self.time
            self.time = time + 1
            if self.records:
                self.records.clear()
            return Release(self.seen, ((self.slot if self.slot >= 0 else self._slot_of(BLOCK), time),), scope, self, location)
        entries = self._entries(self.time - self.dirty, thread, self.thread_time)
        self._tick()
        return Release(self.clock_of(thread), entries, scope, self, location)

    def release_of_launch(self, scope: int, location: int) -> Release:
        """What a relaxed store releases without a fence before it: the begin of a kernel is one, of what came before in the stream."""
        release = Release(self.launch.base, (), scope, self, location)
        release.of_launch, release.source = True, self.launch
        return release

    def release_of_fence(self, scope: int, location: int, thread: int) -> Release | None:
        """What a relaxed store releases by a fence before it; None without one."""
        best = None
        for fence in self.fences:
            if fence.thread in (EACH, thread) and (best is None or fence.scope >= best.scope):
                best = fence
        if best is None:
            return None
        entries = self._entries(best.time, thread, best.thread_time)
        return Release(best.clock_of(thread), entries, min(scope, best.scope), self, location)

    def fence(self, scope: int, thread: int = EACH) -> None:
        """A thread's (or every thread's) memory fence: earlier relaxed reads acquire, later relaxed stores release."""
        observed, self.observed = self.observed, []
        for release, read_scope, reader in observed:
            if thread in (EACH, reader):
                self.acquire(release, min(scope, read_scope), BLOCK if thread == EACH else thread)
            else:
                self.observed.append((release, read_scope, reader))
        clock = self.clock_of(thread)
        self.fences = [fence for fence in self.fences if fence.thread != thread or fence.scope > scope]
        self.fences.append(Fence(clock, self.time - self.dirty, self.thread_time, scope, thread))
        if thread == EACH and self.threads_differ:
            self.fences[-1].threads, self.fences[-1].warps = dict(self.thread_seen), dict(self.warp_seen)
        self._tick()

    def acquire(self, release: Release, scope: int, thread: int = BLOCK) -> None:
        """Learn from a word, if the scopes reach each other. thread: BLOCK if all threads learn it."""
        other, entries = release.actor, release.entries
        if entries and scope == release.scope == SYS and thread < 0 and not self.thread_seen and not self.warp_seen:
            if len(entries) == 1:
                slot, time = entries[0]
                self.seen = learn_one(self.seen, release.clock, slot, time)
            elif not self.seen.surely_has(*entries[-1]):
                self.seen = learn(self.seen, release.clock, entries)
            return
        if (scope != SYS or release.scope != SYS) and not reaches(release.scope, other.rank, other, scope, self.rank, self):
            self.ignore(release, too_narrow(release.scope, other.rank, scope, self.rank), narrow=True)
            return
        if thread < 0:
            if not entries or not self.seen.surely_has(*entries[-1]):
                self.seen = learn(self.seen, release.clock, entries)
            for known in (self.thread_seen, self.warp_seen):
                for key in known:
                    known[key] = learn(known[key], release.clock, entries)
        else:
            self.thread_seen[thread] = learn(self.clock_of(thread), release.clock, release.entries)

    def observe(self, release: Release, scope: int, thread: int) -> None:
        """A relaxed read has seen a word: a fence behind it would learn from it."""
        if len(self.observed) >= 64:
            del self.observed[:32]
        self.observed.append((release, scope, thread))

    def ignore(self, release: Any, why: str, narrow: bool = False) -> None:
        """As Actor's."""
        if len(self.ignored) >= 32:
            del self.ignored[:16]
        self.ignored.append(Ignored(release.actor, release.location, self.at, why, narrow))

    def covers(self, access: Any, thread: int = BLOCK) -> bool:
        """Whether an access of another actor comes before what this one does now."""
        clock = self.clock_of(thread) if self.thread_seen or self.warp_seen else self.seen
        return access.actor.comes_before(access, clock)

    def comes_before(self, access: Any, clock: Clock, thread: int = BLOCK) -> bool:
        """Whether an access of this program is covered by ``clock``. thread: who did it, where the access does not say that itself."""
        if self.slot >= 0 and clock.has(self.slot, access.time):
            return True
        end = self.launch.end
        if end is not None and clock.coarse_at(end[0]) >= end[1]:
            return True
        thread = thread if thread >= 0 else access.thread
        if thread >= 0 or thread == ELEMENT:
            slot = self.thread_slots.get(thread, -1)
            if slot >= 0 and clock.has(slot, access.thread_time):
                return True
            slot = self.thread_slots.get(("warp", thread // WARP), -1)
            return slot >= 0 and clock.has(slot, access.warp_time)
        return False

    def describe(self, location: Any = "") -> str:
        """As reports name it."""
        return f"rank {self.rank}, program {self.pid} of {self.kernel.name}"

    def line(self, location: int) -> str:
        """The source line of an access."""
        return str(self.kernel.location(location))
