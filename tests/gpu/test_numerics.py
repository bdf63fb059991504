"""The simulator against a real GPU: every program of this folder on both, in one process. Prints a table of what differs."""

from __future__ import annotations

import re

import pytest
import torch

from tests.gpu.compare import Outcome, load_recorded, outcome, table
from tests.gpu.programs import Program, run, simulated
from tests.gpu.record import all_programs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with a real GPU: torch.cuda.is_available() is False")

PROGRAMS = {program.name: program for program in all_programs()} if torch.cuda.is_available() else {}
KINDS = ("dot", "reduce", "atomic", "libdevice", "random", "int", "uint", "fp8e5", "fp8e4nv", "fp16", "bf16", "fp32", "fp64")


def compare(program: Program) -> dict[str, Outcome]:
    """Run a program on both and compare every output."""
    measured = run(program, "cuda")
    with simulated():
        expected = run(program, "cpu")
    return {f"{program.name}/{output}": outcome(program, output, expected[output], measured[output]) for output in measured}


@pytest.mark.parametrize("kind", KINDS)
def test_simulator_follows_the_gpu(kind, capsys):
    """What was the same on the recorded H100 is the same here; what was near is as near."""
    recorded = load_recorded()
    rows: dict[str, Outcome] = {}
    for name, program in PROGRAMS.items():
        if re.match(rf"{kind}\d*\.", name):
            rows |= compare(program)
    assert rows, f"no program is of the kind {kind}"
    with capsys.disabled():
        print("\n" + table(rows))
    worse = []
    for name, row in rows.items():
        before = recorded[name]
        if before.digest is not None and row.digest is None:
            worse.append(f"{name} {row.expression}: {row.differ} of {row.of} elements differ")
        elif before.furthest is not None and row.furthest is not None and row.furthest > 2 * before.furthest + 2:
            worse.append(f"{name} {row.expression}: {row.furthest} ulps apart, recorded {before.furthest}")
    assert not worse, "\n".join(worse)
