"""The text of a data race: both accesses, and which order is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...lints import silenced
from .actors import Ignored, too_narrow
from .copies import TMA_STORE, PendingActor
from .history import READ, Access
from .program_actor import ProgramActor

if TYPE_CHECKING:
    from ..memory import Allocation

_Missing = tuple[str, str, tuple[str, ...]]
_NOTHING: _Missing = ("", "TD101", ())

_UNFINISHED = (
    "a TMA store goes on behind its line: Triton before 3.9 waits until the tile has left shared memory, not until it has arrived, so "
    "neither a block barrier nor the release of a tl.atomic_* covers it; signal by dl.notify, which waits for it, or let all threads call "
    "dl.fence_sys() and put a block barrier behind that"
)

_VERBS = {"read": "reads", "write": "writes", "atomic": "atomically changes"}


@dataclass(frozen=True)
class Side:
    """One of the two accesses. who: rank and program, stream or host. line: source line, "" outside of kernels. kind: read, write, atomic.

    order: semantic and scope of an atomic access, else "".
    """

    rank: int
    who: str
    line: str
    kind: str
    order: str

    def describe(self) -> str:
        """As one line of the report."""
        if self.order:
            verb = "reads it atomically" if self.kind == READ else "changes it atomically"
            verb = f"{verb} ({self.order})"
        else:
            verb = _VERBS[self.kind]
        return f"{self.who}{f' at {self.line}' if self.line else ''}: {verb}"


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders. tensor: its name. owner: rank whose memory it is, None for memory outside of the symmetric heaps.

    first, last: indices of the first and the last element that both touch. earlier: the access that happened first in this run, which
    another run may order the other way round. missing: the order that is missing, in words. code: of its page in docs/lints: TD102 and
    TD103 where a scope or a block barrier is what is missing, else TD101.
    """

    tensor: str
    owner: int | None
    first: int
    last: int
    earlier: Side
    later: Side
    missing: str
    code: str = "TD101"
    near: tuple[str, ...] = ()
    """Source lines of a word that should have ordered the two and does not."""

    @classmethod
    def of(cls, later: Access, earlier: Access, allocation: Allocation, lo: int, hi: int) -> Race:
        """From two accesses of the bytes ``lo`` to ``hi``."""
        first, last = allocation.index(lo), allocation.index(hi - 1)
        missing, code, near = _missing(later, earlier, allocation, first, last)
        return cls(allocation.name, allocation.rank, first, last, _side(earlier), _side(later), missing, code, near)

    def silenced(self) -> bool:
        """Whether one of its source lines says that the race is meant to be there."""
        for text in (self.earlier.line, self.later.line, *self.near):
            file, _, line = text.rpartition(":")
            if line.isdecimal() and silenced(file, int(line), self.code):
                return True
        return False

    def describe(self) -> str:
        """The whole report of one race."""
        place = f"[{self.first}]" if self.first == self.last else f"[{self.first}..{self.last}]"
        owner = f" of rank {self.owner}" if self.owner is not None else ""
        return (
            f"data race on {self.tensor}{place}{owner}:\n"
            f"  {self.later.describe()}\n"
            f"  {self.earlier.describe()}, earlier in this run\n"
            f"  {self.missing} [{self.code}]"
        )


def describe_all(races: Sequence[Race]) -> str:
    """The text of a DataRaceError."""
    if len(races) == 1:
        return races[0].describe()
    return f"{len(races)} data races\n" + "\n".join(race.describe() for race in races)


def _side(access: Access) -> Side:
    actor = access.actor
    who = actor.describe(access.location)
    if access.thread >= 0 and type(actor) is ProgramActor:
        who += f", thread {access.thread}"
    return Side(actor.rank, who, actor.line(access.location), access.kind, access.order.text if access.order is not None else "")


def _short(actor: Any, location: Any = "") -> str:
    if type(actor) is ProgramActor:
        return f"program {actor.pid} of rank {actor.rank}"
    if type(actor) is PendingActor:
        return f"{actor.label} of rank {actor.rank}"
    return f"the {location}" if actor.rank < 0 and location else re.sub(r"^(rank \d+), ", r"\1's ", actor.label)


