"""The command ``triton-dist check``: prints what was found and gives the exit code."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from ...errors import InvalidArgumentError
from .options import Options, Run
from .report import Failure, Item, Report
from .supervise import Supervisor

CLEAN, FOUND, WRONG_USAGE, SCRIPT_FAILED = 0, 1, 2, 3
"""Exit codes."""


def check(path: str, arguments: Sequence[str], options: dict[str, Any], *, as_json: bool = False) -> int:
    """Check a script, print the findings on stderr (and one JSON object on stdout if ``as_json``), and return the exit code.

    options: as ``Options`` takes them.
    """
    import rich.console

    console = rich.console.Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        chosen = Options(**options)
        with console.status("starting") as status:
            supervisor = Supervisor(path, arguments, chosen, lambda done: status.update(f"run {done + 1} of {len(chosen.plan())}"))
            report = supervisor.check()
    except InvalidArgumentError as error:
        print(f"triton-dist check: {error}", file=sys.stderr)
        return WRONG_USAGE
    report.versions = _versions()
    again = shlex.join([path, *arguments])
    for item in report.items.values():
        _print_item(console, item, again)
    for failure in _distinct(report.failures):
        _print_failure(console, failure, again)
    _print_end(console, report)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    return report.exit_code


def _print_item(console: Any, item: Item, again: str) -> None:
    place = f"[bold]{_plain(item.file)}:{item.line}[/bold]: " if item.file else ""
    label = item.code if item.code == item.name else f"{item.code} {item.name}"
    kernel = f" (in {_plain(item.kernel)})" if item.kernel else ""
    colour = "yellow" if item.warning else "red"
    console.print(f"{place}[{colour}]{_plain(label)}[/{colour}]{kernel}: {_plain(item.message)}")
    if item.run is not None:
        also = f", and in {item.times - 1} more runs" if item.times > 1 else ""
        console.print(f"  [dim]again by: {_plain(_run_again(item.run, again))}{also}[/dim]")


def _print_failure(console: Any, failure: Failure, again: str) -> None:
    console.print(f"[magenta]script failed[/magenta]: {_plain(failure.text)}")
    for line in failure.output.splitlines():
        console.print(f"  {_plain(line)}")
    if failure.run is not None:
        console.print(f"  [dim]again by: {_plain(_run_again(failure.run, again))}[/dim]")


def _print_end(console: Any, report: Report) -> None:
    colour = {CLEAN: "green", FOUND: "red"}.get(report.exit_code, "magenta")
    console.print(f"[{colour}]{_plain(report.summary('triton-dist check'))}[/{colour}]")


def _distinct(failures: Sequence[Failure]) -> list[Failure]:
    """The first failure of each text."""
    return list({failure.text: failure for failure in reversed(failures)}.values())[::-1]


def _run_again(run: Run, script: str) -> str:
    return f"triton-dist check --ranks {run.ranks} --first-seed {run.seed} --seeds 1 --schedules {run.schedule} {script}"


def _plain(text: object) -> str:
    from rich.markup import escape

    return escape(str(text))


def _versions() -> dict[str, str]:
    from ... import __version__

    found = {"triton_dist": __version__, "python": sys.version.split()[0]}
    for name in ("triton", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
