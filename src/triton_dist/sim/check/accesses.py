"""Looks at each ordinary access for an earlier one of the same memory that should come before it, and does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DataRaceError
from .actors import BLOCK, EACH
from .history import ATOMIC, READ, WRITE, Access, Histories
from .launch_lints import LaunchLints
from .lints import Lints
from .options import LintCheck, RaceCheck
from .order import Order, reaches
from .program_actor import ProgramActor
from .report import Race, describe_all
from .shadow import Box, Shadow, numbers, view
from .signals import SignalLints
from .tokens import TokenLint
from .unwritten import UnwrittenLint
from .words import Touch, Word

if TYPE_CHECKING:
    from ..memory import Allocation
    from ..recording.recorder import Recorder

_MANY_HISTORIES = 1 << 20


class AccessChecker:
    """Shadow memory of all allocations and the races found. options: what to do with a race. recorder: keeps what happens, if asked to."""

    recorder: Recorder | None = None

    def __init__(self, options: RaceCheck) -> None:
        self.options = options
        self.races: list[Race] = []
        self._shadows: dict[int, Shadow] = {}
        self._histories = Histories()
        self._seen: set[tuple] = set()
        self._renumber_at = _MANY_HISTORIES
        self.lints: Lints | None = None
        """Where findings go, if misuse is looked for."""
        self.reports = True
        """Whether races are reported; else only those kinds that have a code of their own, as findings."""
        self.signal_lints: SignalLints | None = None
        self.unwritten: UnwrittenLint | None = None
        self.launch_lints: LaunchLints | None = None
        self.tokens: TokenLint | None = None

    def look_for_misuse(self, options: LintCheck) -> None:
        """Report findings of the lints, too."""
        self.lints = Lints(options)
        self.signal_lints = SignalLints(self.lints)
        self.unwritten = UnwrittenLint(self.lints)
        self.launch_lints = LaunchLints(self.lints)
        self.tokens = TokenLint(self.lints, self._histories) if options.tokens else None

    def access(self, actor: Any, box: Box, kind: str, location: Any, allocation: Allocation, thread: int = BLOCK) -> None:
        """An ordinary read or write of a box of memory."""
        shadow = self._shadow(allocation)
        if allocation.poisoned and kind is READ and self.unwritten is not None:
            self.unwritten.box(actor, shadow, box, location)
        place = shadow.place(box)
        if self.tokens is not None and kind is READ:
            self.tokens.read(actor, shadow, place, location)
        mine = self._record(actor, location, kind, thread)
        known = actor.known
        if type(place) is int:
            written = shadow.writes.item(place)
            if written and written != mine and written not in known:
                self._look(actor, written, mine, shadow, shadow.writes, place, thread)
            if shadow.atomics is not None:
                self._look_at_all(actor, mine, shadow, shadow.atomics, place, thread)
            if shadow.words:
                self._look_at_words(actor, mine, shadow, box, kind, thread)
            read = shadow.reads.item(place)
            if kind is READ:
                if read != mine:
                    shadow.reads[place] = self._histories.with_read(read, mine)
                return
            if read and (read in known or self._look(actor, read, mine, shadow, shadow.reads, place, thread)):
                shadow.reads[place] = 0
            shadow.writes[place] = mine
            return
        self._look_at_all(actor, mine, shadow, shadow.writes, place, thread)
        if shadow.atomics is not None:
            self._look_at_all(actor, mine, shadow, shadow.atomics, place, thread)
        if shadow.words:
            self._look_at_words(actor, mine, shadow, box, kind, thread)
        reads = view(shadow.reads, place)
        if kind is READ:
            self._add_reads(reads, mine)
            return
        found = numbers(reads)
        if found != [0]:
            racing = self._look_at_all(actor, mine, shadow, shadow.reads, place, thread, found)
            reads[...] = _only(reads, racing)
        view(shadow.writes, place)[...] = mine

    def scattered(
        self,
        actor: Any,
        addresses: np.ndarray,
        itemsize: int,
        kind: str,
        location: Any,
        allocation: Allocation,
        lanes: np.ndarray | None = None,
    ) -> None:
        """Ordinary accesses of single elements of one allocation. lanes: the thread of each, where that is known."""
        shadow = self._shadow(allocation)
        if allocation.poisoned and kind is READ and self.unwritten is not None:
            self.unwritten.scattered(actor, shadow, addresses, itemsize, location)
        cells = shadow.cells_at(addresses, itemsize)
        mine = self._record(actor, location, kind, BLOCK if lanes is None else EACH, fresh=lanes is not None)
        if lanes is not None:
            order = np.argsort(addresses, kind="stable")
            access = self._histories.newest[mine]
            access.places, access.lanes = addresses[order], lanes[order]
        written = shadow.writes[cells]
        self._look_at_all(actor, mine, shadow, written, (cells, addresses, itemsize), BLOCK, numbers(written))
        if shadow.atomics is not None:
            atomics = shadow.atomics[cells]
            self._look_at_all(actor, mine, shadow, atomics, (cells, addresses, itemsize), BLOCK, numbers(atomics))
        if shadow.words:
            for address in np.unique(addresses).tolist():
                self._look_at_words(actor, mine, shadow, Box(address, itemsize, (), itemsize), kind, BLOCK)
        reads = shadow.reads[cells]
        if kind is READ:
            self._add_reads(reads, mine)
            shadow.reads[cells] = reads
            return
        racing = self._look_at_all(actor, mine, shadow, reads, (cells, addresses, itemsize), BLOCK, numbers(reads))
        shadow.reads[cells] = _only(reads, racing)
        shadow.writes[cells] = mine

    def _add_reads(self, reads: np.ndarray, mine: int) -> None:
        found = numbers(reads)
        with_read = self._histories.with_read
        if len(found) == 1:
            after = with_read(found[0], mine)
            if after != found[0]:
                reads[...] = after
            return
        before = reads.copy()
        for number in found:
            after = with_read(number, mine)
            if after != number:
                reads[before == number] = after

    def _record(self, actor: Any, location: Any, kind: str, thread: int, fresh: bool = False, order: Order | None = None) -> int:
        """The history of an access by ``actor`` at the present time."""
        key = (location, kind, thread, order)
        number = None if fresh else actor.records.get(key)
        if number is None:
            is_program = type(actor) is ProgramActor
            access = Access(actor, actor.time, thread, actor.thread_time, location, kind, order, actor.warp_time)
            if self.recorder is not None:
                access.moment = self.recorder.moment(actor)
            number = self._histories.new(access)
            if not fresh:
                actor.records[key] = number
            if is_program:
                actor.dirty = True
        return number

    # Looking for what is not ordered

    def _look_at_all(
        self, actor: Any, mine: int, shadow: Shadow, cells: np.ndarray, place: Any, thread: int, found: list[int] | None = None
    ) -> list[int]:
        """Compare an access with the histories in some cells, or with those ``found`` there. Returns those with which it races."""
        known, racing = actor.known, []
        for number in numbers(view(cells, place)) if found is None else found:
            if number and number != mine and number not in known and not self._look(actor, number, mine, shadow, cells, place, thread):
                racing.append(number)
        return racing

    def _look(self, actor: Any, number: int, mine: int, shadow: Shadow, cells: np.ndarray, place: Any, thread: int) -> bool:
        """Compare an access with a history in some cells; remember that all of it comes before, if it does. Whether it races with none."""
        access = self._histories.newest[mine]
        all_before = no_race = True
        for earlier in self._histories.accesses(number):
            if earlier.actor is actor:
                if earlier.by_threads and earlier.time == access.time:
                    all_before = False
                    if access.by_threads and not get_along(access, earlier):
                        lo, hi, shared = _extent(shadow, cells, place, number)
                        if self._other_thread(access, earlier, shared):
                            self._report(access, earlier, shadow.allocation, lo, hi)
                continue
            if self._comes_before(actor, earlier, thread):
                continue
            if get_along(access, earlier):
                all_before = False
                continue
            lo, hi, shared = _extent(shadow, cells, place, number)
            if (access.lanes is None and earlier.lanes is None) or not _threads_are_ordered(access, earlier, shared):
                all_before = no_race = False  # other lines of this actor race with it as well, and this one may be silenced
                self._report(access, earlier, shadow.allocation, lo, hi)
        if all_before and not (type(actor) is ProgramActor and actor.threads_differ):
            actor.known.add(number)
        return no_race

    def _comes_before(self, actor: Any, earlier: Access, thread: int) -> bool:
        """Whether an access of another actor comes before what ``actor`` (one thread of it) does now."""
        return actor.covers(earlier, thread) if type(actor) is ProgramActor else actor.covers(earlier)

    def _other_thread(self, access: Access, earlier: Access, shared: list[int]) -> bool:
        """Whether different threads of one block met at an address, with no barrier between."""
        for address in shared:
            mine, other = access.thread_at(address), earlier.thread_at(address)
            if mine == other or mine < 0 or other < 0:
                continue
            actor = access.actor
            if actor.threads_differ and actor.comes_before(earlier, actor.clock_of(mine), other):
                continue
            return True
        return False

    def _look_at_words(self, actor: Any, mine: int, shadow: Shadow, box: Box, kind: str, thread: int) -> None:
        """Compare an ordinary access with the atomic ones of the words that it touches."""
        words = shadow.words
        if not box.dims and box.run <= 8:
            inside = [words[address] for address in range(box.start, box.end) if address in words]
        else:
            inside = [word for address, word in words.items() if box.holds(address, address + word.itemsize)]
        access = self._histories.newest[mine]
        for word in inside:
            word.quiet = False
            for touches, other_kind in ((word.writers, ATOMIC), (word.readers, READ)):
                if kind is READ and (other_kind is READ or self._has_observed(actor, word, thread)):
                    break
                for other, touch in touches.items():
                    earlier = as_access(other, touch, other_kind)
                    if other is actor:
                        if earlier.time == access.time and access.by_threads and self._other_thread(access, earlier, [word.address]):
                            self._report(access, earlier, shadow.allocation, word.address, word.address + word.itemsize)
                        continue
                    if not self._comes_before(actor, earlier, thread):
                        self._report(access, earlier, shadow.allocation, word.address, word.address + word.itemsize)
            if kind is WRITE:
                word.overwritten(actor, access.location)

    def _has_observed(self, actor: Any, word: Word, thread: int) -> bool:
        """Whether all writes of a word are read-modify-writes, of which the last, that saw all others, comes before what ``actor`` does."""
        writes = word.writes
        if not writes or word.dropped or not all(write.keeps for write in writes):
            return False
        last = writes[-1]
        touch = word.writers.get(last.actor)
        return last.actor is actor or touch is not None and self._comes_before(actor, as_access(last.actor, touch, ATOMIC), thread)

    # Housekeeping

    def _shadow(self, allocation: Allocation) -> Shadow:
        shadow = self._shadows.get(allocation.lo)
        if shadow is None or shadow.allocation is not allocation:
            shadow = self._shadows[allocation.lo] = Shadow(allocation)
        return shadow

    def forget_unused(self) -> None:
        """Forget the histories that no cell holds any more, once there are many."""
        if len(self._histories) < self._renumber_at:
            return
        for lo, shadow in list(self._shadows.items()):
            if shadow.allocation.freed:
                del self._shadows[lo]
        held = [cells for shadow in self._shadows.values() for cells in (shadow.writes, shadow.reads, shadow.atomics) if cells is not None]
        new = self._histories.renumber(np.unique(np.concatenate([np.unique(cells) for cells in held] or [np.zeros(1, np.int32)])))
        for shadow in self._shadows.values():
            shadow.writes, shadow.reads = new[shadow.writes], new[shadow.reads]
            if shadow.atomics is not None:
                shadow.atomics = new[shadow.atomics]
        for actor in self.living():
            actor.known.clear()
            actor.records.clear()
        self._renumber_at = max(_MANY_HISTORIES, 2 * len(self._histories))

    def living(self) -> list[Any]:
        """The actors that may access memory again."""
        raise NotImplementedError

    def _report(self, access: Access, earlier: Access, allocation: Allocation, lo: int, hi: int) -> None:
        key = (*sorted([_line_key(access), _line_key(earlier)], key=str), allocation.name)
        if key in self._seen:
            return
        self._seen.add(key)
        race = Race.of(access, earlier, allocation, lo, hi)
        if race.silenced():
            return
        if not self.reports:
            if race.code != "TD101" and self.lints is not None:
                self.lints.report_at(race.code, race.describe(), access.actor, access.location)
            return
        self.races.append(race)
        if self.recorder is not None:
            self.recorder.raced(race, access, earlier)
        if not self.options.collect or len(self.races) >= self.options.limit:
            raise self.error()

    def error(self) -> DataRaceError:
        """The error for the races found so far."""
        return DataRaceError(describe_all(self.races), tuple(self.races))

    def finish(self) -> None:
        """Raise DataRaceError for what was collected; called when everything has run."""
        if self.races:
            raise self.error()


def _only(cells: np.ndarray, kept: list[int]) -> Any:
    """Cells in which only some histories are left."""
    return np.where(np.isin(cells, kept), cells, 0) if kept else 0


def _line_key(access: Access) -> tuple:
    """What tells accesses apart that are reported by themselves; an operator of torch may read and write."""
    kernel = getattr(access.actor, "kernel", None)
    return (None, str(access.location)) if kernel is None else (kernel.name, str(access.location), access.kind)


def get_along(access: Access, earlier: Access) -> bool:
    """Whether two accesses do no harm to each other in any order: both read, or both are atomic and in each other's scope."""
    if access.kind is READ and earlier.kind is READ:
        return True
    if access.order is None or earlier.order is None:
        return False
    one, other = access.actor, earlier.actor
    return reaches(access.order.scope, one.rank, one, earlier.order.scope, other.rank, other)


