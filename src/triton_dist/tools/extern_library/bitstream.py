"""LLVM's bitstream: blocks of records, each a code and numbers, packed by abbreviations that the stream itself defines.

The container of bitcode (https://llvm.org/docs/BitCodeFormat.html); what records mean is in ``functions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...errors import InvalidArgumentError

MAGIC = b"BC\xc0\xde"
_WRAPPER = b"\xde\xc0\x17\x0b"
_END, _ENTER, _DEFINE, _PLAIN = range(4)
"""Abbreviations that every block has: its end, a block inside, the definition of an abbreviation, a record without one."""

_FIXED, _VARIABLE, _ARRAY, _CHAR6, _BLOB = range(1, 6)
_BLOCK_INFO = 0
_CHAR6_TEXT = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"

Abbreviation = list[tuple[int, int]]
"""Of each operand how it is packed (0: a literal) and the width, or the literal."""


@dataclass
class Record:
    """A code and its numbers; blob: raw bytes behind them."""

    code: int
    values: list[int]
    blob: bytes = b""


@dataclass
class Block:
    """What is in a block, in order, by kind."""

    number: int
    records: list[Record] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


class Bitstream:
    """The blocks of a bitcode file. wanted: numbers of the blocks whose content is read; others are skipped.

    Raises InvalidArgumentError for what is no bitcode.
    """

    def __init__(self, data: bytes, wanted: frozenset[int]) -> None:
        if data[:4] == _WRAPPER:
            start, size = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
            data = data[start : start + size]
        if data[:4] != MAGIC:
            raise InvalidArgumentError("the file is no LLVM bitcode; it has to begin with BC 0xC0DE")
        self._words = data
        self._end = len(data) * 8
        self._at = 32
        self._wanted = wanted
        self._known: dict[int, list[Abbreviation]] = {}

    def blocks(self) -> Iterator[Block]:
        """The blocks on top; those that are not wanted are empty."""
        while self._at + 64 <= self._end:
            if self._fixed(2) != _ENTER:
                raise InvalidArgumentError("the bitcode is damaged: something else than a block on its top level")
            yield self._block()

    def _fixed(self, width: int) -> int:
        if self._at + width > self._end:
            raise InvalidArgumentError("the bitcode is damaged: it ends in the middle")
        # A few bytes around, since shifting the whole file for each number takes its length.
        first = self._at >> 3
        chunk = int.from_bytes(self._words[first : first + (width >> 3) + 2], "little")
        value = (chunk >> (self._at & 7)) & ((1 << width) - 1)
        self._at += width
        return value

    def _variable(self, width: int) -> int:
        more = 1 << (width - 1)
        value = shift = 0
        while True:
            part = self._fixed(width)
            value |= (part & (more - 1)) << shift
            if not part & more:
                return value
            shift += width - 1

    def _align(self) -> None:
        self._at = (self._at + 31) & ~31

    def _block(self) -> Block:
        """Behind the abbreviation that enters it."""
        number, width = self._variable(8), self._variable(4)
        self._align()
        length = self._fixed(32) * 32
        if self._at + length > self._end:
            raise InvalidArgumentError("the bitcode is damaged: it ends in the middle")
        block = Block(number)
        if number not in self._wanted and number != _BLOCK_INFO:
            self._at += length
            return block
        abbreviations = list(self._known.get(number, []))
        described = -1
        while True:
            code = self._fixed(width)
            if code == _END:
                self._align()
                return block
            if code == _ENTER:
                block.blocks.append(self._block())
            elif code == _DEFINE:
                found = self._definition()
                if number == _BLOCK_INFO:
                    self._known.setdefault(described, []).append(found)
                else:
                    abbreviations.append(found)
            else:
                record = self._plain() if code == _PLAIN else self._packed(abbreviations[code - 4])
                if number == _BLOCK_INFO and record.code == 1:
                    described = record.values[0]
                block.records.append(record)

    def _definition(self) -> Abbreviation:
        found: Abbreviation = []
        for _ in range(self._variable(5)):
            if self._fixed(1):
                found.append((0, self._variable(8)))
            else:
                kind = self._fixed(3)
                found.append((kind, self._variable(5) if kind in (_FIXED, _VARIABLE) else 0))
        return found

    def _plain(self) -> Record:
        code = self._variable(6)
        return Record(code, [self._variable(6) for _ in range(self._variable(6))])

    def _packed(self, abbreviation: Abbreviation) -> Record:
        values: list[int] = []
        blob = b""
        for place, (kind, width) in enumerate(abbreviation):
            if kind == _ARRAY:
                element = abbreviation[place + 1]
                count = self._variable(6)
                if count > self._end - self._at:  # before so many items that take no bits are made
                    raise InvalidArgumentError("the bitcode is damaged: it ends in the middle")
                values += [self._operand(*element) for _ in range(count)]
                break
            if kind == _BLOB:
                size = self._variable(6)
                self._align()
                blob = self._words[self._at >> 3 : (self._at >> 3) + size]
                self._at += size * 8
                self._align()
            else:
                values.append(self._operand(kind, width))
        return Record(values[0], values[1:], blob)

    def _operand(self, kind: int, width: int) -> int:
        if kind == 0:
            return width
        if kind == _CHAR6:
            return _CHAR6_TEXT[self._fixed(6)]
        if width == 0:
            return 0
        return self._fixed(width) if kind == _FIXED else self._variable(width)
