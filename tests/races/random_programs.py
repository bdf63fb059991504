"""Random programs of several ranks, and which of their accesses race, worked out the long way: as sets of all that comes before.

A program is straight-line code of a few blocks: plain accesses of shared cells, puts and gets of them, and what may order all that
(signals, waits, atomics, block barriers, fences, ``quiet``). ``races_of`` knows nothing of clocks, epochs or what a cell has held: each
thread of interest has the set of all events before it, as bits of an integer. Of a run it takes only in which order the words were changed.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

CELLS, TILE, COUNTERS, WORDS = 3, 4, 5, 7
"""Of each rank: tiles of shared data, elements of each, words that are only added to, all words. The others are set, and waited for until
they are not 0."""

MOST_WRITES = 14
"""Of a word; the checker keeps 16."""

FIRST, REST = 0, 1
"""The threads of a block that are told apart: the first one, which does what a scalar store or atomic says, and all others."""


@dataclasses.dataclass
class Statement:
    """One line. rank, program: who does it. kind: load, store (``tile``: of all elements of a cell, else of one), put, get (``blocking``
    or not, from cell ``origin``), notify, wait, atomic, barrier, fence, quiet, shmem fence.

    owner: rank whose memory it touches. cell, element: of data. word: of words, -1 for a put without a signal; added: what it adds, or with
    ``sets`` what it sets; value: what a wait waits for.
    release, acquire, scope ("gpu", "sys"): of a signal or an atomic. used: whether anything uses the result of an atomic.
    """

    rank: int
    program: int
    kind: str
    owner: int = 0
    cell: int = 0
    element: int = 0
    tile: bool = False
    word: int = 0
    added: int = 1
    sets: bool = False
    value: int = 0
    acquire: bool = False
    release: bool = False
    scope: str = "sys"
    used: bool = True
    origin: int = 0
    blocking: bool = False
    line: int = 0

    @property
    def writes(self) -> bool:
        return self.kind == "store"

    def elements(self) -> set[tuple[int, int]]:
        """(owner, index in ``data``) of all that a load or store touches."""
        first = self.cell * TILE
        return {(self.owner, first + index) for index in (range(TILE) if self.tile else (self.element,))}

    def source(self, number: int) -> str:
        """Its line; ``number`` is of a place in ``sink`` that nothing else uses."""
        data, word = f"dl.symm_at(data, {self.owner}) + {self.cell * TILE}", f"dl.symm_at(words, {self.owner}) + {self.word}"
        place = f"{data} + tl.arange(0, {TILE})" if self.tile else f"{data} + {self.element}"
        sink = f"sink + {number * TILE}" + (f" + tl.arange(0, {TILE})" if self.tile else "")
        if self.kind == "load":
            return f"tl.store({sink}, tl.load({place}))"
        if self.kind == "store":
            return f"tl.store({place}, tl.full(({TILE},), {number}, tl.int32))" if self.tile else f"tl.store({place}, {number})"
        if self.kind == "notify":
            scope, op = "gpu" if self.scope == "gpu" else "intra_node", "set" if self.sets else "add"
            return f'dl.notify(words + {self.word}, {self.owner}, signal={self.added}, sig_op="{op}", comm_scope="{scope}")'
        if self.kind == "wait":
            return f'dl.wait(words + {self.word}, 1, "{self.scope}", "acquire", waitValue={self.value}, cmp="ge")'
        if self.kind == "atomic":
            semantic = {(0, 0): "relaxed", (1, 0): "acquire", (0, 1): "release", (1, 1): "acq_rel"}[self.acquire, self.release]
            call = f'tl.atomic_add({word}, {self.added}, sem="{semantic}", scope="{self.scope}")'
            return f"tl.store({sink}, {call})" if self.used else call
        if self.kind in ("put", "get"):
            form = "" if self.blocking else "_nbi"
            what = f"data + {self.cell * TILE}, data + {self.origin * TILE}, {4 * TILE}"
            if self.kind == "get" or self.word < 0:
                return f"shmem.{self.kind}mem{form}_block({what}, {self.owner})"
            op = "shmem.NVSHMEM_SIGNAL_SET" if self.sets else "shmem.NVSHMEM_SIGNAL_ADD"
            return f"shmem.putmem_signal{form}_block({what}, words + {self.word}, {self.added}, {op}, {self.owner})"
        if self.kind in ("quiet", "shmem fence"):
            return "shmem.quiet()" if self.kind == "quiet" else "shmem.fence()"
        if self.kind == "fence":
            return "dl.fence_sys()"
        return "tl.debug_barrier()"


class RandomProgram:
    """Statements in an order in which they can run; every other order ends, too, as words only grow."""

    def __init__(self, draw: random.Random, unused_atomics: bool, copies: bool = False) -> None:
        self.ranks, self.programs = draw.choice(((1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (3, 2)))
        self.statements: list[Statement] = []
        self._draw, self._unused_atomics = draw, unused_atomics
        self._narrow, self._atomics = draw.choice((0.0, 0.0, 0.3)), draw.choice((0.0, 0.3, 0.7))
        self._totals: dict[tuple[int, int], int] = {}
        self._writes: dict[tuple[int, int], int] = {}
        self._loads: set[tuple] = set()
        fences = draw.choice((0, 0, 1))
        for _ in range(draw.randint(4, 22)):
            kind = draw.choices(("access", "tell", "wait", "barrier", "fence", "hand over"), (4, 2, 2, 1, fences, 6))[0]
            block = draw.randrange(self.ranks), draw.randrange(self.programs)
            if kind == "access":
                self._access(block, draw.randrange(self.ranks), draw.randrange(CELLS))
            elif kind == "tell":
                self._tell(block, draw.randrange(self.ranks))
            elif kind == "wait":
                self._wait(block, draw.randrange(WORDS))
            elif kind == "hand over":
                self._hand_over(block, (draw.randrange(self.ranks), draw.randrange(self.programs)))
            else:
                self.statements.append(Statement(*block, kind))
            if copies and draw.random() < 0.6:
                block = draw.randrange(self.ranks), draw.randrange(self.programs)
                kind = draw.choice(("put", "put", "put", "get", "quiet", "shmem fence"))
                self._copy(block, kind) if kind in ("put", "get") else self.statements.append(Statement(*block, kind))

    def _copy(self, block: tuple[int, int], kind: str) -> None:
        """A put or a get; often with a signal that somebody waits for, who accesses what was put."""
        draw, owner = self._draw, self._draw.randrange(self.ranks)
        cell, origin = draw.sample(range(CELLS), 2)
        one = Statement(*block, kind, owner, cell, tile=True, word=-1, origin=origin, blocking=draw.random() < 0.4)
        if kind == "put" and draw.random() < 0.6:
            one.word, one.added, one.release = draw.randrange(WORDS), draw.choice((1, 2)), True
            one.sets = one.word >= COUNTERS
            if not self._may_change(one):
                return
        self.statements.append(one)
        if one.word >= 0 and draw.random() < 0.7:
            other = owner, draw.randrange(self.programs)
            self._wait(other, one.word)
            self._access(other, owner, cell)

    def _may_change(self, one: Statement) -> bool:
        """Whether its word has room for one more change; counts it."""
        place = one.owner, one.word
        if self._writes.get(place, 0) >= MOST_WRITES:
            return False
        self._writes[place] = self._writes.get(place, 0) + 1
        self._totals[place] = self._totals.get(place, 0) + one.added
        return True

    def _hand_over(self, block: tuple[int, int], other: tuple[int, int]) -> None:
        """Something that looks like order: an access, a signal, a wait for it, and an access of the same cell."""
        owner, cell = self._draw.randrange(self.ranks), self._draw.randrange(CELLS)
        self._access(block, owner, cell)
        word = self._tell(block, other[0])
        if word is not None and self._draw.random() < 0.8:
            self._wait(other, word)
        elif word is not None:
            self._tell(other, other[0], word)  # an atomic that reads it
        self._access(other, owner, cell)

    def _access(self, block: tuple[int, int], owner: int, cell: int) -> None:
        kind, tile, element = self._draw.choice(("load", "store")), self._draw.random() < 0.6, self._draw.randrange(TILE)
        what = (block, owner, cell, tile, element)
        if kind == "load" and what in self._loads:
            return  # the compiler may drop one like an earlier one
        self._loads.add(what)
        # Threads of one block that meet in a cell with no barrier between are another matter: which of them have an element, nobody says.
        since = itertools.takewhile(lambda one: one.kind not in ("barrier", "notify", "wait", "put", "get"), reversed(self._of(block)))
        if any((one.owner, one.cell) == (owner, cell) and "store" in (one.kind, kind) for one in since if one.kind in ("load", "store")):
            self.statements.append(Statement(*block, "barrier"))
        self.statements.append(Statement(*block, kind, owner, cell, element, tile))

    def _of(self, block: tuple[int, int]) -> list[Statement]:
        return [one for one in self.statements if (one.rank, one.program) == block]

    def _tell(self, block: tuple[int, int], owner: int, word: int | None = None) -> int | None:
        """A signal or an atomic of a word, which is returned; of a given one, an atomic."""
        draw = self._draw
        kind = "atomic" if word is not None or draw.random() < self._atomics else "notify"
        one = Statement(*block, kind, owner, word=draw.randrange(WORDS) if word is None else word, added=draw.choice((1, 1, 2)))
        one.scope = "gpu" if draw.random() < self._narrow and (kind == "atomic" or owner == block[0]) else "sys"
        one.release = kind == "notify" or draw.random() < 0.7
        one.acquire = kind == "atomic" and draw.random() < 0.7
        one.used = not self._unused_atomics or draw.random() < 0.6
        one.sets = kind == "notify" and one.word >= COUNTERS
        if not self._may_change(one):
            return None
        self.statements.append(one)
        return one.word

    def _wait(self, block: tuple[int, int], word: int) -> None:
        total = self._totals.get((block[0], word), 0)
        if total:
            value = total if self._draw.random() < 0.8 else self._draw.randint(1, total)
            value = value if word < COUNTERS else 1
            one = Statement(*block, "wait", block[0], word=word, value=value, acquire=True)
            one.scope = "gpu" if self._draw.random() < self._narrow else "sys"
            self.statements.append(one)

    def source(self) -> str:
        """A module with the kernel; every statement learns its line."""
        lines = ["import triton.language as tl", "import triton_dist", "import triton_dist.language as dl"]
        lines += ["from triton_dist.language.extra import libshmem_device as shmem", "", ""]
        lines += ["@triton_dist.jit", "def kernel(data, words, sink):", "    rank, program = dl.rank(), tl.program_id(0)"]
        for rank, program in itertools.product(range(self.ranks), range(self.programs)):
            mine = [(number, one) for number, one in enumerate(self.statements) if (one.rank, one.program) == (rank, program)]
            if mine:
                lines.append(f"    if (rank == {rank}) & (program == {program}):")
            for number, one in mine:
                lines.append(f"        {one.source(number)}")
                one.line = len(lines)
        return "\n".join(lines) + "\n"


Word = tuple[int, int]
"""Owner and number."""


@dataclasses.dataclass
class Change:
    """A change of a word in the order of a run. tells: what whoever acquires it learns of its own release."""

    by: Statement
    event: int
    total: int
    tells: int


class Block:
    """A block of threads while its statements run.

    before: for each of its threads of interest all events before it, as bits. observed: what it would learn from words that it has read
    relaxed, at a fence. fenced: what came before the first thread's last fence, which its relaxed writes release.
    """

    def __init__(self) -> None:
        self.before = [0, 0]
        self.observed, self.fenced = 0, 0
        self.states: dict[Word, int] = {}
        """Of words that it has waited for: the number of the first change that it may have seen."""

    def meet(self) -> None:
        self.before = [self.before[FIRST] | self.before[REST]] * 2

    def fence(self) -> None:
        self.before = [before | self.observed for before in self.before]
        self.observed, self.fenced = 0, self.before[FIRST]


@dataclasses.dataclass
class Copy:
    """A put or a get. begun: the event that it has begun. delivered: what is known when its target is written, ended: when all is done."""

    rank: int
    begun: int
    delivered: int
    ended: int


@dataclasses.dataclass
class Access:
    """A plain access. who: the block, or the statement of a copy. seen, events: of each thread that may do it, what is before, and it."""

    line: int
    who: object
    writes: bool
    elements: set[tuple[int, int]]
    seen: list[int]
    events: list[int]


Step = int | tuple[str, int]
"""Of a run: a statement, or ("signal", the put whose signal arrives)."""


class Account:
    """What is before what, while the steps of a run are taken."""

    def __init__(self, program: RandomProgram) -> None:
        self.statements = program.statements
        self.blocks = {(one.rank, one.program): Block() for one in self.statements}
        self.changes: dict[Word, list[Change]] = {}
        self.accesses: list[Access] = []
        self.copies: dict[int, Copy] = {}
        self._bits = itertools.count()

    def event(self) -> int:
        return 1 << next(self._bits)

    def take(self, step: Step) -> None:
        if isinstance(step, tuple):
            self._signal(step[1])
            return
        one = self.statements[step]
        block = self.blocks[one.rank, one.program]
        if one.kind == "barrier":
            block.meet()
        elif one.kind == "fence":
            block.fence()
        elif one.kind in ("load", "store"):
            self._access(block, one)
        elif one.kind in ("put", "get"):
            self._copy(block, step, one)
        elif one.kind in ("quiet", "shmem fence"):
            self._learn_of_copies(block, one)
            block.fence()
        elif one.kind == "wait":
            _wait(block, one, self.changes.get((one.owner, one.word), []))
        else:
            _change(block, one, self.changes.setdefault((one.owner, one.word), []), self.event())

    def _access(self, block: Block, one: Statement) -> None:
        """Which thread has an element of a tile is not known; a scalar is loaded by all, and stored by the first."""
        threads = [FIRST] if one.writes and not one.tile else [FIRST, REST]
        seen, mine = [block.before[thread] for thread in threads], [self.event() for _ in threads]
        for thread, event in zip(threads, mine, strict=True):
            block.before[thread] |= event
        self.accesses.append(Access(one.line, (one.rank, one.program), one.writes, one.elements(), seen, mine))

    def _copy(self, block: Block, index: int, one: Statement) -> None:
        block.meet()
        before = block.before[FIRST]
        begun, read, written = self.event(), self.event(), self.event()
        of_read, of_write = (one.rank, one.owner) if one.kind == "put" else (one.owner, one.rank)
        for writes, owner, cell, event in ((False, of_read, one.origin, read), (True, of_write, one.cell, written)):
            elements = {(owner, cell * TILE + number) for number in range(TILE)}
            self.accesses.append(Access(one.line, index, writes, elements, [before], [event]))
        ended = before | begun | read | written
        if one.kind == "put":
            delivered = ended if one.blocking else before | begun | written
            known = read if one.blocking else 0
        else:
            delivered, known = 0, read | written if one.blocking else 0
        self.copies[index] = Copy(one.rank, begun, delivered, ended)
        block.before = [before | begun | known] * 2

    def _signal(self, index: int) -> None:
        one, copy = self.statements[index], self.copies[index]
        event = self.event()
        copy.ended |= event
        _append(self.changes.setdefault((one.owner, one.word), []), one, event, copy.ended)

    def _learn_of_copies(self, block: Block, one: Statement) -> None:
        for copy in self.copies.values():
            if copy.rank == one.rank:
                told = copy.ended if one.kind == "quiet" else copy.delivered
                block.before = [before | told if before & copy.begun else before for before in block.before]


def races_of(program: RandomProgram, order: list[Step]) -> set[tuple[int, int, tuple[int, int]]]:
    """Pairs of lines that race, with the element of data: (smaller line, larger line, element).

    order: all steps as they ran; only that of changes of one word, and of each block, matters.
    """
    account = Account(program)
    for step in order:
        account.take(step)
    return set(_unordered(account.accesses))


def _append(changes: list[Change], one: Statement, event: int, tells: int) -> None:
    total = (changes[-1].total if changes and not one.sets else 0) + one.added
    changes.append(Change(one, event, total, tells))


def _change(block: Block, one: Statement, changes: list[Change], event: int) -> None:
    """A notify, which begins with a block barrier, or an atomic of the first thread."""
    learnt = _learnt(one, changes, len(changes))
    if one.kind == "notify":
        block.meet()
    elif one.acquire:
        block.before[FIRST] |= learnt
        if one.used:
            block.before[REST] |= learnt
    else:
        block.observed |= learnt
    block.before[FIRST] |= event
    if one.kind == "notify":
        block.before[REST] |= event
    _append(changes, one, event, block.before[FIRST] if one.release else block.fenced)


def _wait(block: Block, one: Statement, changes: list[Change]) -> None:
    """It may have ended at any value from the first one on that the block could still see."""
    word = (one.owner, one.word)
    state = block.states.get(word, 0)
    mine = one.rank, one.program
    known = [n for n, change in enumerate(changes, 1) if block.before[REST] & change.event or _is_of(change.by, mine)]
    state = max([state, *known])
    while state < len(changes) and (state == 0 or changes[state - 1].total < one.value):
        state += 1
    block.states[word] = state
    learnt = -1
    for end in range(state, len(changes) + 1):
        learnt &= _learnt(one, changes, end)
    block.before = [before | learnt for before in block.before]
    block.meet()


def _learnt(reader: Statement, changes: list[Change], end: int) -> int:
    """What an acquire learns from a word that has had so many changes.

    Read-modify-writes hand on what came before, a set does not. Each one has to be in the scope of the next, the last in the reader's.
    """
    learnt, after = 0, reader
    for change in reversed(changes[:end]):
        if not _reach(change.by, after):
            break
        if _reach(change.by, reader):
            learnt |= change.tells
        if change.by.sets:
            break
        after = change.by
    return learnt


def _reach(one: Statement, other: Statement) -> bool:
    """Whether each is in the scope of the other one."""
    return one.rank == other.rank or one.scope == other.scope == "sys"


def _is_of(one: Statement, block: tuple[int, int]) -> bool:
    """Whether a change was made by a block; the signal of its put is not."""
    return one.kind != "put" and (one.rank, one.program) == block


def _unordered(accesses: list[Access]) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Races between blocks, and with copies; those of threads of one block depend on which thread has which element."""
    for one, other in itertools.combinations(accesses, 2):
        if one.who == other.who or not (one.writes or other.writes):
            continue
        shared = one.elements & other.elements
        forward = all(seen & event for seen in other.seen for event in one.events)
        backward = all(seen & event for seen in one.seen for event in other.events)
        if shared and not forward and not backward:
            for element in shared:
                yield min(one.line, other.line), max(one.line, other.line), element