def _missing(later: Access, earlier: Access, allocation: Allocation, first: int, last: int) -> _Missing:
    """Which order is missing and how to make it, the code of that, and the lines of a word that came near to it."""
    what = f"{allocation.name}[{first}]" if first == last else f"{allocation.name}[{first}..{last}]"
    one, other = later.actor, earlier.actor
    this, that = _short(one, later.location), _short(other, earlier.location)
    if one is other:
        return (
            f"nothing orders these threads of one block: {what} is used by another thread than the one before it; "
            "put a block barrier (dl.__syncthreads(), tl.debug_barrier()) between the two, or __syncwarp() if both are of one warp",
            "TD103",
            (),
        )
    if later.order is not None and earlier.order is not None:
        why = too_narrow(earlier.order.scope, other.rank, later.order.scope, one.rank)
        return f"both are atomic, but not for each other: {why}", "TD102", ()
    if later.kind is READ:
        text = f"nothing says that the data is there: {this} may read {what} before {that} has written it"
        cure = _cure(other, one)
    elif earlier.kind is READ:
        text = f"nothing says that the reader is done: {this} overwrites {what} while {that} may still read it"
        cure = _cure(other, one)
    else:
        text = f"nothing orders the two writes: {what} may end up with what either of {this} and {that} wrote"
        cure = _cure(other, one)
    if later.order is not None or earlier.order is not None:
        atomic, plain = (later, earlier) if later.order is not None else (earlier, later)
        verb = "reads" if plain.kind is READ else "writes"
        names = (this, that) if plain is later else (that, this)
        text += f" ({names[0]} {verb} it by an ordinary access, {names[1]} atomically)"
    if _is_bulk_store(other) and other.is_known(one.seen):
        return f"{text}; {_UNFINISHED}", "TD101", ()
    if _is_bulk_store(one) or _is_bulk_store(other):
        return f"{text}; {_cure(*(actor.issuer if _is_bulk_store(actor) else actor for actor in (other, one)))}", "TD101", ()
    near, code, lines = _NOTHING if type(one) is PendingActor and one.issuer is other else _near_miss(later, earlier)
    return f"{text}; {near or cure}", code, lines


def _is_bulk_store(actor: Any) -> bool:
    return type(actor) is PendingActor and actor.label == TMA_STORE


def _cure(first: Any, second: Any) -> str:
    """How to let ``second`` come after ``first``."""
    programs = type(first) is ProgramActor, type(second) is ProgramActor
    if type(first) is PendingActor or type(second) is PendingActor:
        return _cure_of_copy(first, second)
    if all(programs):
        if first.launch is second.launch:
            return "let one release a word (dl.notify) that the other one acquires (dl.wait), or use two launches: both are of the same one"
        return "let the one release a word behind its access (dl.notify) that the other one acquires before its own (dl.wait)"
    if first.rank == second.rank:
        return "put the two into one stream, or let one stream wait for an event of the other (record_event, wait_event)"
    return "put a barrier of the ranks between the two, or a signal that one writes behind its access and the other waits for"


def _cure_of_copy(first: Any, second: Any) -> str:
    """The same, where one of them is a put or a get."""
    if type(first) is PendingActor and type(second) is PendingActor and first.rank == second.rank:
        return "put quiet() between the two calls: nothing orders puts and gets among each other"
    if type(first) is PendingActor and first.rank == second.rank:
        return f"call quiet() behind {first.label}, and let its caller meet the threads that come after it (__syncthreads)"
    if type(first) is PendingActor:
        return (
            f"wait for a signal that comes with the data (putmem_signal), or that is sent behind {first.label} and a fence() or quiet(), "
            "or put barrier_all() between the two (sync_all completes no puts)"
        )
    return f"let {second.label} come behind a block barrier, if it is of the same block, or behind a signal or barrier of the other one"


def _near_miss(later: Access, earlier: Access) -> _Missing:
    """A word that was seen but ordered nothing, or a release that does not cover the access; as ``_missing``."""
    one, other = later.actor, earlier.actor
    knowing = _threads_that_know(one, earlier)
    if knowing:
        return (
            f"{knowing} of {_short(one)} has acquired a release that covers it, but the block's other threads do not know of that: put "
            "tl.debug_barrier() behind the wait, before what they do",
            "TD103",
            (),
        )
    for ignored in reversed(one.ignored):
        if ignored.writer is other or (type(ignored.writer) is type(other) and ignored.writer.rank == other.rank):
            lines = ignored.writer.line(ignored.written_at), one.line(ignored.read_at)
            return _describe_ignored(one, ignored), "TD102" if ignored.narrow else "TD101", lines
    if type(other) is ProgramActor and other.slot >= 0:
        known = one.seen.fine_at(other.slot)
        learnt = any(one.seen.has(slot, earlier.thread_time) for slot in other.thread_slots.values())
        if learnt and known < earlier.time:
            return (
                f"{_short(one)} knows of a release by one thread of {_short(other)}, which does not cover what the block's other threads "
                "did since their last block barrier: put tl.debug_barrier() before the release, or use dl.notify",
                "TD103",
                (),
            )
        if known and known < earlier.time:
            return (
                f"the last word of {_short(other)} that {_short(one)} has acquired was released before this access: wait for one that is "
                "released behind it",
                "TD101",
                (),
            )
    return _NOTHING


def _threads_that_know(actor: Any, access: Access) -> str:
    """The thread or the warp of a block that alone knows of an access; "" if there is none."""
    if type(actor) is not ProgramActor:
        return ""
    for name, clocks in (("thread", actor.thread_seen), ("warp", actor.warp_seen)):
        for number, clock in clocks.items():
            if access.actor.comes_before(access, clock):
                return f"{name} {number}"
    return ""


def _describe_ignored(reader: Any, ignored: Ignored) -> str:
    written, read = ignored.writer.line(ignored.written_at), reader.line(ignored.read_at)
    at = f"the word that {_short(ignored.writer)} writes{f' at {written}' if written else ''}"
    return f"{at} and {_short(reader)} reads{f' at {read}' if read else ''} orders nothing: {ignored.why}"
