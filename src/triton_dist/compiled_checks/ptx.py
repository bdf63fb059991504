"""PTX text as basic blocks of instructions, each with the source lines it comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..runtime.wait_layout import MARKER
from .places import PTX_FRAMES, Frame, Key, key_of

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(.*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+\S+\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?(.*)")
_CALLED = re.compile(r"@\[ (.+?):(\d+):(\d+)")
_LABEL = re.compile(r"^\s*([$\w]+):(.*)$")
_BRANCH = re.compile(r"(@!?%[\w.]+\s+|@!?\w+\s+)?bra(?:\.uni)?\s+([$\w]+)")
_INDEXED = re.compile(r"(@\S+\s+)?brx\.idx\S*\s+\S+,\s*([$\w]+)")
_BEGIN_ASSEMBLY, _END_ASSEMBLY = "// begin inline asm", "// end inline asm"
_ENDS = re.compile(r"^(ret|exit|trap)\b")

_LOAD = re.compile(r"\bld\.(?!shared|param|const|local)(?!\S*\.nc\b)\S+|\bcp\.async\.c[ag]\.|\bcp\.async\.bulk\.\S*shared::\w+\.global")
_VECTOR = re.compile(r"\.v(\d)\b")
_BITS = re.compile(r"\.[busf](\d+)\b")


@dataclass(slots=True)
class Instruction:
    """text: without its line's end. frames: innermost first. number: of the line."""

    text: str
    frames: tuple[Frame, ...]
    number: int

    @property
    def key(self) -> Key:
        """See ``places.Key``; of at most ``PTX_FRAMES`` frames."""
        return key_of(self.frames[:PTX_FRAMES])

    @property
    def is_load(self) -> bool:
        """Whether it reads global memory."""
        return bool(_LOAD.search(self.text))

    @property
    def marks_wait(self) -> bool:
        """Whether it is the comment that begins one of this package's waits."""
        return MARKER in self.text

    @property
    def bytes_a_thread(self) -> int:
        """What one thread moves by it, of a load, a store or an asynchronous copy of that thread; 0 for others."""
        copy = re.search(r"cp\.async\.c[ag]\S*\s+\[[^\]]*\],\s*\[[^\]]*\],\s*(0x\w+|\d+)", self.text)
        if copy:
            return int(copy[1], 0)
        if not re.search(r"\b(?:ld|st)\.(?!shared|param|const|local)", self.text):
            return 0
        operation = self.text.split("[")[0]
        bits, vector = _BITS.search(operation), _VECTOR.search(operation)
        return int(bits[1]) // 8 * (int(vector[1]) if vector else 1) if bits else 0


@dataclass(slots=True)
class PtxBlock:
    """Instructions with one way in, at the top. next: the blocks that may follow, by index."""

    instructions: list[Instruction] = field(default_factory=list)
    next: list[int] = field(default_factory=list)


