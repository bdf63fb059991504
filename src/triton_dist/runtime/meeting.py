"""What the ranks of a team say to each other at a collective call of the symmetric heap, and whether they say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import AllocationMismatchError, CaptureError, TritonDistError
from .cuda.blocks import merged
from .offsets import Range


@dataclass(frozen=True)
class Call:
    """What a rank says at a meeting.

    kind, request: the call, the same on all ranks. asked: it in words. failure: what is wrong with the arguments here.
    dead: numbers of the team's blocks that nothing refers to here. free: this rank's free offsets. records: free records of the table of
    teams. placed: where the team's blocks lie as this rank sees it, and its last one in words.
    """

    kind: str
    request: Any
    asked: str
    failure: tuple[type[TritonDistError], str] | None
    dead: tuple[int, ...]
    free: list[Range]
    records: int
    placed: tuple[int, str]

    @property
    def in_words(self) -> str:
        """The call as reports of who waits for whom name it."""
        return f"symmetric {self.kind} of {self.asked}" if self.asked else f"symmetric {self.kind}"


def capture_error(kind: str) -> CaptureError:
    """Of a call that is made while a CUDA graph is captured."""
    return CaptureError(
        f"{kind} while a CUDA graph is captured: the ranks' hosts meet there, which a replay would not repeat; allocate before, or call "
        "the operator once before it is captured"
    )


def check_all_meet(ranks: Sequence[int], calls: Sequence[Any], what: str) -> None:
    """Raise AllocationMismatchError if a rank came to the meeting with something else: its call has failed where the others allocate."""
    strangers = [rank for rank, call in zip(ranks, calls, strict=True) if not isinstance(call, Call)]
    if strangers:
        raise AllocationMismatchError(
            f"{what}: ranks {strangers} come to another call instead: either they never make this one, which all ranks {list(ranks)} "
            "have to make, or it has failed on one of them before"
        )


def check_same(ranks: Sequence[int], calls: Sequence[Call]) -> None:
    """Raise AllocationMismatchError if two ranks make different calls, or have placed the same allocations differently."""
    first = calls[0]
    for rank, call in zip(ranks, calls, strict=True):
        if (call.kind, call.request) != (first.kind, first.request):
            raise AllocationMismatchError(
                f"symmetric {call.kind}: rank {rank} asked for {call.kind} {call.asked}, but rank {ranks[0]} asked for {first.kind} "
                f"{first.asked}; all ranks must make the same symmetric allocations and frees in the same order"
            )
        if call.placed != first.placed:
            raise AllocationMismatchError(
                f"symmetric {call.kind}: the ranks' heaps differ: the last allocation of rank {rank} was {call.placed[1]}, that of rank "
                f"{ranks[0]} was {first.placed[1]}; finalize() and initialize() the world again"
            )


def with_free(call: Call, ranges: Sequence[Range]) -> Call:
    """The call of a rank that has these ranges free, too."""
    return replace(call, free=merged([*call.free, *ranges]))
