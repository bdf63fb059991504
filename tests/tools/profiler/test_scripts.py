"""A script for CUDA that profiles its kernels, on simulated ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

SCRIPT = Path(__file__).parent / "scripts" / "for_cuda.py"


def test_a_script_for_cuda_runs_unchanged(tmp_path):
    command = [sys.executable, "-m", "triton_dist.tools.cli", "run", "--ranks", "2", str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, env=os.environ.copy(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("4 x add, ") == 2
    for rank in range(2):
        events = json.loads((tmp_path / f"rank{rank}.json").read_text())["traceEvents"]
        assert [event["pid"] for event in events if event["ph"] == "X"] == [rank] * 4
    assert not (tmp_path / "own.json").exists(), "nothing is written without a with block"
