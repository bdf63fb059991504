"""``profiler_program.py`` under torchrun, one rank a GPU, and two ranks that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "profiler_program.py"


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
@pytest.mark.parametrize(("ranks", "shared"), [(1, False), (2, False), (4, False), (2, True)])
def test_all_parts(ranks, shared, tmp_path):
    if ranks > GPUS and not shared:
        pytest.skip(f"needs {ranks} GPUs")
    environment = {**os.environ, "OUT": str(tmp_path)} | ({"CUDA_VISIBLE_DEVICES": gpus.first()} if shared else {})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": right (") == 10 and (tmp_path / "profiler_trace.json").stat().st_size > 1000
