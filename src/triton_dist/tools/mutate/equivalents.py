"""Mutants that are proved to change nothing, each with the reason, in ``equivalent_mutants.toml`` beside the mutated file.

    [[equivalent]]
    file = "all_gather.py"
    function = "all_gather_kernel"
    expression = "..."        # as ``--list`` prints it
    operator = "drop"
    occurrence = 0            # which one of equal ones in the function; all of them if left out
    reason = "..."

    [[excluded]]              # a function whose mutants are not run
    file = "01_producer_consumer.py"
    function = "printed_producer_kernel"
    reason = "..."

Every entry has to match: one that matches no mutant is an error, so that a table can't outlive the code that it speaks of.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgumentError
from .operators import Mutant

TABLE = "equivalent_mutants.toml"


@dataclass(frozen=True)
class Reason:
    """Why a mutant is not expected to be named. kind: "equivalent" or "excluded"."""

    kind: str
    text: str


def reasons_for(mutants: Iterable[Mutant]) -> dict[Mutant, Reason]:
    """The reason for each mutant that has one, from the tables beside the mutated files.

    Raises InvalidArgumentError for a table that is malformed, or has an entry that matches none of the mutants of its file.
    """
    by_directory: dict[Path, list[Mutant]] = {}
    for mutant in mutants:
        by_directory.setdefault(mutant.path.parent, []).append(mutant)
    found: dict[Mutant, Reason] = {}
    for directory, there in by_directory.items():
        table = directory / TABLE
        if table.exists():
            found |= _match(table, there)
    return found


def _match(table: Path, mutants: list[Mutant]) -> dict[Mutant, Reason]:
    try:
        entries = tomllib.loads(table.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"{table}: {error}") from None
    files = {mutant.path.name for mutant in mutants}
    found: dict[Mutant, Reason] = {}
    for kind, fields in (("equivalent", ("file", "function", "expression", "operator")), ("excluded", ("file", "function"))):
        for entry in entries.pop(kind, []):
            occurrence = entry.pop("occurrence", None)
            if set(entry) != {*fields, "reason"} or not all(isinstance(value, str) and value for value in entry.values()):
                raise InvalidArgumentError(f"{table}: an entry of {kind} has {sorted(entry)}; it needs {[*fields, 'reason']}, all text")
            if entry["file"] not in files:
                continue  # not among the files of this run
            matching = [
                mutant
                for mutant in mutants
                if mutant.path.name == entry["file"]
                and mutant.function == entry["function"]
                and (kind == "excluded" or (mutant.expression, mutant.operator) == (entry["expression"], entry["operator"]))
                and occurrence in (None, mutant.occurrence)
            ]
            if not matching:
                where = ", ".join(f"{name}={entry[name]!r}" for name in fields)
                raise InvalidArgumentError(f"{table}: no mutant has {where}; the code has changed: remove the entry, or prove it anew")
            found |= dict.fromkeys(matching, Reason(kind, entry["reason"]))
    if entries:
        raise InvalidArgumentError(f"{table}: unknown tables {sorted(entries)}; there are equivalent and excluded")
    return found
