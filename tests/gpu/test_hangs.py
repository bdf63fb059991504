"""Hangs on real GPUs, and how they end: ``hang_program.py``, one rank a GPU, and two ranks that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "hang_program.py"
PARTS = (
    "missing_notify",
    "missing_peer",
    "missing_flags",
    "missing_products",
    "stream_waits",
    "replayed_graph",
    "bound_for_a_running_kernel",
    "attach",
    "killed_in_kernel",
    "killed_in_allocation",
    "failed_rank",
    "one_kernel_many_bounds",
)


def run(part: str, ranks: int, **environment: str) -> None:
    command = [sys.executable, str(PROGRAM), part, "--ranks", str(ranks)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=400)
    assert done.stdout.startswith(f"{part}: right"), done.stdout + done.stderr


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_one_rank_a_gpu(part, ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    run(part, ranks)


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
@pytest.mark.parametrize("part", ["missing_notify", "missing_products", "stream_waits", "attach", "killed_in_kernel"])
def test_two_ranks_share_a_gpu(part):
    run(part, 2, CUDA_VISIBLE_DEVICES=gpus.first())


def test_the_program_knows_every_part():
    done = subprocess.run([sys.executable, str(PROGRAM), "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "{" + ",".join(PARTS) in "".join(done.stdout.split())
