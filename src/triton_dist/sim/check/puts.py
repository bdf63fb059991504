"""What the functions of ``libshmem_device`` access and order: puts, gets, quiet, fence, device barriers.

A put is an actor of its own. It comes after what its callers have done; what comes after it depends on which part of it is known:

- its write of the target is known to a fence behind it, its end (the source has been read, too) to quiet and to a barrier that completes
  puts;
- a signal that comes with it releases both; the caller of a blocking form knows at once that the source has been read.

Its accesses are compared when it begins, whenever it lands in this run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .actors import BLOCK, EACH, WARP, Threads
from .atomic_accesses import AtomicAccessChecker
from .clocks import Clock, join_entries
from .copies import PendingActor
from .history import READ, WRITE
from .options import RaceCheck
from .order import STREAM_WRITE, SYS
from .program_actor import ProgramActor
from .shadow import Box

if TYPE_CHECKING:
    from ..program import Program


_MANY_ENDED = 64
"""Copies of a rank that are remembered after their end."""


class PutChecker(AtomicAccessChecker):
    """Knows the copies of each rank that have begun and of which its program does not know that they have ended.

    threads: who makes a call together: a thread, a warp, or None for the block. Forms for a block begin and end with a block barrier.
    """

    def __init__(self, options: RaceCheck) -> None:
        super().__init__(options)
        self._puts: dict[int, list[PendingActor]] = {}
        self._ended: dict[int, deque[tuple[PendingActor, Clock]]] = {}
        """Of each rank the last copies that their programs know to have ended, and what comes before that: others may know less of them."""

    def put_begins(
        self, program: Program, label: str, threads: Threads, target: int, source: int | None, nbytes: int, blocking: bool
    ) -> PendingActor:
        """A put of ``nbytes`` bytes; label: the function's name. source: None for a value that is no memory."""
        actor, put = self._begin(program, label, threads)
        if blocking and source is not None:
            self._range(put, READ, source, nbytes)
            actor.learn_by(threads, put.publish())
        self._range(put, WRITE, target, nbytes)
        put.delivered = put.publish()
        if not blocking and source is not None:
            self._range(put, READ, source, nbytes)
        self._call_ends(actor, threads)
        return put

    def get_begins(self, program: Program, label: str, threads: Threads, target: int, source: int, nbytes: int, blocking: bool) -> None:
        """A get. The callers of a blocking one come after it."""
        actor, get = self._begin(program, label, threads)
        self._range(get, READ, source, nbytes)
        self._range(get, WRITE, target, nbytes)
        if blocking:
            actor.learn_by(threads, get.publish())
            actor.landed.append(get)
        self._call_ends(actor, threads)

    def put_signals(self, put: PendingActor, address: int, itemsize: int, adds: bool) -> None:
        """A put that has landed sets the word that comes with it."""
        self.word(put, address, itemsize, STREAM_WRITE, put.location, reads=adds, writes=True)

    def _begin(self, program: Program, label: str, threads: Threads) -> tuple[ProgramActor, PendingActor]:
        actor = actor_of(program)
        pending = PendingActor(actor, label, threads)
        self._puts.setdefault(program.rank, []).append(pending)
        return actor, pending

    def _range(self, put: PendingActor, kind: str, address: int, nbytes: int) -> None:
        if nbytes:
            self.access(put, Box(address, nbytes, (), nbytes), kind, put.location, self.find(address))

    def _call_ends(self, actor: ProgramActor, threads: Threads) -> None:
        if threads is None:
            actor.block_barrier()

    def quiet(self, program: Program, threads: Threads) -> None:
        """Threads (None: every one of the block for itself) wait for the end of the copies that they know of."""
        actor = actor_of(program)
        _wait_for_bulk_stores(actor, threads)
        self._learn_of_ended(actor, threads, whole=True)
        for put, _ in self._learn(actor, threads, PendingActor.publish):
            if put.issuer is actor and put not in actor.landed:
                actor.landed.append(put)
        _fence(actor, threads)

    def fence(self, program: Program, threads: Threads) -> None:
        """Threads have the puts delivered that they know of, before what they do later. Gets, and sources, are as before."""
        actor = actor_of(program)
        _wait_for_bulk_stores(actor, threads)
        self._learn_of_ended(actor, threads, whole=False)
        self._learn(actor, threads, lambda put: put.delivered)
        _fence(actor, threads)

    def _learn(
        self, actor: ProgramActor, threads: Threads, clock_of: Callable[[PendingActor], Clock | None]
    ) -> list[tuple[PendingActor, Threads]]:
        """Let threads learn of the copies of their rank; gives the copies that some thread has learnt of, and which threads."""
        learnt: list[tuple[PendingActor, Threads]] = []
        for put in self._puts.get(actor.rank, ()):
            learners = _who_knows(put, actor, threads)
            clock = clock_of(put) if learners != () else None
            if clock is not None:
                learnt.append((put, learners))
                actor.learn_by(learners, clock)
        return learnt

    def _learn_of_ended(self, actor: ProgramActor, threads: Threads, whole: bool) -> None:
        """The same of copies that another program knows to have ended. whole: their sources have been read, too."""
        for put, end in self._ended.get(actor.rank, ()):
            clock = end if whole else put.delivered
            if put.issuer is not actor and clock is not None:
                actor.learn_by(_who_knows(put, actor, threads), clock)

    def arrives(self, program: Program, threads: Threads, completes: bool) -> Clock:
        """Threads come to a device barrier; gives what whoever meets them there learns."""
        actor = actor_of(program)
        if threads is None:
            actor.block_barrier()
        elif len(threads) > 1:
            actor.warp_barrier({thread // WARP for thread in threads})
        if completes:
            self.quiet(program, threads)
        release = actor.release_of(threads)
        return join_entries(release.clock, release.entries)

    def meets(self, program: Program, threads: Threads, clocks: Iterable[Clock]) -> None:
        """Threads leave a device barrier."""
        actor = actor_of(program)
        for clock in clocks:
            actor.learn_by(threads, clock)
        self._call_ends(actor, threads)

    def signals(self, program: Program, thread: int, address: int, itemsize: int, adds: bool) -> None:
        """``signal_op`` by a thread, or by EACH: a release of what that thread has done; puts are not among it without a fence."""
        self.word(
            actor_of(program), address, itemsize, STREAM_WRITE, program.at, reads=adds, writes=True, thread=thread,
            learner=BLOCK if thread == EACH else thread,
        )  # fmt: skip

    def puts_ended(self, rank: int, puts: list[PendingActor]) -> list[tuple[int, int]]:
        """Copies are known to have ended by all of their program; gives their slots, for others."""
        under_way, ended = self._puts[rank], self._ended.setdefault(rank, deque(maxlen=_MANY_ENDED))
        places = []
        for put in puts:
            under_way.remove(put)
            places.append(put.end())
            ended.append((put, put.seen))
        return places

    def puts_under_way(self) -> list[PendingActor]:
        """Of all ranks."""
        return [put for puts in self._puts.values() for put in puts]

    def forget_puts(self) -> None:
        """The simulation has ended."""
        self._puts.clear()
        self._ended.clear()


def _who_knows(put: PendingActor, actor: ProgramActor, threads: Threads) -> Threads:
    """Which of some threads (None: of all) know that a copy has begun; None if all of the block do."""
    if threads is None:
        if _is_known(put, actor, BLOCK):
            return None
        if not actor.threads_differ and put.issuer is not actor:
            return ()
    some = range(actor.threads) if threads is None else threads
    return tuple(thread for thread in some if _is_known(put, actor, thread))


def _is_known(put: PendingActor, actor: ProgramActor, thread: int) -> bool:
    """Whether a thread (BLOCK: all of them) knows that a copy has begun."""
    if put.issuer is actor and (put.threads is None or thread in put.threads or actor.time > put.interval):
        return True
    return put.is_known(actor.clock_of(thread))


def _wait_for_bulk_stores(actor: ProgramActor, threads: Threads) -> None:
    if threads is None or 0 in threads:
        actor.bulk_waited(None)


def _fence(actor: ProgramActor, threads: Threads) -> None:
    actor.fence(SYS, threads[0] if threads is not None and len(threads) == 1 else EACH)


def actor_of(program: Program) -> ProgramActor:
    """The actor of a program of a run that looks for data races."""
    assert program.race is not None, "data races are looked for"
    return program.race
