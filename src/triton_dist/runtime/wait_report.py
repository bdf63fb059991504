"""Records of waits in words: which program of which kernel, at which line, waits for which word of which tensor."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .address_map import GUARD_BYTES, heap_base, rank_of
from .wait_board import BlockName, Record
from .wait_places import find_places, texts_in_cache

SYMBOLS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
"""How a comparison is written."""

_PROGRAMS_NAMED = 3


@dataclass(frozen=True)
class Wait:
    """Programs of one rank that wait for the same. place: kernel and line. word: tensor, index and rank, or an address."""

    rank: int
    programs: tuple[tuple[int, int, int], ...]
    place: str
    word: str
    comparison: str
    expected: int
    seen: int
    seconds: float

    @property
    def who(self) -> str:
        """The programs, the first few by their indices."""
        named = ", ".join(str(program) for program in self.programs[:_PROGRAMS_NAMED])
        more = len(self.programs) - _PROGRAMS_NAMED
        return f"program{'s' if len(self.programs) > 1 else ''} {named}" + (f" and {more} more" if more > 0 else "")

    def __str__(self) -> str:
        verb = "waits" if len(self.programs) == 1 else "wait"
        condition = f"{self.word} {SYMBOLS[self.comparison]} {self.expected}; it is {self.seen}"
        return f"rank {self.rank}, {self.who} of {self.place} {verb} for {condition} ({self.seconds:.1f} s)"


def describe(
    rank: int, records: Sequence[Record], blocks: Sequence[BlockName], texts: Iterable[str], cache_directory: Path | None = None
) -> list[Wait]:
    """Name what the records of ``rank`` say. texts: PTX to look for the kernels in, before the files in ``cache_directory``."""
    sources = itertools.chain(texts, texts_in_cache(cache_directory) if cache_directory is not None else ())
    places = find_places({(record.kernel, record.number) for record in records}, sources)
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        key = (record.kernel, record.number, record.address, record.comparison, record.expected, record.seen)
        groups.setdefault(key, []).append(record)
    return [_wait(rank, group, blocks, places.get((group[0].kernel, group[0].number), [])) for group in groups.values()]


def word_name(address: int, bits: int, blocks: Sequence[BlockName]) -> str:
    """``flags[3] of rank 1`` for a word of a symmetric tensor (the index counts words of ``bits`` bits), else its address."""
    rank = rank_of(address)
    if rank is None:
        return f"the word at {address:#x}, outside the symmetric heap"
    offset = address - heap_base(rank) - GUARD_BYTES
    for block in blocks:
        if block.offset <= offset < block.offset + block.nbytes:
            return f"{block.name}[{(offset - block.offset) * 8 // bits}] of rank {rank}"
    return f"the word at {address:#x} in the heap of rank {rank}, in no tensor"


def _wait(rank: int, records: list[Record], blocks: Sequence[BlockName], places: Sequence) -> Wait:
    first = records[0]
    place = " or ".join(dict.fromkeys(map(str, places))) or f"a kernel whose PTX is not found ({first.kernel:016x}, wait {first.number})"
    programs = tuple(record.program for record in records)
    word = word_name(first.address, first.bits, blocks)
    seconds = max(record.seconds for record in records)
    return Wait(rank, programs, place, word, first.comparison, first.expected, first.seen, seconds)
