"""Lints of signal words: what whoever writes one must know of those who wait for it.

They are found by the order that the race check follows, not by how this run happened to go: a signal that another schedule would lose
is found in one that does not lose it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.address_map import STRIDE
from ..memory import WORDS
from ..requests import COMPARISONS, SYMBOLS
from .actors import BLOCK, EACH, Release
from .history import ATOMIC, Access
from .lints import Lints
from .program_actor import ProgramActor
from .words import Word
from .words import is_known as is_known_by_all

if TYPE_CHECKING:
    from ..memory import Memory

_MANY = 64


class Waited(NamedTuple):
    """A wait that has ended: who, its access, and the condition."""

    actor: Any
    access: Access
    compare: str
    expected: int

    def holds(self, value: int, itemsize: int) -> bool:
        """Whether the condition holds for a value of the word."""
        return COMPARISONS[self.compare](value, self.expected, 1 << (8 * itemsize - 1))


class Candidate(NamedTuple):
    """A finding that depends on the value that a write leaves, which is known at the next access of the word."""

    code: str
    message: str
    actor: Any
    location: Any
    old: int
    other: tuple[Any, Any]
    """Who else takes part, and where."""
    condition: Waited | None
    """The new value has to fulfil it; None: it has to differ from the old one."""
    settled: bool = False
    """Whether the value was found to be as it has to be."""


class SignalState:
    """What is known of one word. Everything is forgotten when an ordinary store overwrites it.

    equal: waits for equality that saw the present value. idle: waits that held because of the signal of an earlier call.
    calls: for each condition at a source line of a rank the last launch that waited there, and whether it really had to.
    writers: for each source line of a rank the launches that wrote there, two at most. waiters: the last wait of each launch.
    setters: the ranks that have overwritten it without reading it. seen: for each actor the number of writes of which its last wait saw the
    last one for sure, the thread that waited, and when. waited: whether anyone has ever waited for it.
    Of a word of a signal pad, users: the stream and last access of each rank. putter: who set it last. put: a write that found 0, whom it
    clashes with, and who wrote where; whether it set the word the next one shows.
    """

    __slots__ = ("equal", "idle", "calls", "writers", "waiters", "setters", "seen", "candidates", "waited", "users", "putter", "put")

    def __init__(self) -> None:
        self.equal: list[Waited] = []
        self.idle: list[Waited] = []
        self.calls: dict[tuple, tuple[Any, bool]] = {}
        self.writers: dict[tuple, list[Any]] = {}
        self.waiters: dict[Any, Waited] = {}
        self.setters: dict[int, Any] = {}
        self.seen: dict[Any, tuple[int, int, int]] = {}
        self.candidates: list[Candidate] = []
        self.waited = False
        self.users: dict[int, tuple[Any, Access]] = {}
        self.putter: Access | None = None
        self.put: tuple[Access, Access | None, tuple[Any, Any]] | None = None


_TWO_GROUPS = "two ranks signal by it, of different groups; give each group memory of its own, or channels"


class SignalLints:
    """TD107 to TD110. lints: where findings go."""

    def __init__(self, lints: Lints) -> None:
        self._lints = lints
        self._notifiers: dict[int, dict[Any, None]] = {}
        """For each offset in the symmetric heaps the launches that wrote a word there."""

    def wrote(self, word: Word, actor: Any, location: Any, adds: bool) -> None:
        """A write of a word has been logged; memory has the value before it. adds: it is a read-modify-write."""
        state = word.lint
        if state is None:
            state = word.lint = SignalState()
        old = word.values[-1]
        if state.candidates:
            self._settle(word, state, old)
        for waited in state.equal:
            if waited.actor is not actor and not knows(actor, waited.access):
                state.candidates.append(_overtaken(word, waited, actor, location, old, adds))
        state.equal.clear()
        if word.shadow.allocation.is_pad and word.writes and word.writes[-1].touch is not None:
            self._look_at_pad(word, state, actor, location, word.writes[-1].touch, old)
        if not adds:
            self._look_at_previous(word, state, actor, location, old)
            state.setters[actor.rank] = actor
        launch = getattr(actor, "launch", None)
        if launch is None:
            return
        key = _place(actor, location)
        launches = state.writers.setdefault(key, [])
        if launch not in launches:
            launches.append(launch)
            del launches[:-2]
        if word.shadow.allocation.symmetric:
            notifiers = self._notifiers.setdefault(word.address % STRIDE, {})
            notifiers[launch] = None
            if len(notifiers) > _MANY:
                del notifiers[next(iter(notifiers))]
        if len(launches) == 2:
            for idle in state.idle:
                if idle.actor is not actor and not knows(actor, idle.access):
                    found = Candidate("TD109", _stale(word, idle, actor), idle.actor, idle.access.location, old, (actor, location), idle)
                    state.candidates.append(found)

    def _look_at_previous(self, word: Word, state: SignalState, actor: Any, location: Any, old: int) -> None:
        """A write that does not read comes behind the one before it, or one of the two is lost in some schedule."""
        if len(word.writes) < 2:
            return
        previous = word.writes[-2]
        if previous.actor is actor or is_known(actor, previous) or _has_seen(word, state, actor):
            return
        label = word.shadow.allocation.label(word.address)
        who, other = actor.describe(location), previous.actor.describe(previous.location)
        groups = [rank for rank in state.setters if rank not in (actor.rank, previous.actor.rank)]
        if groups and previous.actor.rank != actor.rank:
            code, what = (
                "TD110",
                f"; rank {groups[0]} signals by the same word: give each group of ranks words of its own, or a barrier between",
            )
        else:
            code = "TD107"
            what = "; let it wait until the other one is done with the word, or count by adding and wait for a count"
        line = previous.actor.line(previous.location)
        message = (
            f"{who} overwrites {label} and does not know of the write before, by {other}{f' at {line}' if line else ''}: in another "
            f"schedule that one comes later and the signal is lost{what}"
        )
        state.candidates.append(Candidate(code, message, actor, location, old, (previous.actor, previous.location), None))

    def _look_at_pad(self, word: Word, state: SignalState, actor: Any, location: Any, access: Access, old: int) -> None:
        """A word of a signal pad is swapped: by one stream of a rank at a time, and set by one rank at a time."""
        stream = actor.launch.stream if type(actor) is ProgramActor else actor
        before = state.users.get(actor.rank)
        state.users[actor.rank] = stream, access
        if state.put is not None and old != 0:
            # Now it is known that it set the word; a swap of 0 for 0 is a look at a word that counts.
            put, clashes_with, report = state.put
            state.putter = put
            if clashes_with is not None:
                self._report_pad(word, *report, clashes_with, _TWO_GROUPS)
        state.put = None
        if before is not None and before[0] is not stream and not knows(actor, before[1]):
            why = f"two streams of rank {actor.rank} use it, and nothing orders them; give each stream a channel of its own"
            self._report_pad(word, actor, location, before[1], why)
        elif old == 0:
            last = state.putter
            clashes = last is not None and last.actor.rank != actor.rank and not knows(actor, last)
            state.put = access, last if clashes else None, (actor, location)

    def _report_pad(self, word: Word, actor: Any, location: Any, other: Access, why: str) -> None:
        line = other.actor.line(other.location)
        message = (
            f"{actor.describe(location)} uses {word.shadow.allocation.label(word.address)}, as does "
            f"{other.actor.describe(other.location)}{f' at {line}' if line else ''}: {why}"
        )
        self._lints.report_at("TD110", message, actor, location, (other.actor, other.location))

    def saw(self, word: Word, actor: Any, thread: int) -> None:
        """A wait has ended, and the word knows at which write at the earliest."""
        state, count = word.lint, word.dropped + len(word.writes)
        if state is None or word.seen_by.get(actor) != count:
            return
        if len(state.seen) > _MANY:
            state.seen.clear()
        state.seen[actor] = count, thread, actor.time

    def waited(self, word: Word, actor: Any, access: Access, compare: str, expected: int) -> None:
        """A wait for a word has ended; what it has learnt from it is not known yet to ``actor``."""
        state = word.lint
        if state is None:
            state = word.lint = SignalState()
        present = WORDS[word.itemsize][word.index]
        state.waited = True
        if state.candidates:
            self._settle(word, state, present)
        waited = Waited(actor, access, compare, expected)
        if compare == "eq" and len(state.equal) < _MANY:
            state.equal.append(waited)
        if type(actor) is not ProgramActor:
            return
        self._look_at_groups(word, state, waited)
        self._look_at_earlier_call(word, state, waited, present)

    def _look_at_groups(self, word: Word, state: SignalState, waited: Waited) -> None:
        actor, launch = waited.actor, waited.actor.launch
        notifiers = self._notifiers.get(word.address % STRIDE, ()) if word.shadow.allocation.symmetric else ()
        for other, before in state.waiters.items():
            if other is launch or other not in notifiers or before.actor.rank != actor.rank or knows(actor, before.access):
                continue
            if launch in notifiers:
                label = word.shadow.allocation.label(word.address)
                message = (
                    f"{actor.describe()} signals and waits by {label}, and so does {before.actor.describe()} at "
                    f"{before.actor.line(before.access.location)}, a launch that nothing orders with this one ({launch.stream.label}; "
                    f"{other.stream.label}): each may take the other's signal for its own; give each stream words of its own"
                )
                self._lints.report_at("TD110", message, actor, waited.access.location, (before.actor, before.access.location))
        if len(state.waiters) > _MANY:
            del state.waiters[next(iter(state.waiters))]
        state.waiters[launch] = waited

    def _look_at_earlier_call(self, word: Word, state: SignalState, waited: Waited, present: int) -> None:
        """Whether it held by what an earlier launch had already waited for at the same line."""
        actor, launch = waited.actor, waited.actor.launch
        writes, values = word.writes, word.values
        known = next((number for number in range(len(writes), 0, -1) if is_known(actor, writes[number - 1])), 0)
        held = (known > 0 or not word.dropped) and waited.holds(values[known] if known < len(writes) else present, word.itemsize)
        key = (*_place(actor, waited.access.location), waited.compare, waited.expected)
        before = state.calls.get(key)
        if before is None or before[0] is launch:
            state.calls[key] = (launch, not held or (before is not None and before[1]))
            return
        state.calls[key] = (launch, before[1])
        if not held or not before[1] or launch.stream is not before[0].stream:
            return
        for number in range(known, len(writes)):
            later = writes[number]
            again = state.writers.get(_place(later.actor, later.location), ())
            if len(again) == 2 and waited.holds(values[number + 1] if number + 1 < len(writes) else present, word.itemsize):
                self._lints.report_at(
                    "TD109", _stale(word, waited, later.actor), actor, waited.access.location, (later.actor, later.location)
                )
                return
        if len(state.idle) < _MANY:
            state.idle.append(waited)

    def _settle(self, word: Word, state: SignalState, value: int) -> None:
        """The word has ``value`` now, which the last write left."""
        left = []
        for candidate in state.candidates:
            if candidate.settled:
                wrong = True
            elif candidate.condition is None:
                wrong = value != candidate.old
            else:
                wrong = candidate.condition.holds(value, word.itemsize)
            if wrong and not state.waited:
                left.append(candidate._replace(settled=True))
            elif wrong:
                self._lints.report_at(candidate.code, candidate.message, candidate.actor, candidate.location, candidate.other)
        state.candidates = left

    def finish(self, words: dict[int, Word], memory: Memory) -> None:
        """Look at what is left: last writes, and waits that will never end because their value has come and gone."""
        for word in words.values():
            if word.lint is not None and word.lint.candidates and not word.shadow.allocation.freed:
                self._settle(word, word.lint, WORDS[word.itemsize][word.index])
        for parked in list(memory.watchers.values()):
            for program in parked:
                waits_at, actor = words.get(program.waiting.address), getattr(program, "race", None)
                if waits_at is not None and actor is not None and program.waiting.compare == "eq":
                    self._missed(waits_at, actor, program.waiting)

    def _missed(self, word: Word, actor: Any, request: Any) -> None:
        present = WORDS[word.itemsize][word.index]
        for number, value in enumerate(word.values):
            write, after = word.writes[number], word.values[number + 1] if number + 1 < len(word.values) else present
            if value != request.expected or after == value or write.actor is actor or is_known(actor, write) or not number:
                continue
            access = Access(actor, actor.time, -1, actor.thread_time, request.location, ATOMIC)
            found = _overtaken(word, Waited(actor, access, "eq", request.expected), write.actor, write.location, value, write.keeps)
            self._lints.report_at(found.code, f"{found.message} (in this run it never does)", found.actor, found.location, found.other)
            return


def knows(actor: Any, access: Access) -> bool:
    """Whether some thread of ``actor`` knows of an access. Which thread is not asked: no right program is to be blamed."""
    if actor.covers(access):
        return True
    clocks = [*actor.thread_seen.values(), *actor.warp_seen.values()] if type(actor) is ProgramActor else []
    return any(access.actor.comes_before(access, clock) for clock in clocks)


def is_known(actor: Any, release: Release) -> bool:
    """The same of a logged write."""
    if release.actor is actor or release.touch is None:
        return is_known_by_all(actor, release)
    return knows(actor, release.touch)


def _has_seen(word: Word, state: SignalState, actor: Any) -> bool:
    """Whether who has just written a word had seen the write before: both are then in this order, whatever else orders them."""
    count, reader, time = state.seen.get(actor, (-1, BLOCK, 0))
    if count != word.dropped + len(word.writes) - 1:
        return False
    touch = word.writes[-1].touch
    return reader in (BLOCK, EACH) or touch is None or touch.thread == reader >= 0 or time < touch.time


def _place(actor: Any, location: Any) -> tuple:
    kernel = getattr(actor, "kernel", None)
    return actor.rank, None if kernel is None else kernel.name, location


def _overtaken(word: Word, waited: Waited, actor: Any, location: Any, old: int, adds: bool) -> Candidate:
    label = word.shadow.allocation.label(word.address)
    line = waited.actor.line(waited.access.location)
    waiter = f"{waited.actor.describe('')}{f' at {line}' if line else ''}"
    verb = "adds to" if adds else "overwrites"
    cure = (
        'wait for cmp="ge", which a later count fulfils too, or let the writer wait until the waiter is done'
        if adds
        else 'let the writer wait for a signal of the waiter first, or use numbers that grow and cmp="ge"'
    )
    message = (
        f"{actor.describe(location)} {verb} {label} while {waiter} may still wait for it to be {waited.expected}: nothing says that the "
        f"wait has ended, and in another schedule it never sees {waited.expected}; {cure}"
    )
    return Candidate("TD108" if adds else "TD107", message, actor, location, old, (waited.actor, waited.access.location), None)


def _stale(word: Word, waited: Waited, writer: Any) -> str:
    label = word.shadow.allocation.label(word.address)
    return (
        f"{waited.actor.describe()} waits for {label} {SYMBOLS[waited.compare]} {waited.expected}, which holds since the call before: "
        f"nobody has reset the word, so this wait does not wait for this call's signal of {writer.describe()}; reset the word behind the "
        "wait and before the next signal, or count calls and wait for the number of this one"
    )
