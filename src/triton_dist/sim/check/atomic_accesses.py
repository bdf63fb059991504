"""Looks at each atomic access: what it orders, and which ordinary ones of the same memory are not ordered with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .accesses import AccessChecker, as_access, get_along
from .actors import BLOCK, EACH, ELEMENT, Release
from .history import ATOMIC, READ, Access
from .options import RaceCheck
from .order import SYS, Order, reaches
from .program_actor import ProgramActor
from .shadow import numbers
from .words import Touch, Word

if TYPE_CHECKING:
    from ..memory import Allocation

_MANY_WORDS = 64
"""Elements up to which an atomic access of a tile counts as one of each word, with what each orders."""


class AtomicAccessChecker(AccessChecker):
    """The words that atomic accesses have touched, and what was released by them."""

    def __init__(self, options: RaceCheck) -> None:
        super().__init__(options)
        self._words: dict[int, Word] = {}

    def word(
        self, actor: Any, address: int, itemsize: int, order: Order, location: Any, reads: bool, writes: bool,
        thread: int = BLOCK, learner: int = BLOCK, awaited: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        """An atomic access of one word: what it orders, and whether it meets ordinary accesses that are not ordered with it.

        reads, writes: both for a read-modify-write. thread: who does it (see ``actors``): BLOCK for ``wait`` and ``notify``.
        learner: the thread that knows what was read, BLOCK for all. awaited: comparison and value of a wait.
        """
        word = self._words.get(address)
        if word is None or word.shadow.allocation.freed:
            word = self._new_word(address, itemsize)
        shadow = word.shadow
        if word.granule != shadow.granule:
            word.cell = shadow.cell_at(address, itemsize)
            word.granule = shadow.granule
        cell = word.cell
        is_program = type(actor) is ProgramActor
        if is_program:
            if writes and thread == BLOCK:
                actor.block_barrier()
            actor.dirty = True
        if reads and self.unwritten is not None and shadow.allocation.poisoned:
            self.unwritten.scattered(actor, shadow, np.array([address]), itemsize, location)
        if self.signal_lints is not None and awaited is not None:
            self._waited(word, actor, thread, location, order, *awaited)
        if reads and not (writes and thread == BLOCK) and (word.releases or word.unreleased is not None):
            releases = word.releases_now(actor, order.scope) if awaited is None else word.releases_seen(actor, order.scope, *awaited)
            if self.signal_lints is not None and awaited is not None:
                self.signal_lints.saw(word, actor, thread)
            self._acquire(actor, word, order, learner, releases)
        touch = (actor.time, thread, actor.thread_time, location, order, actor.warp_time)
        last, read = shadow.writes.item(cell), shadow.reads.item(cell) if writes else 0
        if (last and last not in actor.known) or (read and read not in actor.known) or shadow.atomics is not None:
            mine = self._histories.new(as_access(actor, touch, ATOMIC if writes else READ))
            for cells in (shadow.writes, shadow.reads if writes else None, shadow.atomics):
                if cells is not None:
                    self._look_at_all(actor, mine, shadow, cells, cell, thread)
        if (word.rank != actor.rank or word.narrowest != SYS or order.scope != SYS) and not word.came(actor.rank, order.scope):
            self._look_at_scopes(actor, word, touch, writes)
        if not writes:
            word.readers[actor] = touch
        else:
            word.writers[actor] = touch
            release = None
            if order.release:
                if is_program:
                    release = actor.release(order.scope, location, BLOCK if thread == EACH and reads else thread)
                else:
                    release = actor.release(order.scope, location)
            elif is_program:
                release = actor.release_of_fence(order.scope, location, thread) if actor.fences else None
                release = actor.release_of_launch(order.scope, location) if release is None else release
            word.write(actor, location, order, release, keeps=reads)
            logged = Release(actor.seen, (), order.scope, actor, location) if release is None else release
            logged.keeps, logged.silent, logged.write_scope = reads, release is None, order.scope
            if not logged.entries or self.signal_lints is not None:
                logged.touch = as_access(actor, touch, ATOMIC)
            word.log(logged)
            if self.signal_lints is not None:
                self.signal_lints.wrote(word, actor, location, adds=reads)
        word.quiet = not last and shadow.atomics is None and word.is_signal() and not shadow.reads.item(cell)
        if len(word.writers) + len(word.readers) > word.limit:
            word.prune(actor, _as_atomic)

    def _waited(self, word: Word, actor: Any, thread: int, location: Any, order: Order, compare: str, expected: int) -> None:
        """Tell the lints of a wait that has ended, before it is known what it learns."""
        assert self.signal_lints is not None, "misuse is looked for"
        if self.tokens is not None:
            self.tokens.waited(actor, location)
        touch = (actor.time, thread, actor.thread_time, location, order, actor.warp_time)
        self.signal_lints.waited(word, actor, as_access(actor, touch, READ), compare, expected)

    def _new_word(self, address: int, itemsize: int) -> Word:
        shadow = self._shadow(self.find(address))
        word = self._words[address] = shadow.words[address] = Word(address, itemsize, shadow)
        return word

    def find(self, address: int) -> Allocation:
        """The allocation that holds an address that was checked."""
        raise NotImplementedError

    def _acquire(self, actor: Any, word: Word, order: Order, thread: int, releases: Iterable[Release]) -> None:
        if releases:
            if order.acquire:
                for release in list(releases):
                    actor.acquire(release, order.scope, thread)
            elif type(actor) is ProgramActor:
                for release in releases:
                    if release.actor is not actor and release.source is not actor.launch:
                        if reaches(release.scope, release.actor.rank, release.actor, order.scope, actor.rank, actor):
                            actor.observe(release, order.scope, thread)
                        actor.ignore(release, "it is read relaxed, and no fence stands between the read and the access")
        if word.unreleased is not None and word.unreleased[0] is not actor:
            writer, location, written = word.unreleased
            how = "by an ordinary store" if written is None else "relaxed, with no fence before it"
            actor.ignore(Release(actor.seen, (), 0, writer, location), f"it is written {how}")

    def _look_at_scopes(self, actor: Any, word: Word, touch: Touch, writes: bool) -> None:
        access = as_access(actor, touch, ATOMIC if writes else READ)
        for touches, kind in ((word.writers, ATOMIC), (word.readers, READ)):
            if not writes and kind is READ:
                break
            for other, before in touches.items():
                if other is actor:
                    continue
                earlier = as_access(other, before, kind)
                if not get_along(access, earlier) and not self._comes_before(actor, earlier, touch[1]):
                    self._report(access, earlier, word.shadow.allocation, word.address, word.address + word.itemsize)

    def atomics(
        self,
        actor: Any,
        addresses: np.ndarray,
        itemsize: int,
        allocation: Allocation,
        order: Order,
        location: Any,
        *,
        reads: bool,
        writes: bool,
    ) -> None:
        """An atomic access of a tile of elements of one allocation. One of many elements orders nothing."""
        places = np.unique(addresses)
        if places.size <= _MANY_WORDS:
            for address in places.tolist():
                self.word(actor, address, itemsize, order, location, reads, writes, ELEMENT)
            return
        shadow = self._shadow(allocation)
        cells = shadow.cells_at(places, itemsize)
        kind = ATOMIC if writes else READ
        mine = self._record(actor, location, kind, BLOCK, order=order)
        where = (cells, places, itemsize)
        if shadow.atomics is None:
            shadow.atomics = np.zeros_like(shadow.writes)
            for word in shadow.words.values():
                word.quiet = False
        for held in (shadow.writes, shadow.reads if writes else None, shadow.atomics):
            if held is not None:
                values = held[cells]
                self._look_at_all(actor, mine, shadow, values, where, BLOCK, numbers(values))
        values = shadow.atomics[cells]
        self._add_reads(values, mine)
        shadow.atomics[cells] = values


def _as_atomic(actor: Any, touch: Touch) -> Access:
    return as_access(actor, touch, ATOMIC)
