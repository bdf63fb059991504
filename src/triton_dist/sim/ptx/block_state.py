"""What a program keeps from one block of inline assembly to the next, besides memory: who has arrived at its barriers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..program import Program


@dataclass
class BlockState:
    """arrived: for each barrier, by number, how many threads have arrived there without waiting.

    variables: in shared memory, by blocks: where each begins and ends, and its name.
    """

    arrived: dict[int, int] = field(default_factory=dict)
    variables: list[tuple[int, int, str]] = field(default_factory=list)


def state_of(context: Program) -> BlockState:
    """The state of a program, made when it is first asked for."""
    if context.assembly is None:
        context.assembly = BlockState()
    return context.assembly
