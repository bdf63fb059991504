"""A communication report as tables for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .report import CommunicationReport, Loop

_PIPE_WIDTH = 200
_WIDE = 16


def print_json(report: CommunicationReport) -> None:
    """One JSON object on stdout; the fields of ``CommunicationReport``."""
    print(json.dumps(dataclasses.asdict(report), indent=2))


def print_report(report: CommunicationReport) -> None:
    """Tables on stdout; a kind of thing that the kernel has none of is left out, but for the other ranks' memory."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    options = ", ".join(f"{name}={value}" for name, value in report.options.items())
    console.print(Text(f"{report.kernel} for {report.target}, triton {report.triton}: {report.signature}; {options}"))
    if report.remote:
        rows = [(_place(row.file, row.line), row.kind, row.way, _widths(row.widths)) for row in report.remote]
        _table(console, "memory of other ranks", ("line", "kind", "address by", "bytes a thread and instruction"), rows)
        narrowest = report.narrowest_remote
        if narrowest is not None and narrowest < _WIDE:
            console.print(Text(f"narrowest access over the links: {narrowest} bytes a thread, where {_WIDE} are possible"))
    else:
        console.print(Text("no access of other ranks' memory through symm_at or a table of addresses"))
    _table(
        console, "waits", ("line", "order", "scope", "bits", ""),
        [(_place(one.file, one.line), one.semantic, one.scope, str(one.bits), "own loop" if one.own else "") for one in report.spins],
    )  # fmt: skip
    _table(
        console, "atomics and ordered accesses outside of waits", ("operation", "type", "order", "scope", "address by", "count"),
        [(one.operation, one.type, one.semantic, one.scope, one.way, str(one.count)) for one in report.ordered],
    )  # fmt: skip
    counts = [*report.fences.items(), *((f"TMA {name}", count) for name, count in report.bulk.items())]
    counts += [("barrier of the block", report.barriers)] if report.barriers else []
    _table(console, "fences, barriers, bulk copies", ("instruction", "count"), [(name, str(count)) for name, count in counts])
    _table(
        console, "loops with matrix products", ("line", "loads", "buffers", "pipelined"),
        [(_place(one.file, one.line), str(one.loads), str(one.buffers), _pipelined(one)) for one in report.loops],
    )  # fmt: skip
    _print_resources(console, report)


def _pipelined(loop: Loop) -> str:
    return ("yes" if loop.pipelined else "no") + (f"; {loop.waits} wait{'s' if loop.waits > 1 else ''} in it" if loop.waits else "")


def _print_resources(console: Console, report: CommunicationReport) -> None:
    resources = report.resources
    known = {"registers": resources.registers, "stack bytes": resources.stack, "spill instructions": resources.spills}
    parts = [f"{name} {'?' if value is None else value}" for name, value in known.items()]
    missing = f" ({resources.missing})" if resources.missing else ""
    console.print(Text(f"shared memory {resources.shared} bytes; {', '.join(parts)}{missing}"))
    if resources.counts:
        console.print(Text("machine code: " + ", ".join(f"{count} {name}" for name, count in resources.counts.items())))


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _place(file: str, line: int) -> str:
    return f"{os.path.basename(file)}:{line}" if file else "?"


def _widths(widths: Mapping[int | str, int]) -> str:
    return ", ".join(f"{width} ({count})" for width, count in sorted(widths.items(), key=str))
