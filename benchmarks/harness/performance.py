"""How all operators came out beside their best peers: a row for each, and every case that is lost, with what runs there and why.

A document holds

    <!-- performance summary: benchmarks/results mode=graph -->
    (the table, written by ``make performance``)
    <!-- end of performance summary -->

or the same with ``losses``. The folder is relative to the document; every JSON file of ``results.save`` in it is read. A case is lost if
the upper end of the interval of ours / best peer is above ``GOAL``. Why is what ``reasons.toml`` of the folder says for it; see ``Reason``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .choices import LIBRARY, chosen_method
from .results import SCHEMA, CaseResult, Report, load
from .tables import GOAL, _number, _ratio, _size, _with_interval, choice_of

_BLOCK = re.compile(
    r"(?P<begin><!-- performance (?P<what>summary|losses): (?P<folder>\S+)(?P<choice>[^>]*?) -->\n)(?P<body>.*?)"
    r"(?P<end><!-- end of performance (?P=what) -->)",
    re.S,
)


@dataclass(frozen=True)
class Reason:
    """Why cases are lost.

    operator, mode, peer (the best): of the cases; "" is any. least, most: of the case's first size (bytes or M). shape: a part of its name.
    """

    text: str
    operator: str = ""
    mode: str = ""
    peer: str = ""
    shape: str = ""
    least: int = 0
    most: int = 1 << 62

    def fits(self, operator: str, case: CaseResult) -> bool:
        first = next(iter(case.sizes.values()))
        wanted = ((self.operator, operator), (self.mode, case.mode), (self.peer, case.comparison.best_peer))
        return all(a in ("", b) for a, b in wanted) and self.shape in case.shape and self.least <= first <= self.most


@dataclass(frozen=True)
class Outcome:
    """A case beside its best peer. operator: as in ``triton_dist.ops``. machine: what it ran on."""

    operator: str
    machine: str
    case: CaseResult

    @property
    def lost(self) -> bool:
        return (self.case.comparison.ratio_high or 0.0) > GOAL

    @property
    def sizes(self) -> str:
        sizes = [_size(name, size) if name == "bytes" else f"{name} {size}" for name, size in self.case.sizes.items()]
        return ", ".join(sizes if self.case.shape == self.operator else [self.case.shape, *sizes])


def outcomes_of(folder: Path) -> list[Outcome]:
    """Of every report in a folder that can be compared with a peer, in the order of the files and of their cases."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if json.loads(path.read_text()).get("schema") != SCHEMA:
            continue
        report = load(path)
        if report.dry_run:
            raise ValueError(f"{path} is a dry run; its times must not be shown")
        found += [
            Outcome(_operator(report, case), ", ".join(report.environment["cards"]), case)
            for case in report.cases
            if case.comparison.ratio is not None
        ]
    if not found:
        raise ValueError(f"{folder} has no results that can be compared")
    return found


def reasons_of(folder: Path) -> list[Reason]:
    """Those of ``reasons.toml``, if there is one. Raises ValueError for what is none."""
    path = folder / "reasons.toml"
    if not path.exists():
        return []
    try:
        return [Reason(**entry) for entry in tomllib.loads(path.read_text()).get("reason", [])]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def why(reasons: Iterable[Reason], outcome: Outcome) -> str:
    """The first reason that fits."""
    return next((reason.text for reason in reasons if reason.fits(outcome.operator, outcome.case)), "not known")


def summary_table(outcomes: list[Outcome]) -> str:
    """One row for each operator, machine and mode: best and worst ratio, how many cases are lost, where, and what runs there."""
    rows = [["operator", "GPUs", "mode", "ours / best peer: best", "worst", "lost", "where", "what runs there"]]
    for operator, machine, mode in dict.fromkeys((outcome.operator, outcome.machine, outcome.case.mode) for outcome in outcomes):
        group = [one for one in outcomes if (one.operator, one.machine, one.case.mode) == (operator, machine, mode)]
        by_ratio = sorted(group, key=lambda one: one.case.comparison.ratio or 0.0)
        lost = [one for one in group if one.lost]
        best, worst = (f"{_ratio(one.case)} at {_first_size(one)}" for one in (by_ratio[0], by_ratio[-1]))
        count = f"{len(lost)} of {len(group)}"
        methods = ", ".join(dict.fromkeys(filter(None, (_runs(one) for one in lost))))
        rows.append([f"`{operator}`", machine, mode, best, worst, count, _where(lost, group), methods])
    return _markdown(rows)


def losses_table(outcomes: list[Outcome], reasons: list[Reason]) -> str:
    """One row for each case that is lost."""
    rows = [["operator", "case", "GPUs", "mode", "ours, us", "best peer", "us", "ours / best peer", "what runs there now", "why"]]
    for one in outcomes:
        if one.lost:
            comparison = one.case.comparison
            peer = one.case.method(comparison.best_peer or "")
            times = [_with_interval(one.case.ours), comparison.best_peer or "", _number(peer.median_us if peer else None)]
            rows.append(
                [f"`{one.operator}`", one.sizes, one.machine, one.case.mode, *times, _ratio(one.case), _runs(one), why(reasons, one)]
            )
    return _markdown(rows) if len(rows) > 1 else "No case is lost."


def update_text(text: str, folder: Path, name: str) -> str:
    """``text`` with everything between markers written anew. folder: of the document, whose name errors say. Raises ValueError."""

    def written(match: re.Match) -> str:
        modes = choice_of(match["choice"]).get("mode")
        found = [one for one in outcomes_of(folder / match["folder"]) if modes is None or one.case.mode in modes]
        table = summary_table(found) if match["what"] == "summary" else losses_table(found, reasons_of(folder / match["folder"]))
        return f"{match['begin']}{table}\n{match['end']}"

    updated, count = _BLOCK.subn(written, text)
    begun = text.count("<!-- performance ")
    if count != begun:
        raise ValueError(f"{name}: {begun} performance tables begin but {count} have both markers; see harness/performance.py")
    return updated


def _operator(report: Report, case: CaseResult) -> str:
    return case.shape if report.operator == "collectives" else report.operator


def _first_size(outcome: Outcome) -> str:
    name, size = next(iter(outcome.case.sizes.items()))
    return _size(name, size) if name == "bytes" else f"{name} {size}"


def _where(lost: list[Outcome], group: list[Outcome]) -> str:
    """The first sizes of the lost cases, from the smallest; those that follow each other among all sizes of the group as one range."""
    if not lost:
        return ""
    name = next(iter(lost[0].case.sizes))
    sizes = {next(iter(one.case.sizes.values())) for one in lost}
    ranges: list[list[int]] = []
    before = None
    for size in sorted({next(iter(one.case.sizes.values())) for one in group}):
        if size in sizes:
            ranges = [*ranges[:-1], [ranges[-1][0], size]] if before in sizes and ranges else [*ranges, [size, size]]
        before = size
    shown = [_size(name, first) + (f" to {_size(name, last)}" if last > first else "") for first, last in ranges]
    return ("" if name == "bytes" else f"{name} ") + ", ".join(shown)


def _runs(outcome: Outcome) -> str:
    method = chosen_method(outcome.operator, outcome.case)
    return "the library" if method in LIBRARY else method if " " in method or not method else f"`{method}`"


def _markdown(rows: list[list[str]]) -> str:
    heading, *rest = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [heading, ["---"] * len(heading), *rest])
