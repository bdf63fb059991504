"""``soak_program.py`` with few calls, and what it does of wrong results and of memory that is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import triton_dist
from tests.gpu import soak_program

GPUS = torch.cuda.device_count()
PROGRAM = Path(soak_program.__file__)


def run(ranks: int, *arguments: str) -> list[str]:
    """The lines of the program on ``ranks`` ranks, one a GPU."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=450)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if " calls, " in line]


@pytest.mark.parametrize("ranks", [2, 4])
def test_one_rank_a_gpu(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    lines = run(ranks, "--calls", "2000")
    assert [line.split(",")[0] for line in lines] == [f"{operator.__name__}: right" for operator in soak_program.OPERATORS]
    assert all("2000 of 2000 calls, 0 wrong" in line for line in lines), lines


@pytest.mark.skipif(GPUS > 0, reason="GPUs do it")
def test_on_cpu_processes():
    lines = run(2, "--calls", "12", "barrier", "all_gather")
    assert [line.split(",")[:3] for line in lines] == [
        [f"{name}: right", " 12 of 12 calls", " 0 wrong"] for name in ("barrier", "all_gather")
    ]


@pytest.mark.parametrize("operator", soak_program.OPERATORS, ids=lambda operator: operator.__name__)
def test_on_simulated_ranks(operator, monkeypatch):
    monkeypatch.setattr(soak_program, "SHAPES", 2)
    found = triton_dist.simulate(soak_program.soak, 3, args=(operator, 4, 600.0, 5))
    assert all(right and said.startswith("4 of 4 calls, 0 wrong") for right, said in found), found


def sometimes_wrong(draw: soak_program.Draw) -> soak_program.Case:
    calls = []

    def call() -> torch.Tensor:
        calls.append(1)
        return torch.full((3,), float(len(calls) % 3 == 0))

    return call, torch.zeros(3)


def test_a_wrong_result_is_counted():
    right, said = triton_dist.simulate(soak_program.soak, 1, args=(sometimes_wrong, 300, 60.0, 0))[0]
    assert not right and "300 of 300 calls" in said and " 0 wrong" not in said


def loses_memory(draw: soak_program.Draw) -> soak_program.Case:
    kept = []

    def call() -> torch.Tensor:
        kept.append(bytearray(b"x" * (1 << 20)))
        return torch.zeros(1)

    return call, torch.zeros(1)


def test_memory_that_grows_is_found():
    right, said = triton_dist.simulate(soak_program.soak, 1, args=(loses_memory, 120, 60.0, 0))[0]
    assert not right and " 0 wrong" in said


def test_calls_that_the_time_did_not_allow_are_a_failure():
    right, said = triton_dist.simulate(soak_program.soak, 1, args=(always_right, 1500, 0.0, 0))[0]
    assert not right and said.startswith("1000 of 1500 calls, 0 wrong")


def always_right(draw: soak_program.Draw) -> soak_program.Case:
    return (lambda: torch.zeros(1)), torch.zeros(1)
