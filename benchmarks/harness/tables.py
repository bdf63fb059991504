"""Tables from a report: plain text for the terminal, Markdown between markers of a document.

A document holds

    <!-- benchmark table: results/ag_gemm_h100x4.json mode=graph shapes=llama3-70b-mlp M=64,2048 -->
    (the table, written by ``python benchmarks/tables.py README.md``)
    <!-- end of benchmark table -->

The path is relative to the document. mode, shapes and any of the sizes by name choose cases; all are shown if none is given. variants=shown
adds a column for each way that ours can be told to go. Below the
table a summary counts all cases of the file, so a table of a few cases can't hide where ours loses.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from pathlib import Path

from .results import CaseResult, MethodResult, Report, load

GOAL = 1.02
"""The upper end of the interval of ours / best peer is meant to stay below this."""

SHARE_GOAL, SHARE_FROM_M = 0.95, 2048
"""Ours is meant to reach this share of the bound from so many rows on."""

_BLOCK = re.compile(
    r"(?P<begin><!-- benchmark table: (?P<file>\S+)(?P<choice>[^>]*?) -->\n)(?P<body>.*?)(?P<end><!-- end of benchmark table -->)", re.S
)


def case_line(case: CaseResult) -> str:
    """A case in one line, for progress; times in microseconds."""
    ours, comparison = case.ours, case.comparison
    sizes = " ".join(f"{name}={size}" for name, size in case.sizes.items())
    parts = [f"{case.shape} {sizes} {case.mode}: ours {_with_interval(ours) or 'left out'}"]
    if comparison.best_peer is not None:
        parts.append(f"best peer {comparison.best_peer} {_time(case.method(comparison.best_peer))}")
    if comparison.ratio is not None:
        parts.append(f"ratio {_ratio(case)}")
    if comparison.share is not None:
        parts.append(f"{comparison.share:.2f} of the bound")
    parts += [f"{method.name} {method.status} ({method.why})" for method in case.methods if not method.counts]
    return ", ".join(parts)


def table_rows(cases: Iterable[CaseResult], host: bool = True, variants: bool = False) -> list[list[str]]:
    """Heading and one row a case: sizes, ours with interval, host time, every peer, ratio with interval, share of the bound, error.

    Where there are more than two peers a column names the best. variants: also a column for each of our own ways.
    """
    cases = list(cases)
    sizes = list(dict.fromkeys(name for case in cases for name in case.sizes))
    kinds = ("variant", "peer") if variants else ("peer",)
    others = list(dict.fromkeys(method.name for kind in kinds for case in cases for method in case.methods if method.kind == kind))
    best = len({method.name for case in cases for method in case.methods if method.kind == "peer"}) > 2
    heading = ["shape", *sizes, "mode", "ours, us", *(["host, us"] if host else []), *others, *(["best peer"] if best else [])]
    rows = [[*heading, "ours / best peer", "share of bound", "error"]]
    for case in cases:
        ours = case.ours
        row = [case.shape, *(_size(name, case.sizes.get(name)) for name in sizes), case.mode, _with_interval(ours)]
        row += [_number(ours.host_us if ours else None)] if host else []
        row += [_time(case.method(name)) for name in others]
        row += [case.comparison.best_peer or ""] if best else []
        share = case.comparison.share
        row += [_ratio(case), "" if share is None else f"{share:.2f}", "" if ours is None or ours.error is None else f"{ours.error:.1e}"]
        rows.append(row)
    return rows


def plain_table(report: Report) -> str:
    """All cases, aligned, and the summary."""
    if not report.cases:
        return "no case was measured"
    rows = table_rows(report.cases, variants=True)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*lines, "", summary(report)])


def markdown_table(report: Report, choice: dict[str, list[str]]) -> str:
    """The chosen cases as a Markdown table with the summary below. Raises ValueError for a choice that no case fits."""
    choice = dict(choice)
    shown = choice.pop("variants", None)
    if shown not in (None, ["shown"]):
        raise ValueError(f"variants={','.join(shown)} in a benchmark table's marker; it can be variants=shown")
    cases = [case for case in report.cases if _fits(case, choice)]
    if not cases:
        raise ValueError(f"no case of the file fits {choice}; shapes there: {sorted({case.shape for case in report.cases})}")
    heading, *rows = table_rows(cases, host=any(case.mode == "eager" for case in cases), variants=shown is not None)
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{summary(report)}\n"


def summary(report: Report) -> str:
    """How all cases of the file came out, by mode, and what they ran on."""
    lines = []
    for mode in dict.fromkeys(case.mode for case in report.cases):
        cases = [case for case in report.cases if case.mode == mode]
        compared = [case for case in cases if case.comparison.ratio_high is not None]
        good = [case for case in compared if (case.comparison.ratio_high or 0) <= GOAL]
        text = f"{mode}: in {len(good)} of {len(cases)} cases the upper end of ours / best peer is at most {GOAL}"
        if len(compared) < len(cases):
            text += f" ({len(cases) - len(compared)} could not be compared)"
        if compared:
            worst = max(compared, key=lambda case: case.comparison.ratio_high or 0)
            sizes = ", ".join(f"{name} {size}" for name, size in worst.sizes.items())
            text += f"; the worst is {_ratio(worst)} ({worst.shape}, {sizes})"
        wrong = sorted({method.name for case in cases for method in case.methods if method.status == "wrong"})
        large = [case.comparison.share for case in cases if case.comparison.share is not None and case.sizes.get("M", 0) >= SHARE_FROM_M]
        if large:
            reached = sum(share >= SHARE_GOAL for share in large)
            text += (
                f"; at M of {SHARE_FROM_M} and more {reached} of {len(large)} reach {SHARE_GOAL} of the bound, the lowest {min(large):.2f}"
            )
        hosts = [case.ours.host_us for case in cases if case.ours is not None and case.ours.host_us is not None]
        if hosts:
            text += f"; a call takes {statistics.median(hosts):.1f} us of host time (median of the cases; up to {max(hosts):.1f})"
        lines.append(text + (f"; wrong results: {', '.join(wrong)}" if wrong else "") + ".")
    environment = report.environment
    versions = ", ".join(f"{name} {environment[name]}" for name in ("cuda", "nccl", "torch", "triton", "driver") if environment.get(name))
    link = ", ".join(f"{name} {rate:.0f}" for name, rate in report.link.items())
    how = f"medians of {report.settings.get('rounds')} interleaved rounds with 95 % intervals, slowest rank"
    link = f"link, GB/s a rank: {link or 'not measured'}"
    lines.append(f"{', '.join(environment['cards'])}; {versions}; {environment['date']}; {link}; {how}.")
    if report.left_out or not report.complete:
        lines.append(f"Left out: {len(report.left_out)} cases{'' if report.complete else ', and what came after the run ended early'}.")
    if report.dry_run:
        lines.append("A dry run: these are not times of a GPU.")
    return "\n".join(lines)


def update_document(path: Path) -> str:
    """The text of a document with all between markers written anew, see also ``performance``. Raises ValueError for what can't be shown."""

    def written(match: re.Match) -> str:
        report = load(path.parent / match["file"])
        if report.dry_run:
            raise ValueError(f"{path}: {match['file']} is a dry run; its times must not be shown")
        return match["begin"] + markdown_table(report, choice_of(match["choice"])) + match["end"]

    from .performance import update_text

    text = update_text(path.read_text(), path.parent, str(path))
    begun = text.count("<!-- benchmark table: ")
    updated, count = _BLOCK.subn(written, text)
    if count != begun:
        raise ValueError(f"{path}: {begun} tables begin but {count} have both markers; end each by <!-- end of benchmark table -->")
    return updated


