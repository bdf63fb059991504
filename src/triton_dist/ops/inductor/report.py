"""What the pass did with each collective of the graphs that it saw, and why it left those alone that it left."""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger("triton_dist.inductor")


class Unsuitable(Exception):
    """A collective that stays as it is. The text says why; it ends up in the report and is never raised to a user."""


@dataclass(frozen=True)
class Entry:
    """One collective of one graph.

    graph: the graph's number, counted by the pass from 0. collective: its node's name. kind: "all_gather", "reduce_scatter", "all_reduce".
    operator: what it was turned into, with its product: "ag_gemm", "ag_gemm_gathered", "gemm_rs" or "gemm_ar"; None if it was left alone.
    product: the name of the product's node, if there is one. reason: why it was left alone, or "". shapes: of the operator's operands.
    """

    graph: int
    collective: str
    kind: str
    operator: str | None
    product: str | None = None
    reason: str = ""
    shapes: str = ""

    @property
    def matched(self) -> bool:
        return self.operator is not None

    def __str__(self) -> str:
        where = f"graph {self.graph}: {self.kind} {self.collective}"
        return (
            f"{where} and {self.product} are {self.operator} of {self.shapes}" if self.matched else f"{where} is left alone: {self.reason}"
        )


class Report(list[Entry]):
    """All entries, in the order of the graphs and of their collectives; ``print`` shows a line for each."""

    @property
    def matched(self) -> list[Entry]:
        """Collectives that are part of an operator now."""
        return [entry for entry in self if entry.matched]

    @property
    def skipped(self) -> list[Entry]:
        """Collectives that were left alone."""
        return [entry for entry in self if not entry.matched]

    def add(self, entry: Entry) -> None:
        """Keep an entry, and log it at level INFO."""
        self.append(entry)
        log.info("%s", entry)

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no collectives"
