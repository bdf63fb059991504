"""The symmetric heap of CUDA worlds on processes that share memory through a fake driver: the scenarios of ``scenarios/``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.cuda.scenarios.all import SCENARIOS

ROOT = Path(__file__).parents[3]
ANY_SIZE = (
    "allocations_have_one_offset",
    "peers_see_each_other",
    "requests_are_checked",
    "children_are_not_ranks",
    "adopted_memory_is_symmetric",
)
"""Scenarios that make sense on any number of ranks; the others are written for four."""

CASES = [(4, scenario.__name__) for scenario in SCENARIOS] + [(size, name) for size in (1, 3) for name in ANY_SIZE]


@functools.cache
def outcomes(ranks: int) -> dict[str, list[str]]:
    """What each scenario says on each rank; all of them run in one set of processes."""
    chosen = [name for size, name in CASES if size == ranks]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.cuda.scenarios", str(ranks), *chosen],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("ranks", "scenario"), CASES)
def test_scenario(ranks, scenario):
    wrong = {rank: said for rank, said in enumerate(outcomes(ranks)[scenario]) if said != "right"}
    assert not wrong, "\n".join(f"rank {rank}:\n{said}" for rank, said in wrong.items())
