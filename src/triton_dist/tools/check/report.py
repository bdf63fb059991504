"""What a check found, as lines for people and as one object for machines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...errors import SimulationError
from ...lints import LINTS, Finding
from .options import Run

_PLACE = re.compile(r" at (\S+?):(\d+)")
_PRINTED = re.compile(r"(?:(?P<file>.+?):(?P<line>\d+): )?(?P<code>TD\d{3}) [\w-]+(?: \((?P<where>[^)]*)\))?: (?P<message>.*)", re.DOTALL)


@dataclass(frozen=True)
class Item:
    """One finding. code: of docs/lints, or the name of the simulator's error. run: the first run that had it, None for a compiled kernel.

    times: runs that had it.
    """

    code: str
    name: str
    message: str
    file: str | None = None
    line: int | None = None
    kernel: str | None = None
    rank: int | None = None
    warning: bool = False
    run: Run | None = None
    times: int = 1

    @property
    def key(self) -> tuple:
        """Items with the same key are told once."""
        return (self.code, self.file, self.line) if self.file else (self.code, self.message)

    @classmethod
    def of(cls, finding: Finding, run: Run | None = None) -> Item:
        """From a finding of a lint."""
        lint = LINTS[finding.code]
        return cls(finding.code, lint.name, finding.message, finding.file, finding.line, finding.kernel, finding.rank, lint.warns, run)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        label = self.code if self.code == self.name else f"{self.code} {self.name}"
        return f"{place}{label}{f' (in {self.kernel})' if self.kernel else ''}: {self.message}"


def items_of_error(error: SimulationError, run: Run) -> list[Item]:
    """What an error of the simulator says: each race and each finding that it has, else its text."""
    items = [Item.of(finding, run) for finding in getattr(error, "findings", ())]
    code = getattr(error, "code", "") or type(error).__name__
    name = LINTS[code].name if code in LINTS else code
    for race in getattr(error, "races", ()):
        file, line = _place(f" at {race.later.line}" if race.later.line else f" at {race.earlier.line}")
        items.append(Item(race.code, LINTS[race.code].name, race.describe(), file, line, rank=race.later.rank, run=run))
    if not items:
        text = str(error)
        file, line = _place(text)
        items.append(Item(code, name, text, file, line, run=run))
    return items


def item_of_warning(text: str, run: Run) -> Item:
    """From the text of a lint's warning."""
    match = _PRINTED.fullmatch(text)
    if match is None or match["code"] not in LINTS:
        return Item("MisuseWarning", "MisuseWarning", text, warning=True, run=run)
    line = int(match["line"]) if match["line"] else None
    return Item(match["code"], LINTS[match["code"]].name, match["message"], match["file"], line, warning=True, run=run)


def _place(text: str) -> tuple[str | None, int | None]:
    match = _PLACE.search(text)
    return (match[1], int(match[2])) if match else (None, None)


@dataclass(frozen=True)
class Failure:
    """A run that the script itself ended: by an exception, an exit code, or by taking too long. output: the end of what it printed."""

    run: Run | None
    text: str
    output: str = ""


@dataclass
class Report:
    """Everything that one check found and did. planned, done: runs. kernels: distinct ones that were compiled, by name and architecture."""

    script: str
    planned: int = 0
    done: list[Run] = field(default_factory=list)
    seconds: float = 0.0
    items: dict[tuple, Item] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, items: Iterable[Item], ignore: Iterable[str] = ()) -> None:
        """Note findings; one that is there already is counted."""
        for item in items:
            if item.code not in ignore:
                known = self.items.get(item.key)
                self.items[item.key] = item if known is None else replace(known, times=known.times + 1)

    @property
    def exit_code(self) -> int:
        """0: clean. 1: something was found. 3: nothing was found, and the script itself failed."""
        return 1 if self.items else 3 if self.failures else 0

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "script": self.script,
            "exit_code": self.exit_code,
            "findings": [asdict(item) for item in self.items.values()],
            "failures": [asdict(failure) for failure in self.failures],
            "runs": [asdict(run) for run in self.done],
            "runs_planned": self.planned,
            "kernels": sorted(self.kernels.values()),
            "seconds": round(self.seconds, 3),
            "versions": self.versions,
        }

    def summary(self, command: str) -> str:
        """The last line. command: how a run comes again, up to the script."""
        found = len(self.items)
        parts = [
            f"{found} finding{'' if found == 1 else 's'}",
            f"{len(self.done)} of {self.planned} runs" if len(self.done) < self.planned else f"{self.planned} runs",
            f"{len(self.kernels)} kernels compiled",
            f"{self.seconds:.1f} s",
        ]
        if self.failures:
            parts.insert(1, f"{len(self.failures)} runs that the script itself ended")
        return f"{command}: {', '.join(parts)}"
