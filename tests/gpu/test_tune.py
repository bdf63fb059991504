"""``tune_program.py`` under torchrun, one rank a GPU, and two ranks that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "tune_program.py"
PARTS = (
    "a_hang_is_taken_back", "a_rank_that_fails_lets_the_others_go", "fails_before_an_allocation", "device_barriers", "operator", "kernel",
    "divergent_times", "collective_with_a_cache", "symm_page", "symm_codes", "symm_operations", "compiled_add", "compiled_rotate",
    "compiled_reduce_in_graph", "compiled_reduce",
)  # fmt: skip

pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU")


def run(ranks: int, **environment: str) -> list[str]:
    """What the program prints of its parts, on ``ranks`` ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=450)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.endswith("right") or "wrong on rank" in line]


@pytest.mark.parametrize("ranks", [2, 4])
def test_one_rank_a_gpu(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    assert run(ranks) == [f"{part}: right" for part in PARTS]


def test_two_ranks_share_a_gpu():
    assert run(2, CUDA_VISIBLE_DEVICES=gpus.first()) == [f"{part}: right" for part in PARTS]
