"""Printing findings: tables for people, one JSON object for programs, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import IO, Any

from .finding import Finding, Status

_COLOURS = {Status.OK: "green", Status.WARN: "yellow", Status.MISSING: "bold red", Status.NOT_TESTED: "dim"}


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if something needed is missing, else 0."""
    return int(any(finding.status is Status.MISSING for finding in findings))


def to_json(findings: Sequence[Finding]) -> str:
    """{"ok": bool, "findings": [{"group", "name", "status", "value", "advice", "data"}, ...]}."""
    return json.dumps({"ok": exit_code(findings) == 0, "findings": [asdict(finding) for finding in findings]}, indent=2)


def matrix(pairs: Sequence[Sequence[Any]]) -> list[list[str]]:
    """A header and one row for each GPU: what was found from it to each other one; empty where nothing was."""
    gpus = sorted({gpu for row in pairs for gpu in row[:2]})
    cells = {(one, other): _cell(value) for one, other, value in pairs}
    return [["", *(f"to {gpu}" for gpu in gpus)]] + [[f"GPU {one}", *(cells.get((one, other), "") for other in gpus)] for one in gpus]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _matrix(finding: Finding) -> Any:
    """The matrix of one finding as rich's table."""
    from rich.table import Table

    unit = finding.data["unit"]
    title = f"{finding.name}, {unit}" if unit else finding.name
    header, *rows = matrix(finding.data["pairs"])
    table = Table(*header, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table


def print_json(findings: Sequence[Finding]) -> None:
    """One JSON object on standard output."""
    print(to_json(findings))


def print_tables(findings: Sequence[Finding], file: IO[str] | None = None) -> None:
    """One table a group, in the order in which the groups come, then the matrices of pairs, then a line that sums up."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=file, soft_wrap=False)
    for group in dict.fromkeys(finding.group for finding in findings):
        table = Table(
            title=group, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0)
        )
        table.add_column(style="bold", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            if finding.group == group:
                text = Text(finding.value)
                if finding.advice:
                    text.append(f"\n→ {finding.advice}", style="italic")
                table.add_row(finding.name, Text(finding.status, style=_COLOURS[finding.status]), text)
        console.print(table)
        console.print()
    for finding in findings:
        if isinstance(finding.data, dict) and len(finding.data.get("pairs", ())) > 1:
            console.print(_matrix(finding))
            console.print()
    counts = {status: sum(finding.status is status for finding in findings) for status in Status}
    console.print(", ".join(f"{count} {status}" for status, count in counts.items() if count))
