"""The soak: the race corpus and the mutants of every op, kernel and example, over many seeds and all schedules, and the table of it.

``python -m tests.mutation.soak`` (``make soak``) runs 200 seeds and writes docs/soak.md. 25 seeds take about an hour on two quiet cores;
what has been run is kept in ``out/soak.jsonl``, and a run that was stopped goes on from there as long as the sources are the same.
``--seeds 20`` runs fewer, ``--budget 600`` begins nothing new after so many seconds: the table says how many seeds each program had.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy
import torch
import triton

import triton_dist
from tests.mutation.targets import ROOT, TARGETS
from tests.races import corpus
from triton_dist import simulate
from triton_dist.errors import DataRaceError
from triton_dist.sim.check import RaceCheck
from triton_dist.sim.explore import explore
from triton_dist.sim.schedules import SCHEDULES
from triton_dist.tools.mutate.equivalents import Reason, reasons_for
from triton_dist.tools.mutate.forked import Answer, run_forked
from triton_dist.tools.mutate.operators import Mutant, mutants_of
from triton_dist.tools.mutate.run import SURVIVED, Plan, outcome_of, run_mutant_here

STAGES = (5, 25, 50, 100)
"""Everything is brought to so many seeds before anything gets more. One process runs a stage: it starts once for more and more seeds."""

WORLD_SIZES = (2, 3)
"""Of the programs of the corpus."""


@dataclass(frozen=True)
class Subject:
    """Something that is soaked: a corpus program (kind "wrong" or "right"), a mutant, or a program of mutants unchanged.

    name: of the case, of the program, or how the mutant describes itself without its line.
    """

    kind: str
    name: str
    mutant: Mutant | None = None
    program: str = ""


def subjects() -> list[Subject]:
    """Everything, in the order of the table."""
    found = [Subject(kind, name) for name in corpus.CASES for kind in ("wrong", "right")]
    found += [Subject("unchanged", program, program=program) for program in dict.fromkeys(TARGETS.values())]
    for file, program in TARGETS.items():
        for mutant in mutants_of(ROOT / file):
            name = f"{file} {mutant.function} {mutant.operator} {mutant.expression} {mutant.occurrence}"
            found.append(Subject("mutant", name, mutant, program))
    return found


def run_chunk(subject: Subject, seeds: range) -> dict:
    """What happens in the runs of some seeds; in a process of its own, which prints nothing."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        return _run_chunk(subject, seeds)


def _run_chunk(subject: Subject, seeds: range) -> dict:
    if subject.kind in ("wrong", "right"):
        return _run_corpus(subject, seeds)
    return run_mutant_here(subject.mutant, Plan(f"tests.mutation.programs:{subject.program}", seeds, SCHEDULES, paths=(str(ROOT),)))


def _run_corpus(subject: Subject, seeds: range) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        case = corpus.load_case(subject.name, Path(directory), wrong=subject.kind == "wrong")
        runs = 0
        for seed in seeds:
            for schedule in SCHEDULES:
                if schedule == "round_robin" and seed:
                    continue
                for world_size in WORLD_SIZES:
                    runs += 1
                    try:
                        simulate(case.run, world_size, check=RaceCheck(collect=True), seed=seed, schedule=schedule)
                    except DataRaceError as error:
                        if subject.kind == "wrong" and not any(corpus.names_both(race, case.RACING) for race in error.races):
                            continue
                        return _answer("DataRaceError", seed, schedule, str(error), runs)
                    except Exception as error:  # noqa: BLE001 - for a right program any error is a false alarm
                        if subject.kind == "right":
                            return _answer(type(error).__name__, seed, schedule, str(error), runs)
        return _answer(SURVIVED, -1, "", "", runs)


def _answer(result: str, seed: int, schedule: str, text: str, runs: int) -> dict:
    return {"result": result, "seed": seed, "schedule": schedule, "text": "\n".join(text.splitlines()[:6]), "runs": runs, "seconds": 0.0}


