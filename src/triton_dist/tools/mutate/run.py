"""Run a program with a mutant in it, in a process of its own, and say what became of it."""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import InvalidArgumentError
from ...sim.explore import DEFAULT_SCHEDULES, explore
from .forked import Answer, run_forked
from .load import Substitute
from .operators import Mutant, mutated

SURVIVED, WRONG, NO_END = "survived", "wrong result", "no end"
_REFUSED = ("CompilationError", "CompileTimeAssertionFailure", "PrimitiveArgumentError", "KernelSourceError")
"""Errors of a mutant that does not compile."""


@dataclass(frozen=True)
class Case:
    """One program that a mutant is run in.

    function: what each rank runs; raises AssertionError if its result is wrong. options: further arguments of ``simulate``.
    """

    function: Callable[..., Any]
    world_size: int
    args: tuple = ()
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Plan:
    """How often a mutant is run. program: ``module:name`` of a list of ``Case``. seeds: which. check: as ``simulate`` takes it.

    paths: put in front of ``sys.path``. timeout: seconds after which a mutant counts as one that does not end.
    """

    program: str
    seeds: Sequence[int] = range(10)
    schedules: tuple[str, ...] = DEFAULT_SCHEDULES
    check: str = "race"
    paths: tuple[str, ...] = ()
    timeout: float = 300.0


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant.

    result: the class of the error that named it, "wrong result", "refused" (it does not compile), "no end", or "survived".
    seed, schedule: of the run that failed; -1 and "" if none did. text: the first lines of the error. runs: of the program.
    """

    result: str
    seed: int
    schedule: str
    text: str
    runs: int
    seconds: float = 0.0

    @property
    def named(self) -> bool:
        """Whether a check has named it."""
        return self.result not in (SURVIVED, WRONG, NO_END, "process died")


def run_mutants(jobs: Iterable[tuple[Mutant | None, Plan]], workers: int = 1) -> Iterator[tuple[Mutant | None, Outcome]]:
    """Run each plan's program with its mutant, or unchanged (None), until a run fails or all have ended; several at a time.

    Processes are forked, so the caller must not have imported the mutated files. Raises InvalidArgumentError where a program can't be run.
    """
    jobs = list(jobs)
    tasks = [(mutant, functools.partial(run_mutant_here, mutant, plan)) for mutant, plan in jobs]
    timeout = max((plan.timeout for _, plan in jobs), default=0.0)
    for mutant, answer in run_forked(tasks, workers=workers, timeout=timeout):
        yield mutant, outcome_of(answer)


def outcome_of(answer: Answer) -> Outcome:
    """What the answer of a process means."""
    if answer.value is not None:
        return Outcome(**answer.value | {"seconds": answer.seconds})
    result = NO_END if answer.late else "process died"
    return Outcome(result, -1, "", f"{result} after {answer.seconds:.0f} s", 0, answer.seconds)


def run_mutant_here(mutant: Mutant | None, plan: Plan) -> dict[str, Any]:
    """What ``run_mutants`` runs in each process: the fields of an Outcome."""
    with tempfile.TemporaryDirectory() as directory:
        sys.path[:0] = list(plan.paths)
        substitute = None
        if mutant is not None:
            changed = Path(directory) / mutant.path.name
            changed.write_bytes(mutated(mutant))
            substitute = Substitute(mutant.path, changed)
            substitute.install()
        module, _, name = plan.program.partition(":")
        cases: Sequence[Case] = getattr(importlib.import_module(module), name)
        if substitute is not None and not substitute.loaded:
            raise InvalidArgumentError(f"{plan.program} does not import {substitute.original}: no mutant of it would be run")
        return asdict(try_cases(cases, plan.seeds, plan.schedules, plan.check))


def try_cases(cases: Sequence[Case], seeds: Iterable[int], schedules: Sequence[str], check: str) -> Outcome:
    """Run the cases under all schedules of each seed, until one fails."""
    runs = 0

    def count(*done: int) -> None:
        nonlocal runs
        runs += 1

    for seed in seeds:
        for case in cases:
            options = {"args": case.args, "check": check or None, **dict(case.options)}
            try:
                explore(case.function, case.world_size, seeds=[seed], schedules=schedules, progress=count, minimize_seconds=0, **options)
            except Exception as error:  # noqa: BLE001 - any error of the program counts
                note = next((note for note in getattr(error, "__notes__", ()) if "of explore" in note), "")
                schedule = note.partition("schedule='")[2].partition("'")[0]
                return Outcome(_result(error), seed, schedule, "\n".join(str(error).splitlines()[:6]), runs)
    return Outcome(SURVIVED, -1, "", "", runs)


def _result(error: BaseException) -> str:
    """How an error is counted."""
    name = type(error).__name__
    return WRONG if type(error) is AssertionError else "refused" if name in _REFUSED else name
