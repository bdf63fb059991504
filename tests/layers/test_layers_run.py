"""The GPU program of the layers as it is, under ``triton-dist run``: CUDA graphs, meshes of GPUs and training on simulated ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "gpu" / "layers_program.py"


def test_the_program_on_simulated_ranks():
    pytest.importorskip("typer")
    command = [sys.executable, "-m", "triton_dist.tools.cli", "run", "--ranks", "2", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = [line for line in done.stdout.splitlines() if line.endswith((": right", "]"))]
    assert parts == [f"{part}: right" for part in ("mlp_in_a_graph", "decoding_in_a_graph", "calls_again", "mesh_of_gpus", "training")]