def _threads_are_ordered(access: Access, earlier: Access, shared: list[int]) -> bool:
    """Whether the threads that met at each address are ordered by what they released and acquired by themselves."""
    actor = access.actor
    for address in shared:
        clock = actor.clock_of(access.thread_at(address)) if type(actor) is ProgramActor else actor.seen
        if not earlier.actor.comes_before(earlier, clock, earlier.thread_at(address)):
            return False
    return True


def as_access(actor: Any, touch: Touch, kind: str) -> Access:
    """What a word remembers of an atomic access, as an access."""
    time, thread, thread_time, location, order, warp_time = touch
    return Access(actor, time, thread, thread_time, location, kind, order, warp_time)


def _extent(shadow: Shadow, cells: np.ndarray, place: Any, number: int) -> tuple[int, int, list[int]]:
    """First and last byte of an access whose cells hold a history, and the addresses of some of them."""
    granule = shadow.granule
    if type(place) is int:
        lo = shadow.lo + place * granule
        return lo, min(lo + granule, shadow.allocation.hi), [lo]
    if type(place) is tuple and isinstance(place[0], np.ndarray):
        indices, addresses, itemsize = place
        hits = cells == number
        if hits.ndim > 1:
            hits = hits.any(axis=1)
        found = addresses[hits]
        return int(found.min()), int(found.max()) + itemsize, found.tolist()
    whole = np.arange(len(cells), dtype=np.int32)
    found = np.sort(view(whole, place)[view(cells, place) == number])
    addresses = shadow.lo + found.astype(np.int64) * granule
    return int(addresses[0]), min(int(addresses[-1]) + granule, shadow.allocation.hi), addresses[:256].tolist()
