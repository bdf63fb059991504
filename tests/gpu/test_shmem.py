"""``shmem_program.py`` under torchrun, one rank a GPU, and two ranks that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "shmem_program.py"
PARTS = (
    "pointers", "teams", "scalars", "each_thread", "copies", "ping_pong", "conditions", "signals", "barriers", "team_barriers",
    "teams_in_turn", "collectives", "replayed_graph", "stress", "rates",
)  # fmt: skip
SLOW_WHEN_SHARED = ("copies", "replayed_graph", "stress", "rates")
"""Ranks that share a GPU take turns of many milliseconds."""

pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU")


def run(ranks: int, *parts: str, **environment: str) -> list[str]:
    """What the program prints of its parts, on ``ranks`` ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM), *parts]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.endswith("right") or "wrong on rank" in line]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_rank_a_gpu(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    assert run(ranks) == [f"{part}: right" for part in PARTS]


def test_two_ranks_share_a_gpu():
    parts = [part for part in PARTS if part not in SLOW_WHEN_SHARED]
    assert run(2, *parts, CUDA_VISIBLE_DEVICES=gpus.first()) == [f"{part}: right" for part in parts]
