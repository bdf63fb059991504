"""A library built ahead of time on GPUs: ``aot_program.py`` under torchrun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "aot_program.py"
PARTS = (
    "no_heap_before_initialize",
    "pushed_by_ctypes",
    "ring_by_c_program",
    "process_without_python",
    "in_a_graph",
    "without_the_heap",
    "named_errors",
    "unloaded",
)


def run(ranks: int, **environment: str) -> list[str]:
    """What the program prints of its parts, on ``ranks`` ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.endswith("right") or "wrong on ranks" in line]


@pytest.mark.skipif(GPUS == 0 or shutil.which("cc") is None, reason="needs a GPU and a C compiler")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_rank_a_gpu(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    assert run(ranks) == [f"{part}: right" for part in PARTS]


@pytest.mark.skipif(GPUS == 0 or shutil.which("cc") is None, reason="needs a GPU and a C compiler")
def test_two_ranks_share_a_gpu():
    assert run(2, CUDA_VISIBLE_DEVICES=gpus.first()) == [f"{part}: right" for part in PARTS]
