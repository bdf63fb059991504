"""Worlds of ranks on real GPUs: ``world_program.py`` under torchrun, one rank a GPU, and two ranks that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "world_program.py"
PARTS = (
    "context_page",
    "peers_by_kernel",
    "peers_by_torch",
    "signals_go_round",
    "host_signals",
    "allocation",
    "gathered_product",
    "replayed_graph",
    "joined_again",
)


def run(ranks: int, **environment: str) -> list[str]:
    """What the program prints of its parts, on ``ranks`` ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.endswith("right") or "wrong on ranks" in line]


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_rank_a_gpu(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    assert run(ranks) == [f"{part}: right" for part in PARTS]


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
def test_two_ranks_share_a_gpu():
    assert run(2, CUDA_VISIBLE_DEVICES=gpus.first()) == [f"{part}: right" for part in PARTS]


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
def test_without_a_launcher_it_says_what_to_do():
    code = "import triton_dist; triton_dist.initialize()"
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert "NotInitializedError" in done.stderr and "torchrun" in done.stderr
