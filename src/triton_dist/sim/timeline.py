"""What ran when on the simulated clock: programs, copies, and who waited for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .program import Program

_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time. kind: "program", "copy", "other". begin, end: simulated nanoseconds. track: SM or stream number."""

    rank: int
    kind: str
    name: str
    track: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class WaitSpan:
    """A program waited for a word. writer_rank: who ended the wait, None if that is unknown. word: name and index of the signal."""

    rank: int
    name: str
    track: int
    begin: float
    end: float
    word: str
    writer: str
    writer_rank: int | None


class Timeline:
    """Spans in the order in which they ended; recording stops silently at a million."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._raw_waits: list[tuple] = []

    def ran(self, rank: int, kind: str, name: str, track: int, begin: float, end: float) -> None:
        """Record that something ran."""
        if len(self.spans) < _LIMIT:
            self.spans.append(Span(rank, kind, name, track, begin, end))

    def waited(self, program: Program, address: int, begin: float) -> None:
        """Record a wait that ended now."""
        if len(self._raw_waits) < _LIMIT:
            self._raw_waits.append((program, address, begin, program.clock, program.memory.writes.get(address)))

    @property
    def waits(self) -> list[WaitSpan]:
        """Waits that have ended."""
        return [self._wait_span(*raw) for raw in self._raw_waits]

    @staticmethod
    def _wait_span(program: Program, address: int, begin: float, end: float, write: tuple | None) -> WaitSpan:
        allocation = program.memory.find(address)
        word = allocation.label(address) if allocation else f"{address:#x}"
        writer, writer_rank = ("", None) if write is None else (write[0].describe(), write[0].rank)
        return WaitSpan(program.rank, program.launch.kernel.name, program.sm, begin, end, word, writer, writer_rank)

    @property
    def end(self) -> float:
        """Simulated nanoseconds until the last thing ended."""
        return max((span.end for span in self.spans), default=0.0)
