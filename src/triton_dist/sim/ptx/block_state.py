"""What a program keeps from one block of inline assembly to the next: barriers, variables in shared memory, copies under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..pending import PendingCopy
    from ..program import Program


@dataclass
class Mbarrier:
    """count: arrivals of a phase. pending: those that are missing in this one. bytes: that are still expected. phase: how many ended."""

    count: int
    pending: int
    bytes: int = 0
    phase: int = 0


@dataclass(frozen=True)
class BulkLoad:
    """A copy of global memory, at ``source``, to shared memory, of which an mbarrier is told."""

    target: int
    source: int
    size: int
    mbarrier: int


@dataclass(eq=False)
class BulkStore:
    """A copy of shared memory to global memory. group: of its thread's, from 1 on; 0 before it is committed."""

    copy: PendingCopy
    group: int = 0


@dataclass
class BlockState:
    """arrived: for each barrier, by number, how many threads have arrived there without waiting.

    variables: in shared memory, by blocks: where each begins and ends, and its name. mbarriers: by address. loads: bulk copies into shared
    memory that have not landed. stores: bulk copies out of it that their thread has not waited for. commits: how many groups of these each
    thread has made. cluster: of each thread how often it has arrived at the cluster's barrier, and how often waited. stuck: the latest wait
    for an mbarrier that did not hold, in words.
    """

    arrived: dict[int, int] = field(default_factory=dict)
    variables: list[tuple[int, int, str]] = field(default_factory=list)
    mbarriers: dict[int, Mbarrier] = field(default_factory=dict)
    loads: list[BulkLoad] = field(default_factory=list)
    stores: dict[int, list[BulkStore]] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)
    stuck: str = ""
    cluster: dict[int, tuple[int, int]] = field(default_factory=dict)


def state_of(context: Program) -> BlockState:
    """The state of a program, made when it is first asked for."""
    if context.assembly is None:
        context.assembly = BlockState()
    return context.assembly
