"""``inductor_program.py`` under torchrun, one rank a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "inductor_program.py"
PARTS = (
    "rows", "sequences", "several_products", "whole_block", "reduced", "number_formats", "symbols", "training", "parallel_modules",
    "left_alone", "captured", "times",
)  # fmt: skip

pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU")


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_pass_on_gpus(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=450)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.endswith(": right") or "wrong on rank" in line]
    assert said == [f"{part}: right" for part in PARTS]
