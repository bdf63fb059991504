"""``nvshmem_program.py`` under torchrun, one rank a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from triton_dist.errors import MissingCapabilityError
from triton_dist.runtime.cuda import nvshmem_library

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "nvshmem_program.py"


def is_installed() -> bool:
    try:
        nvshmem_library.find()
    except MissingCapabilityError:
        return False
    return True


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.skipif(not is_installed(), reason="NVSHMEM is not installed")
def test_the_checks_of_shmem_over_nvshmem():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": " in line and not line.startswith((" ", "nvshmem:"))]
    assert len(lines) == 15 and all(": right" in line for line in lines), done.stdout
