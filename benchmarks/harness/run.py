"""The loop over the cases of a benchmark, and the arguments that all benchmarks take."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .comparison import compare
from .environment import describe
from .intervals import fewest_samples
from .limits import Budget, Watchdog
from .link import measure_link
from .machine import Machine
from .results import CaseResult, MethodResult, Report, save
from .tables import case_line, plain_table
from .timing import MODES, Method, Options, measure

LINK_BYTES = 256 << 20
"""Bytes of the symmetric heap that measuring the link takes, for a while."""


@dataclass(frozen=True)
class Case:
    """One shape of a benchmark. build: allocates and returns the methods, as a context manager that frees at its end.

    bounds: from the results, what no implementation can be faster than (see ``comparison.compare``), given the link's rates too.
    turns, most_inner: see ``timing.Options``.
    """

    shape: str
    sizes: dict[str, int]
    dtype: str
    build: Callable[[Machine], contextlib.AbstractContextManager[Sequence[Method]]]
    bounds: Callable[[Sequence[MethodResult], dict[str, float]], Mapping[str, float | None]]
    turns: int = 1
    most_inner: int = 100

    @property
    def name(self) -> str:
        """What progress lines and ``Report.left_out`` call it."""
        return " ".join([self.shape, *(f"{key}={value}" for key, value in self.sizes.items()), self.dtype])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that ``run_cases`` and ``machine.run_on`` need."""
    parser.add_argument("--json", type=Path, help="where to write the results; written after every case")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), help="eager calls, CUDA graphs, or both (default)")
    parser.add_argument("--methods", nargs="+", help="only these methods; names as in the results")
    parser.add_argument("--rounds", type=_rounds, default=25, help="rounds of each case (default %(default)s)")
    parser.add_argument("--budget", type=float, help="seconds; cases that would not end in time are left out and named")
    parser.add_argument("--step-limit", type=float, default=120, help="seconds after which a step counts as hung (default %(default)g)")
    parser.add_argument("--heap-gib", type=float, help="GiB of each rank's symmetric heap instead of what the shapes need")
    parser.add_argument("--seed", type=int, default=0, help="of the data and of the order of the methods")
    parser.add_argument("--dry-run", action="store_true", help="on simulated ranks, no GPU: runs the code; its times mean nothing")
    parser.add_argument("--dry-ranks", type=int, default=4, help="ranks of a dry run (default %(default)s)")


def _rounds(text: str) -> int:
    rounds = int(text)
    if rounds < fewest_samples():
        raise argparse.ArgumentTypeError(f"{rounds} rounds give no interval; at least {fewest_samples()} (20 for results that are shown)")
    return rounds


def run_cases(machine: Machine, operator: str, cases: Iterable[Case], arguments: argparse.Namespace) -> Report:
    """Measure the cases one after the other; the report is written after each. Every rank calls it, with the same cases."""
    budget, watchdog = Budget(arguments.budget), Watchdog(arguments.step_limit, machine.rank)
    with watchdog.watch("measuring the link"):
        link = measure_link(machine, LINK_BYTES if not machine.dry else 1 << 12)
        report = Report(operator, describe(machine), link, _settings(arguments), dry_run=machine.dry)
    _say(machine, f"{report.environment['cards']}, link {link or 'none'} GB/s")
    for case in cases:
        # Rank 0's clock decides for all.
        if not machine.gather(budget.has_room())[0]:
            report.left_out.append(case.name)
            continue
        with budget.case():
            for result in _run_case(machine, case, arguments, link, watchdog):
                report.cases.append(result)
                _say(machine, f"[{budget.spent:4.0f} s] {case_line(result)}")
                _write(machine, report, arguments.json)
    report.complete = True
    _write(machine, report, arguments.json)
    _say(machine, plain_table(report))
    if report.left_out:
        _say(machine, f"left out, --budget {arguments.budget:g} was spent: {'; '.join(report.left_out)}")
    return report


def _run_case(
    machine: Machine, case: Case, arguments: argparse.Namespace, link: dict[str, float], watchdog: Watchdog
) -> Iterable[CaseResult]:
    options = Options(
        rounds=arguments.rounds,
        turns=case.turns,
        most_inner=case.most_inner,
        seed=arguments.seed,
        **({"span_us": 1, "warm_up": 1} if machine.dry else {}),
    )
    with watchdog.watch(f"{case.name}: making the inputs"):
        built = contextlib.ExitStack()
        methods = built.enter_context(case.build(machine))
    chosen = [method for method in methods if not arguments.methods or method.name in arguments.methods]
    for mode in arguments.mode:
        results = measure(machine, chosen, mode, options, watchdog)
        comparison = compare(results, case.bounds(results, link))
        yield CaseResult(case.shape, case.sizes, case.dtype, machine.world_size, mode, results, comparison)
    with watchdog.watch(f"{case.name}: freeing the inputs"):
        del methods, chosen
        built.close()


def _settings(arguments: argparse.Namespace) -> dict:
    return {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items() if name != "json"}


def _say(machine: Machine, text: str) -> None:
    if machine.rank == 0:
        print(text, flush=True)


def _write(machine: Machine, report: Report, path: Path | None) -> None:
    if machine.rank == 0 and path is not None:
        save(report, path)
