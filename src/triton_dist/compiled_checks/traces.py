"""The order of a wait and a load in structured IR, as short traces that the same program before and after a pass must agree on.

A trace is what one program does in a made-up run: a loop that holds both the wait and the load takes three rounds, any other loop one,
an ``if`` takes the branch in which something of the two happens, or each in turn if both have something. Loads that follow each other in
one round of the loops around both count once: a pipelined loop over K issues its first loads ahead of itself, and that is no matter as long
as they come after the wait. Then the k-th load of the compiled program has to come after as many waits as the k-th one of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, product

from ..sim.ir import Operation
from .operations import operations

ROUNDS = 3
MOST_PATHS = 64
"""Alternatives that are followed at most; further ones are left out."""

Path = tuple[tuple[int, int], ...]
"""Rounds of the loops around both: (which loop, which round)."""

Event = tuple[str, Path]
Kind = Callable[[Operation], str | None]
"""Says of an op whether it is "wait", "load" or neither."""


@dataclass(frozen=True, eq=False)
class Warps:
    """Whose trace it is: those of partition ``number`` of the specialised region ``region`` (an op), or the kernel's own."""

    region: Operation | None = None
    number: int = 0

    @property
    def name(self) -> str:
        """As Triton prints it."""
        return "default" if self.number == 0 else f"partition{self.number - 1}"


def warps_of(tree: Operation, all_operations: Iterable[Operation]) -> list[Warps]:
    """All groups of warps that run code of their own, the kernel's own first."""
    found = [Warps()]
    for op in all_operations:
        if op.name == "ttg.warp_specialize":
            found += [Warps(op, number + 1) for number in range(len(partition_regions(op)))]
    return found


def partition_regions(op: Operation) -> list[list]:
    """The regions of a specialised region's partitions, without the default one."""
    inner = [one for block in op.regions[1] for one in block.operations] if len(op.regions) > 1 else []
    return inner[0].regions if inner else []


def partition_operations(warps: Warps) -> list[Operation]:
    """All ops that the warps of a partition run and no others."""
    if warps.region is None:
        return []
    region = partition_regions(warps.region)[warps.number - 1]
    return [inner for block in region for op in block.operations for inner in (op, *operations(op))]


class Tracer:
    """Traces of one wait and one load in a tree. kind: which op is which."""

    def __init__(self, tree: Operation, kind: Kind) -> None:
        self._tree = tree
        self._kind = kind
        self._held: dict[int, frozenset[str]] = {}

    def traces(self, warps: Warps) -> list[list[Event]]:
        """One trace for each way through the branches, loads of one round taken together."""
        alternatives = self._ops(self._tree.regions, (), warps)[0]
        return [_joined(events) for events in alternatives]

    def _holds(self, op: Operation) -> frozenset[str]:
        known = self._held.get(id(op))
        if known is None:
            kind = self._kind(op)
            found = {kind} if kind else set()
            if kind != "wait":
                for region in op.regions:
                    for block in region:
                        for inner in block.operations:
                            found |= self._holds(inner)
            known = self._held[id(op)] = frozenset(found)
        return known

    def _region_holds(self, region: list) -> bool:
        return any(self._holds(op) for block in region for op in block.operations)

    def _ops(self, regions: list[list], path: Path, warps: Warps) -> tuple[list[list[Event]], bool]:
        """The alternatives, and whether the warps stop here."""
        alternatives: list[list[Event]] = [[]]
        for region in regions:
            for block in region:
                for op in block.operations:
                    if not self._holds(op):
                        continue
                    events, stop = self._op(op, path, warps)
                    alternatives = [before + after for before, after in product(alternatives, events)][:MOST_PATHS]
                    if stop:
                        return alternatives, True
        return alternatives, False

    def _op(self, op: Operation, path: Path, warps: Warps) -> tuple[list[list[Event]], bool]:
        kind = self._kind(op)
        if kind:
            return [[(kind, path)]], False
        if op.name == "scf.if":
            branches = [region for region in op.regions if self._region_holds(region)]
            found = [self._ops([region], path, warps) for region in branches]
            return [one for ways, _ in found for one in ways][:MOST_PATHS], any(stop for _, stop in found)
        if op.name == "ttg.warp_specialize":
            if warps.region is op:
                return self._ops([partition_regions(op)[warps.number - 1]], path, warps)[0], not path
            return self._ops([op.regions[0]], path, warps)
        if op.name in ("scf.for", "scf.while") and len(self._holds(op)) == 2:
            rounds = [self._ops(op.regions, (*path, (id(op), number)), warps)[0] for number in range(ROUNDS)]
            return [list(chain.from_iterable(one)) for one in zip(*rounds, strict=True)], False
        return self._ops(op.regions, path, warps)


def _joined(events: list[Event]) -> list[Event]:
    """Loads that follow each other in one round are one."""
    kept: list[Event] = []
    for event in events:
        if not (kept and event[0] == "load" and kept[-1] == event):
            kept.append(event)
    return kept


def waits_before_loads(traces: Iterable[list[Event]]) -> list[int]:
    """For the k-th load the least number of waits that come before it in any trace that has so many loads."""
    least: list[int] = []
    for events in traces:
        waits = loads = 0
        for kind, _ in events:
            if kind == "wait":
                waits += 1
                continue
            if loads == len(least):
                least.append(waits)
            least[loads] = min(least[loads], waits)
            loads += 1
    return least


def load_before_wait(traces: Iterable[list[Event]]) -> bool:
    """Whether in some trace a load comes before some wait in the first round of all loops."""
    for events in traces:
        seen = False
        for kind, path in events:
            if any(number for _, number in path):
                continue
            if kind == "load":
                seen = True
            elif seen:
                return True
    return False
