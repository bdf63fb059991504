"""Scripts written for GPUs and torch's symmetric memory under ``triton-dist run`` and ``triton-dist check``, unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

SCRIPTS = Path(__file__).parent / "scripts"


def command(*arguments):
    """The command line in a process of its own."""
    line = [sys.executable, "-m", "triton_dist.tools.cli", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "200"})


@pytest.mark.parametrize("ranks", [2, 4])
def test_one_shot_all_reduce(ranks):
    done = command("run", "--ranks", ranks, SCRIPTS / "one_shot.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}: done" for rank in range(ranks)]


def test_its_racy_twin_is_found():
    done = command("check", "--ranks", 2, "--seeds", 2, SCRIPTS / "one_shot.py", "--racy")
    assert done.returncode != 0
    assert "TD101 data-race: data race on buffer[" in done.stdout + done.stderr


def test_the_program_for_gpus():
    """tests/gpu/torch_symm_program.py, which hands memory both ways, does the same on simulated ranks."""
    done = command("run", "--ranks", 2, Path(__file__).parents[1] / "gpu" / "torch_symm_program.py")
    assert done.returncode == 0 and done.stdout.count(": right") == 4, done.stdout + done.stderr
