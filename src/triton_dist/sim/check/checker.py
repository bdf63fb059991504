"""The race detection of one simulation: who acts, what orders, and where the simulator's accesses come in.

Programs' accesses come from the functions that check bounds (``ops.memory``, ``ops.descriptor``, ``ops.primitives``), those of streams
from their work, those of torch operators from ``torch_mode``. What orders hosts and streams comes from where they wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DeadlockError, SimulationError
from .actors import BLOCK, EACH, Actor, Launch, thread_of
from .bulk_stores import BulkStoreChecker, addresses_of, bulk_stores_end
from .clocks import Clock, forget_joins, join
from .history import READ, WRITE
from .options import Checks, RaceCheck
from .order import ORDERS, STREAM_WAIT, STREAM_WRITE, SYS
from .program_actor import ProgramActor
from .shadow import Box, box_of
from .slots import Slots

if TYPE_CHECKING:
    from ..launch import KernelLaunch
    from ..memory import Allocation, Memory
    from ..program import Program
    from ..work import Work

Tensors = Sequence[tuple[str, int, Any, Any, int]]
"""Accesses of tensors: for each READ or WRITE, address, counts, strides in bytes, element size."""

_NOTIFY = {"gpu": ORDERS["release", "gpu"], "intra_node": ORDERS["release", "sys"], "inter_node": ORDERS["release", "sys"]}

SILENT = -2
"""``program.lane`` while somebody else reports the accesses of the threads."""


class RaceChecker(BulkStoreChecker):
    """What the simulator calls; there is none where nothing is checked.

    Of a program it asks ``race`` (its actor), ``at`` (number of the source line), ``order`` (of an atomic access, else None), ``active``
    (the mask of threads that are here, None for all) and ``lane`` (the thread that accesses, or -1).
    """

    def __init__(self, memory: Memory, options: RaceCheck) -> None:
        super().__init__(options)
        self._memory = memory
        self.slots = Slots()
        self._actors: dict[Any, Actor] = {}
        self._launches: dict[KernelLaunch, Launch] = {}
        self._programs: set[ProgramActor] = set()
        self._explained: SimulationError | None = None

    @classmethod
    def of(cls, memory: Memory, checks: Checks) -> RaceChecker:
        """What looks for all that a user asked for."""
        checker = cls(memory, checks.race or RaceCheck(collect=True))
        checker.reports = checks.race is not None
        if checks.lint is not None:
            checker.look_for_misuse(checks.lint)
        return checker

    def close(self) -> None:
        """Drop everything; called when the simulation has ended."""
        forget_joins()
        self._actors.clear()
        self._launches.clear()
        self._programs.clear()
        self._words.clear()
        self._shadows.clear()
        self.forget_puts()

    def finish(self) -> None:
        """Raise DataRaceError or MisuseError for what was found; called when everything has run, or nothing can run."""
        super().finish()
        if self.lints is not None and not self._memory.watchers:
            self._look_at_the_end()
            self.lints.finish()

    def explain(self, error: SimulationError) -> None:
        """Add to an error that ends the run what the lints have found; once."""
        if self.lints is not None and self._explained is not error:
            self._explained = error
            with self.lints.held():
                if isinstance(error, DeadlockError):
                    self._look_at_the_end()
            self.lints.add_to(error)

    def _look_at_the_end(self) -> None:
        if self.signal_lints is not None and self.launch_lints is not None:
            self.signal_lints.finish(self._words, self._memory)
            self.launch_lints.finish(self._memory)

    def living(self) -> list[Any]:
        return [*self._actors.values(), *self._programs, *self.puts_under_way()]

    # Who acts

    def actor(self, key: Any, rank: int, label: str) -> Actor:
        """The actor of a key, made when it is first asked for."""
        found = self._actors.get(key)
        if found is None:
            found = self._actors[key] = Actor(rank, len(self._actors), label)
        return found

    def key_of(self, actor: Any) -> Any:
        """What ``actor`` is kept under: ("host", rank), (rank, stream), or the ranks of a group. None for a program or a copy."""
        return next((key for key, known in self._actors.items() if known is actor), None)

    def host(self, rank: int) -> Actor:
        """The host thread of a rank."""
        return self._actors.get(("host", rank)) or self.actor(("host", rank), rank, f"rank {rank}, its host")

    def stream(self, rank: int, number: int) -> Actor:
        """A stream of a rank."""
        key = (rank, number)
        return self._actors.get(key) or self.actor(key, rank, f"rank {rank}, stream {number}")

    def stream_of(self, work: Work) -> Actor:
        """The stream that work is in."""
        return self.stream(work.rank, work.queue.number if work.queue is not None else 0)

    def program(self, program: Program) -> ProgramActor:
        """A program that starts."""
        launch = self._launches.get(program.launch)
        if launch is None:
            stream = self.stream_of(program.launch)
            stream.seen = self.slots.pruned(stream.publish())
            launch = self._launches[program.launch] = Launch(stream, stream.seen)
        actor = ProgramActor(program, launch, self)
        self._programs.add(actor)
        return actor

    def program_ended(self, actor: ProgramActor) -> None:
        """A program has returned."""
        actor.end()
        if self.tokens is not None:
            self.tokens.ended(actor)
        self._programs.discard(actor)
        self.forget_unused()

    def launch_ended(self, work: KernelLaunch) -> None:
        """All programs of a launch have ended."""
        launch = self._launches.pop(work, None)
        if launch is not None:
            left = [put for put in self._puts.get(work.rank, ()) if put.issuer.launch is launch]
            if left:
                launch.put_slots += self.puts_ended(work.rank, left)
            launch.stream.launch_ended(launch)

    # What orders hosts and streams

    def submitted(self, work: Work) -> Clock:
        """The host of ``work.rank`` has queued work; gives what comes before that work."""
        return self.host(work.rank).publish()

    def begins(self, work: Work) -> None:
        """Work is at the head of its stream."""
        if work.known is not None:
            self.stream_of(work).learn(work.known)

    def host_waited(self, rank: int, number: int) -> None:
        """The host of a rank has waited for one of its streams."""
        self.host(rank).learn(self.stream(rank, number).publish())

    def arrival(self, rank: int, number: int) -> Clock:
        """What a rank has done when its host calls a collective: the host itself, and the stream if it is idle."""
        return join(self.host(rank).publish(), self.stream(rank, number).publish())

    def met(self, key: Any, label: str, clocks: Sequence[Clock], accesses: Tensors) -> Clock:
        """The streams of several ranks do something together, behind ``clocks``; gives what whoever waits for it learns."""
        actor = self.actor(key, -1, label)
        for clock in clocks:
            actor.learn(clock)
        self._access_all(actor, label, accesses)
        return actor.publish()

    # Accesses of streams

    def stream_accesses(self, rank: int, number: int, label: str, accesses: Tensors) -> None:
        """A stream reads and writes tensors."""
        self._access_all(self.stream(rank, number), label, accesses)

    def operator_ran(self, rank: int, number: int, label: str, accesses: Tensors, known: Clock | None = None) -> None:
        """A stream has come to an operator that has run already. known: what the host knew when it called it, if that is not now."""
        stream = self.stream(rank, number)
        stream.learn(self.host(rank).publish() if known is None else known)
        self._access_all(stream, label, accesses)

    def host_read(self, rank: int, label: str, accesses: Tensors) -> None:
        """The host looks at tensors itself."""
        self._access_all(self.host(rank), label, accesses)

    def _access_all(self, actor: Actor, label: str, accesses: Tensors) -> None:
        actor.at = label
        for kind, address, counts, strides, itemsize in accesses:
            allocation = self._memory.find(address)
            if allocation is not None:
                box = box_of(address, counts, strides, itemsize)
                if box.start >= allocation.lo and box.end <= allocation.hi:
                    self.access(actor, box, kind, label, allocation)

    def stream_wrote_word(self, work: Work, address: int, itemsize: int) -> None:
        """A stream sets a signal word."""
        stream = self.stream_of(work)
        stream.at = work.label
        self.word(stream, address, itemsize, STREAM_WRITE, work.label, reads=False, writes=True)

    def stream_saw_word(self, work: Work, address: int, itemsize: int, compare: str, expected: int) -> None:
        """A stream has waited for a signal word."""
        stream = self.stream_of(work)
        stream.at = work.label
        self.word(stream, address, itemsize, STREAM_WAIT, work.label, reads=True, writes=False, awaited=(compare, expected))

    def stream_swapped_word(self, work: Work, address: int, itemsize: int, semantic: str) -> None:
        """A stream has compared a signal word with a value and put another one there."""
        stream = self.stream_of(work)
        stream.at = work.label
        self.word(stream, address, itemsize, ORDERS[semantic, "sys"], work.label, reads=True, writes=True, thread=0)

    def find(self, address: int) -> Allocation:
        allocation = self._memory.find(address)
        assert allocation is not None, "the caller has checked the address"
        return allocation

    # Accesses of programs

    def box(self, program: Program, address: int, counts: Any, strides: Any, itemsize: int, what: str, origin: Allocation) -> None:
        """A tile whose addresses are a box. what: a load or a store, as errors name it."""
        if program.order is not None:
            self.tile(program, addresses_of(address, counts, strides), itemsize, what, origin)
            return
        kind = WRITE if what.endswith("store") else READ
        self.access(program.race, box_of(address, counts, strides, itemsize), kind, program.at, origin)

    def tile(
        self, program: Program, addresses: np.ndarray, itemsize: int, what: str, origin: Allocation | None, lanes: np.ndarray | None = None
    ) -> None:
        """Scattered elements. lanes: the thread of each, where threads have an element each."""
        order, writes, updates = program.order, not what.endswith(("load", "ld")), what.endswith("atomic")
        for allocation, chosen in self._by_allocation(addresses, origin):
            places = addresses if chosen is None else addresses[chosen]
            if order is not None or updates:
                self.atomics(
                    program.race, places, itemsize, allocation, order or ORDERS["acq_rel", "gpu"], program.at,
                    reads=updates or not writes, writes=writes,
                )  # fmt: skip
                continue
            threads = None if lanes is None else lanes if chosen is None else lanes[chosen]
            self.scattered(program.race, places, itemsize, WRITE if writes else READ, program.at, allocation, threads)

    def _by_allocation(self, addresses: np.ndarray, origin: Allocation | None) -> list[tuple[Allocation, np.ndarray | None]]:
        """The allocations that addresses are in, with a mask of those that are in each (None for all)."""
        lo, hi = int(addresses.min()), int(addresses.max())
        if origin is None or origin.freed or lo < origin.lo or hi >= origin.hi:
            origin = self.find(lo)
        if hi < origin.hi:
            return [(origin, None)]
        found: list[tuple[Allocation, np.ndarray | None]] = []
        while True:
            allocation = self.find(lo)
            found.append((allocation, (addresses >= allocation.lo) & (addresses < allocation.hi)))
            beyond = addresses[addresses >= allocation.hi]
            if not beyond.size:
                return found
            lo = int(beyond.min())

    def scalar(self, program: Program, address: int, itemsize: int, what: str) -> None:
        """A load or store of one element by the block (a store by its first thread) or by ``program.lane``."""
        lane = program.lane
        if lane == SILENT:
            return
        actor, order = program.race, program.order
        writes = what in ("store", "st")
        if order is not None:
            thread = lane if lane >= 0 else thread_of(program.active, program.threads)
            self.word(
                actor, address, itemsize, order, program.at,
                reads=not writes, writes=writes, thread=thread, learner=BLOCK if thread == EACH else thread,
            )  # fmt: skip
            return
        thread = lane if lane >= 0 else 0 if writes else thread_of(program.active, program.threads)
        kind = WRITE if writes else READ
        self.access(actor, Box(address, itemsize, (), itemsize), kind, program.at, self.find(address), thread)

    def update(self, program: Program, address: int, itemsize: int, *, writes: bool = True) -> None:
        """A read-modify-write of one word, or one that only read (a compare-and-swap that found another value).

        That of a scalar is done by the block's first thread, and all threads learn what it gives, if its result is used.
        """
        lane = program.lane
        if lane == SILENT:
            return
        order = program.order or ORDERS["acq_rel", "gpu"]
        thread, learner = (lane, lane) if lane >= 0 else (0, 0 if order.alone else BLOCK)
        self.word(
            program.race, address, itemsize, order, program.at,
            reads=True, writes=writes, thread=thread, learner=learner,
        )  # fmt: skip

    def updates_of_block(self, program: Program, address: int, itemsize: int) -> None:
        """Every thread of the block does a read-modify-write of one word."""
        self.word(
            program.race, address, itemsize, program.order or ORDERS["relaxed", "gpu"], program.at,
            reads=True, writes=True, thread=EACH,
        )  # fmt: skip

    def notified(self, program: Program, address: int, itemsize: int, scope: str, adds: bool) -> None:
        """``notify`` of a word: a block barrier, and a release."""
        word, actor = self._words.get(address), program.race
        if actor is not None and actor.bulk_stores:
            bulk_stores_end(actor)
        if word is not None and word.quiet and not adds and scope != "gpu" and len(word.writers) < 64 and not word.shadow.allocation.freed:
            assert actor is not None, "the caller has looked"
            at = program.at
            release = actor.release(SYS, at)
            # The write itself is of the interval that it releases: whoever acquires it knows of it.
            word.writers[actor] = (actor.time - 1, BLOCK, actor.thread_time, at, STREAM_WRITE, actor.warp_time)
            word.releases = {(actor, SYS): release}
            word.log(release)
            if self.signal_lints is not None:
                self.signal_lints.wrote(word, actor, program.at, adds=False)
            return
        self.word(program.race, address, itemsize, _NOTIFY[scope], program.at, reads=adds, writes=True)

    def waited(
        self, program: Program, address: int, itemsize: int, order: Any, compare: str, expected: int, threads: Sequence[int] = ()
    ) -> None:
        """``wait`` has seen what it waits for in one word. threads: who has waited, each for itself; none for the block together."""
        for thread in threads:
            self.word(
                program.race, address, itemsize, STREAM_WAIT, program.at, reads=True, writes=False, thread=thread,
                learner=BLOCK if thread == EACH else thread, awaited=(compare, expected),
            )  # fmt: skip
        if threads:
            return
        word, actor = self._words.get(address), program.race
        if (
            word is not None and word.quiet and order is STREAM_WAIT and actor is not None and len(word.readers) < 64
            and not word.shadow.allocation.freed
        ):  # fmt: skip
            # What ``AtomicAccessChecker.word`` does, where that is all there is to do: there are many of these.
            if self.signal_lints is not None:
                self._waited(word, actor, BLOCK, program.at, order, compare, expected)
            for release in word.releases_seen(actor, SYS, compare, expected):
                actor.acquire(release, SYS)
            actor.dirty = True
            word.readers[actor] = (actor.time, BLOCK, actor.thread_time, program.at, order, actor.warp_time)
            return
        self.word(
            program.race, address, itemsize, order or STREAM_WAIT, program.at, reads=True, writes=False, awaited=(compare, expected)
        )  # fmt: skip