class Results:
    """What has been run, in a file that is appended to. Results of other sources are left out.

    of: for each (kind, name), its first failure, or None, and how many seeds and runs it had.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._sources = path, _sources()
        self._chunks: dict[tuple[str, str, int], dict] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                if record["sources"] == self._sources:
                    self._chunks[record["kind"], record["name"], record["first"]] = record

    def add(self, subject: Subject, seeds: range, answer: Answer) -> None:
        outcome = outcome_of(answer)
        record = {"sources": self._sources, "kind": subject.kind, "name": subject.name, "first": seeds.start, "seeds": len(seeds)}
        record |= asdict(outcome)
        self._chunks[subject.kind, subject.name, seeds.start] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def of(self, subject: Subject) -> tuple[dict | None, int, int]:
        """Its first failure, None if there is none; how many seeds it had; how many runs."""
        chunks = [record for (kind, name, _), record in sorted(self._chunks.items()) if (kind, name) == (subject.kind, subject.name)]
        failure = next((record for record in chunks if record["result"] != SURVIVED), None)
        return failure, sum(record["seeds"] for record in chunks), sum(record["runs"] for record in chunks)

    def reached(self, subject: Subject) -> int:
        """The first seed that it has not had."""
        seed = 0
        while (record := self._chunks.get((subject.kind, subject.name, seed))) is not None:
            seed += record["seeds"]
        return seed


def _sources() -> str:
    """A hash of all that the results follow from."""
    digest = hashlib.sha256()
    paths = [path for folder in ("src", "tests/races", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in [*paths, Path(__file__).parent / "programs.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def tasks(
    chosen: list[Subject], seeds: int, results: Results, deadline: float
) -> Iterator[tuple[tuple[Subject, range], Callable[[], dict]]]:
    """What is still to be run: few seeds of everything first, then more. What was found wrong needs no more seeds."""
    for stage in [*(stage for stage in STAGES if stage < seeds), seeds]:
        for subject in chosen:
            if time.monotonic() > deadline:
                return
            failure, _, _ = results.of(subject)
            chunk = range(results.reached(subject), stage)
            if failure is None and chunk:
                yield (subject, chunk), functools.partial(run_chunk, subject, chunk)


def table(all_subjects: list[Subject], results: Results, reasons: dict[Mutant, Reason]) -> str:
    """The page."""
    mutants = [subject for subject in all_subjects if subject.kind == "mutant"]
    excluded = [subject for subject in mutants if subject.mutant in reasons and reasons[subject.mutant].kind == "excluded"]
    equivalent = [subject for subject in mutants if subject.mutant in reasons and subject not in excluded]
    expected = [subject for subject in mutants if subject not in excluded and subject not in equivalent]
    wrong = [subject for subject in all_subjects if subject.kind == "wrong"]
    silent = [subject for subject in all_subjects if subject.kind in ("right", "unchanged")] + equivalent
    versions = (
        f"Python {sys.version.split()[0]}, triton {triton.__version__}, torch {torch.__version__.split('+')[0]}, numpy {numpy.__version__}"
    )
    lines = [
        "# Soak",
        "",
        f"Written by `make soak` ({versions}).",
        "`python -m tests.mutation.soak --help` says how to run more or less of it. The schedules are",
        f"{', '.join(SCHEDULES)}; each seed is run with each of them (round_robin once, it has no seed), corpus programs on",
        f"{' and '.join(map(str, WORLD_SIZES))} ranks. A wrong program or mutant is run until it is named, everything else for all seeds.",
        "",
        "| | number | named | seeds needed, at most | named by seed 0 | seeds run of the rest | false alarms | runs |",
        "|---|---|---|---|---|---|---|---|",
        _summary("wrong programs of the corpus", wrong, results),
        _summary("mutants", expected, results),
        _summary("right programs of the corpus", [s for s in all_subjects if s.kind == "right"], results, silent=True),
        _summary("ops, kernels and examples unchanged", [s for s in all_subjects if s.kind == "unchanged"], results, silent=True),
        _summary("equivalent mutants", equivalent, results, silent=True),
        "",
    ]
    alarms = [(subject, failure) for subject in silent if (failure := results.of(subject)[0]) is not None]
    missed = [subject for subject in [*wrong, *expected] if not _named(results.of(subject)[0])]
    lines += ["False alarms: " + ("none." if not alarms else "")]
    lines += [f"- {subject.name}: {failure['result']}, seed {failure['seed']}, {failure['schedule']}" for subject, failure in alarms]
    lines += ["", "Not named: " + ("none." if not missed else "")]
    lines += [f"- {_title(subject)}: {_state(subject, results)}" for subject in missed]
    lines += ["", "## Mutants", "", "| mutant | named by | seeds needed | schedule |", "|---|---|---|---|"]
    lines += [_row(subject, results) for subject in expected]
    lines += ["", "## Mutants that are proved equivalent", "", "| mutant | reason | seeds, all silent |", "|---|---|---|"]
    for subject in equivalent:
        failure, seeds, _ = results.of(subject)
        text = reasons[subject.mutant].text  # type: ignore[index]
        lines.append(f"| {_title(subject)} | {text} | {seeds if failure is None else failure['result']} |")
    functions = {(s.mutant.path.name, s.mutant.function): reasons[s.mutant].text for s in excluded if s.mutant is not None}
    lines += ["", "Functions whose mutants are not run:"] if functions else []
    lines += [f"- `{function}` of {file}: {text}" for (file, function), text in functions.items()]
    lines += ["", "## Corpus", "", "| program | wrong: seeds needed | schedule | right: seeds, all silent |", "|---|---|---|---|"]
    for subject in wrong:
        failure, _, _ = results.of(subject)
        right, seeds, _ = results.of(Subject("right", subject.name))
        needed = f"{failure['seed'] + 1} | {failure['schedule']}" if failure else "not found | "
        lines.append(f"| {subject.name} | {needed} | {seeds if right is None else right['result']} |")
    return "\n".join(lines) + "\n"


def _named(failure: dict | None) -> bool:
    return failure is not None and failure["result"] not in (SURVIVED, "wrong result", "no end", "process died")


def _state(subject: Subject, results: Results) -> str:
    """What is known of one, in words."""
    failure, seeds, _ = results.of(subject)
    return failure["result"] if failure else f"silent in {seeds} seeds" if seeds else "not run"


def _summary(title: str, chosen: list[Subject], results: Results, silent: bool = False) -> str:
    found = [results.of(subject) for subject in chosen]
    failures = [failure for failure, _, _ in found if failure is not None]
    named = [failure for failure in failures if _named(failure)]
    rest = [seeds for failure, seeds, _ in found if failure is None]
    runs = sum(runs for _, _, runs in found)
    least = str(min(rest)) if rest else "-"
    if silent:
        return f"| {title} | {len(chosen)} | | | | {least} | {len(failures)} | {runs} |"
    at_most = str(1 + max(failure["seed"] for failure in named)) if named else "-"
    return f"| {title} | {len(chosen)} | {len(named)} | {at_most} | {sum(f['seed'] == 0 for f in named)} | {least} | | {runs} |"


def _title(subject: Subject) -> str:
    mutant = subject.mutant
    if mutant is None:
        return subject.name
    expression = mutant.expression if len(mutant.expression) <= 90 else mutant.expression[:87] + "..."
    number = f" ({mutant.occurrence + 1})" if mutant.occurrence else ""
    return f"{mutant.path.name}, `{mutant.function}`: {mutant.operator} `{expression}`{number}".replace("|", "\\|")


def _row(subject: Subject, results: Results) -> str:
    failure, seeds, _ = results.of(subject)
    if failure is None:
        return f"| {_title(subject)} | nothing | {seeds} tried | |"
    return f"| {_title(subject)} | {failure['result']} | {failure['seed'] + 1} | {failure['schedule']} |"


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code: 1 for a false alarm, or a wrong program or mutant that was not named in all the seeds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which nothing new is begun")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument("--results", type=Path, default=ROOT / "out" / "soak.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "soak.md", help="the table; not written with --only")
    options = parser.parse_args(arguments)
    everything = subjects()
    reasons = reasons_for([subject.mutant for subject in everything if subject.mutant is not None])
    chosen = [
        subject
        for subject in everything
        if options.only in subject.name and not (subject.mutant in reasons and reasons[subject.mutant].kind == "excluded")  # type: ignore[index]
    ]
    results = Results(options.results)
    begin = time.monotonic()
    todo = tasks(chosen, options.seeds, results, begin + options.budget)
    for (subject, seeds), answer in run_forked(todo, workers=options.workers, timeout=1800.0):
        results.add(subject, seeds, answer)
        failure, total, _ = results.of(subject)
        seen = failure["result"] if failure else "silent"
        print(f"{time.monotonic() - begin:6.0f} s  {subject.kind:9} {seen:20} {total:4} {subject.name}", flush=True)
    if not options.only:
        options.output.write_text(table(everything, results, reasons), encoding="utf-8")
        print(f"wrote {options.output}")
    expected = [s for s in chosen if s.kind == "wrong" or (s.kind == "mutant" and s.mutant not in reasons)]
    silent = [s for s in chosen if s not in expected]
    failed = [s for s in expected if not _named(results.of(s)[0])] + [s for s in silent if results.of(s)[0] is not None]
    for subject in failed:
        print(f"{subject.kind} {subject.name}: {_state(subject, results)}")
    return 1 if failed else 0


if __name__ == "__main__":
    assert triton_dist and explore  # imported once here, for all processes that are forked
    raise SystemExit(main())
