"""What a search found: one row a config, as data and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_WIDEST_REASON = 100


@dataclass(frozen=True)
class Row:
    """One config. milliseconds: of the slowest rank, the median of its runs; None if it failed. reason: why, with the rank; None if not."""

    label: str
    milliseconds: float | None
    reason: str | None = None


@dataclass(frozen=True)
class TuneReport:
    """A search, the same on all its ranks but for the seconds.

    what: the operator or kernel. key: what it was made for, in words. chosen: label of the config that is used from now on.
    world_size: ranks that took part. seconds: that the search took. cached: it was found on disk, and its rows are those of that time.
    """

    what: str
    key: str
    rows: Sequence[Row]
    chosen: str
    world_size: int
    seconds: float = field(compare=False)
    cached: bool = False

    @property
    def best_milliseconds(self) -> float | None:
        """Time of the chosen config; None where nothing was timed, since there was no choice."""
        return next((row.milliseconds for row in self.rows if row.label == self.chosen), None)

    @property
    def failed(self) -> list[Row]:
        """The configs that are out."""
        return [row for row in self.rows if row.reason is not None]

    def table(self) -> str:
        """The configs from fast to slow, then those that failed and why; the chosen one has a star."""
        ordered = sorted(self.rows, key=lambda row: math.inf if row.milliseconds is None else row.milliseconds)
        width = max([len(row.label) for row in ordered], default=0)
        best = self.best_milliseconds
        lines = [f"{self.what}, {self.key or 'any arguments'}, {self.world_size} ranks" + (" (from the cache)" if self.cached else "")]
        for row in ordered:
            mark = "*" if row.label == self.chosen else " "
            if row.milliseconds is None:
                lines.append(f"{mark} {row.label:<{width}}  {_shortened(row.reason or 'not timed')}")
            else:
                slower = f"  {row.milliseconds / best:.2f}x" if best else ""
                lines.append(f"{mark} {row.label:<{width}}  {row.milliseconds:.4f} ms{slower}")
        return "\n".join(lines)


def _shortened(reason: str) -> str:
    """A reason in one line: its beginning says what, its end often why."""
    line = " ".join(reason.split())
    half = _WIDEST_REASON // 2
    return line if len(line) <= _WIDEST_REASON else f"{line[:half]} ... {line[-half:]}"
