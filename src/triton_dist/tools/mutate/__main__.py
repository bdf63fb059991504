"""``python -m triton_dist.tools.mutate FILE --program module:cases``: run every mutant of a file, and say which ones nothing names."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from .equivalents import reasons_for
from .operators import mutants_of
from .run import SURVIVED, Plan, run_mutants


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 if all mutants that are not proved equivalent were named, 1 if not, 2 if the program fails without a mutant."""
    parser = argparse.ArgumentParser(prog="python -m triton_dist.tools.mutate", description=__doc__)
    parser.add_argument("file", type=Path, help="a Python file with kernels and host functions")
    parser.add_argument("--program", help="module:name of a list of triton_dist.tools.mutate.run.Case that runs the file")
    parser.add_argument("--path", action="append", default=[], help="put in front of sys.path, to import the program")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--schedules", default=",".join(Plan.schedules))
    parser.add_argument("--check", default=Plan.check, help="as simulate takes it; empty for none")
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--only", default="", help="mutants whose description contains this")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object a mutant")
    options = parser.parse_args(arguments)
    mutants = mutants_of(options.file)
    reasons = reasons_for(mutants)
    chosen = [mutant for mutant in mutants if options.only in mutant.describe()]
    if options.list:
        for mutant in chosen:
            reason = reasons.get(mutant)
            print(mutant.describe() + (f"  [{reason.kind}: {reason.text}]" if reason else ""))
        return 0
    if not options.program:
        parser.error("--program is needed to run mutants")
    paths = (*options.path, str(Path.cwd()))
    plan = Plan(options.program, range(options.seeds), tuple(options.schedules.split(",")), options.check, paths)
    ((_, unchanged),) = run_mutants([(None, plan)])
    if unchanged.result != SURVIVED:
        print(f"without a mutant the program fails: {unchanged.result}: {unchanged.text}", file=sys.stderr)
        return 2
    missed = 0
    jobs = [(mutant, plan) for mutant in chosen if mutant not in reasons or reasons[mutant].kind != "excluded"]
    for ran, outcome in run_mutants(jobs, options.workers):
        assert ran is not None
        mutant = ran
        reason = reasons.get(mutant)
        missed += reason is None and not outcome.named
        if options.json:
            place = {"function": mutant.function, "expression": mutant.expression, "operator": mutant.operator, "line": mutant.line}
            print(json.dumps(place | asdict(outcome) | {"reason": reason.text if reason else None}), flush=True)
        else:
            where = f"{outcome.runs} runs" if outcome.result == SURVIVED else f"seed {outcome.seed}, {outcome.schedule}"
            print(f"{outcome.result:20} {mutant.describe()} ({where})" + (f" [{reason.text}]" if reason else ""), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