def choice_of(text: str) -> dict[str, list[str]]:
    """``mode=graph M=64,2048`` as a dictionary."""
    choice = {}
    for word in text.split():
        name, equals, values = word.partition("=")
        if not equals or not values:
            raise ValueError(f"{word!r} in a benchmark table's marker must be name=value,value")
        choice[name] = values.split(",")
    return choice


def _fits(case: CaseResult, choice: dict[str, list[str]]) -> bool:
    facts = {"mode": case.mode, "shapes": case.shape, "dtype": case.dtype, **{name: str(size) for name, size in case.sizes.items()}}
    unknown = choice.keys() - facts.keys()
    if unknown:
        raise ValueError(f"{sorted(unknown)} can't choose cases; use {sorted(facts)}")
    return all(facts[name] in values for name, values in choice.items())


def _size(name: str, value: int | None) -> str:
    """A size of a case; bytes in the unit that they are a whole number of."""
    if value is None:
        return ""
    if name == "bytes" and value >= 1024:
        for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value % (1 << shift) == 0:
                return f"{value >> shift} {unit}"
    return str(value)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def _time(method: MethodResult | None) -> str:
    if method is None:
        return ""
    return _number(method.median_us) if method.counts else method.status


def _with_interval(method: MethodResult | None) -> str:
    if method is None or not method.counts:
        return _time(method)
    return f"{_number(method.median_us)} [{_number(method.low_us)}, {_number(method.high_us)}]"


def _ratio(case: CaseResult) -> str:
    comparison = case.comparison
    if comparison.ratio is None:
        return ""
    return f"{comparison.ratio:.3f} [{comparison.ratio_low:.3f}, {comparison.ratio_high:.3f}]"
