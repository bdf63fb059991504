"""What a polling loop waits for: the word that it reads, and the comparison by which it ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..requests import WaitRequest
from .form import Form, Read, numbers
from .frame import Frame
from .moves import COMPARISONS
from .syntax import Immediate, Instruction, Operand, Register
from .types import PtxType

_MANY = 64
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_EXCHANGED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_PLAIN = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_READS = ("ld", "ldu", "atom")


@dataclass(frozen=True)
class Poll:
    """A loop whose way back depends on one comparison of a word that it reads.

    reader: the instruction that reads the word. compare, expected: the loop ends where word compare expected.
    """

    reader: Instruction
    compare: str
    expected: Read
    kind: PtxType


def find_poll(body: list[Instruction], guard: tuple[Register, bool] | None) -> Poll | None:
    """What the loop that ``body`` goes round, back by a branch under ``guard``, waits for; None where that is not a plain comparison."""
    if guard is None:
        return None
    register, negated = guard
    tests = [one for one in body if one.operands and one.operands[0] == register]
    if len(tests) != 1 or tests[0].opcode != "setp" or tests[0].guard is not None or len(tests[0].operands) != 3:
        return None
    test = tests[0]
    form = Form(test)
    name = form.one_of(COMPARISONS)
    name = _PLAIN.get(name, name)
    kind = form.type()
    if name not in _OPPOSITE or kind.kind not in "bus" or form.left:
        return None
    first, second = test.operands[1:]
    for value, other, compare in ((first, second, name), (second, first, _EXCHANGED[name])):
        reader = _reader_of(body, value)
        if reader is not None and (isinstance(other, Immediate) or not _is_written(body, other)):
            return Poll(reader, compare if negated else _OPPOSITE[compare], numbers(test, other, kind), kind)
    return None


def _reader_of(body: list[Instruction], value: Operand) -> Instruction | None:
    """The only instruction of a loop that writes a register, if it reads one word."""
    if not isinstance(value, Register):
        return None
    writers = [one for one in body if one.operands and one.operands[0] == value]
    if len(writers) == 1 and writers[0].opcode in _READS and writers[0].guard is None:
        return writers[0]
    return None


def _is_written(body: list[Instruction], value: Operand) -> bool:
    return any(one.operands and one.operands[0] == value for one in body)


def awaited(frame: Frame, polls: dict[int, tuple[Poll, np.ndarray]], groups: int) -> list[WaitRequest] | None:
    """The words that all lanes wait for, each once; None where one of the loops is not known to poll."""
    if len(polls) != groups:
        return None
    found: dict[tuple, WaitRequest] = {}
    for poll, lanes in polls.values():
        read = frame.polled.get(id(poll.reader))
        if read is None:
            return None
        starts, readers, size = read
        expected = poll.expected(frame)
        if size not in (1, 2, 4, 8):
            return None
        signed = np.dtype(f"i{size}")
        for lane in np.flatnonzero(lanes)[:_MANY].tolist():
            at = 0 if starts.size == 1 else int(np.searchsorted(readers, lane))
            address = int(starts[min(at, starts.size - 1)])
            value = int(expected[lane if expected.size > 1 else 0].astype(signed))
            found[address, poll.compare, value] = WaitRequest(address, size, poll.compare, value, frame.location)
    return list(found.values())
