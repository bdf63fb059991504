"""``layers_program.py`` under torchrun, one rank a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "layers_program.py"
PARTS = ("mlp_in_a_graph", "decoding_in_a_graph", "calls_again", "mesh_of_gpus", "training", "compiled_layers")


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("ranks", [2, 4])
def test_layers_on_gpus(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.endswith(": right") or ": wrong on ranks" in line]
    assert lines == [f"{part}: right" for part in PARTS]