class Ptx:
    """The blocks of the kernel in a PTX text, the first one the entry. Functions beside the kernel are left out."""

    def __init__(self, text: str) -> None:
        self.blocks: list[PtxBlock] = [PtxBlock()]
        self._labels: dict[tuple[int, str], int] = {}
        self._assembly = 0
        self._label, self._table = "", ""
        self._jumps: list[tuple[int, str, int]] = []
        self._tables: dict[str, list[str]] = {}
        self._falls = True
        self._read(text)
        for index, label, scope in self._jumps:
            for target in self._tables.get(label, [label]):
                # Labels inside of assembly are its own: several pieces may have one of the same name.
                found = self._labels.get((scope, target), self._labels.get((0, target)))
                if found is not None:
                    self.blocks[index].next.append(found)

    def instructions(self) -> Iterable[Instruction]:
        """All of them, in the order of the text."""
        return (instruction for block in self.blocks for instruction in block.instructions)

    def _new_block(self) -> None:
        if self._falls:
            self.blocks[-1].next.append(len(self.blocks))
        self.blocks.append(PtxBlock())
        self._falls = True

    def _read(self, text: str) -> None:
        lines = text.splitlines()
        files = {int(match[1]): match[2] for match in map(_FILE.match, lines) if match}
        frames: tuple[Frame, ...] = ()
        inside, assembly, depth, pieces = False, False, 0, 0
        for number, line in enumerate(lines, 1):
            if not inside:
                inside = ".entry" in line
                continue
            brace = line.partition("//")[0].strip()
            if brace in ("{", "}") and not assembly:
                depth += 1 if brace == "{" else -1
                if depth == 0:
                    break
            if "inline asm" in line and line.strip() in (_BEGIN_ASSEMBLY, _END_ASSEMBLY):
                assembly = line.strip() == _BEGIN_ASSEMBLY
                pieces += assembly
                self._assembly = pieces if assembly else 0
            location = _LOC.match(line)
            if location:
                # Triton 3.9 counts lines inside of assembly on from where the assembly stands.
                frames = frames if assembly else _frames(location, files)
                continue
            if MARKER in line:
                self.blocks[-1].instructions.append(Instruction(line.strip(), frames, number))
                continue
            for part in line.partition("//")[0].split(";"):
                self._statement(part.strip(), frames, number, ends=";" in line)

    def _statement(self, rest: str, frames: tuple[Frame, ...], number: int, *, ends: bool) -> None:
        """One statement, perhaps behind labels. ends: whether its line has a semicolon."""
        rest = rest.lstrip("{} \t")
        label = _LABEL.match(rest)
        while label:
            self._new_block()
            self._labels[self._assembly, label[1]] = len(self.blocks) - 1
            self._label, rest = label[1], label[2].strip()
            label = _LABEL.match(rest)
        if rest.startswith(".branchtargets"):
            self._table, rest = self._label, rest.removeprefix(".branchtargets")
        if self._table:
            self._tables.setdefault(self._table, []).extend(re.findall(r"[$\w]+", rest))
            self._table = "" if ends else self._table
        else:
            self._instruction(rest, frames, number)

    def _instruction(self, text: str, frames: tuple[Frame, ...], number: int) -> None:
        if not text or text.startswith("."):
            return
        self.blocks[-1].instructions.append(Instruction(text, frames, number))
        branch, indexed = _BRANCH.match(text), _INDEXED.match(text)
        if branch or indexed:
            match = branch or indexed
            assert match is not None
            self._jumps.append((len(self.blocks) - 1, match[2], self._assembly))
            self._falls = match[1] is not None
            self._new_block()
        elif _ENDS.match(text):
            self._falls = False
            self._new_block()


def _frames(location: re.Match[str], files: dict[int, str]) -> tuple[Frame, ...]:
    file, line, column = (int(location[index]) for index in (1, 2, 3))
    if not line:
        return ()
    frames = [Frame(files.get(file, "?"), line, column)]
    called = _CALLED.findall(location[7])
    if called:
        by_name = {os.path.basename(path): path for path in files.values()}
        frames += [Frame(by_name.get(name, name), int(row), int(place)) for name, row, place in called]
    elif location[4]:
        frames.append(Frame(files.get(int(location[4]), "?"), int(location[5]), int(location[6])))
    return tuple(frames)


Test = Callable[[Instruction], bool]


def reached_before(ptx: Ptx, wanted: Test, barrier: Test, start: Test | None = None, *, forward: bool = False) -> list[Instruction]:
    """Instructions that are ``wanted`` and to which some way leads that passes no ``barrier``.

    start: ways begin behind each instruction that fulfils this, else at the kernel's entry. forward: no way goes back to the head of a
        loop.
    """
    back = _back_edges(ptx) if forward else set()
    found: list[Instruction] = []
    seen: set[int] = set()
    todo: list[tuple[int, int]] = []
    if start is None:
        todo.append((0, 0))
        seen.add(0)
    else:
        for index, block in enumerate(ptx.blocks):
            todo += [(index, place + 1) for place, instruction in enumerate(block.instructions) if start(instruction)]
    while todo:
        index, place = todo.pop()
        for instruction in ptx.blocks[index].instructions[place:]:
            if barrier(instruction):
                break
            if wanted(instruction) and not any(instruction is one for one in found):
                found.append(instruction)
        else:
            for following in ptx.blocks[index].next:
                if following not in seen and (index, following) not in back:
                    seen.add(following)
                    todo.append((following, 0))
    return found


def _back_edges(ptx: Ptx) -> set[tuple[int, int]]:
    """Edges to a block that is on the way to them, found depth first from the entry."""
    back: set[tuple[int, int]] = set()
    state = [0] * len(ptx.blocks)
    stack: list[tuple[int, int]] = [(0, 0)]
    state[0] = 1
    while stack:
        index, place = stack.pop()
        if place == len(ptx.blocks[index].next):
            state[index] = 2
            continue
        stack.append((index, place + 1))
        following = ptx.blocks[index].next[place]
        if state[following] == 1:
            back.add((index, following))
        elif state[following] == 0:
            state[following] = 1
            stack.append((following, 0))
    return back
