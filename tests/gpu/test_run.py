"""``utils_program.py``, and the scripts of tests/tools/run by ``triton-dist run``, as ranks of a torchrun job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "utils_program.py"
SCRIPTS = Path(__file__).parents[1] / "tools" / "run" / "scripts"
PARTS = ("device_queries", "sleeping", "timing", "puts_and_signals", "teams")

pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU")


def torchrun(ranks: int, *arguments: str) -> list[str]:
    """The lines that a job of ``ranks`` ranks prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *arguments]
    environment = {**os.environ, "TRITON_DIST_NVSHMEM_SHIM": "1", "TRITON_DIST_WAIT_TIMEOUT": "60"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_host_functions(ranks):
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} GPUs")
    assert [line for line in torchrun(ranks, str(PROGRAM)) if ": " in line] == [f"{part}: right" for part in PARTS]


@pytest.mark.parametrize("script, said", [("streams.py", "is done"), ("graphs.py", "three replays")])
def test_scripts_for_cuda(script, said):
    """They ask for as many GPUs as ranks."""
    if GPUS < 2:
        pytest.skip("needs 2 GPUs")
    text = "\n".join(torchrun(GPUS, "-m", "triton_dist.tools.cli", "run", str(SCRIPTS / script)))
    # Of processes that don't buffer, two lines may come out as one.
    assert {int(rank) for rank in re.findall(rf"rank (\d+):? {said}", text)} == set(range(GPUS))
