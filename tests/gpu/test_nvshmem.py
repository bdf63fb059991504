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


PARTS = (
    ("linked", "pointers", "each_thread", "scalars"),
    ("ping_pong", "conditions", "copies"),
    ("signals", "barriers"),
    ("collectives",),
    ("replayed_graph", "stress", "rates"),
    ("other_teams_are_refused", "twice"),
)
"""Each group is a test of its own, for several workers: each kernel takes seconds to compile with NVSHMEM's device library."""


def test_every_part_is_in_one_group():
    from tests.gpu import nvshmem_program

    assert [name for group in PARTS for name in group] == [part.__name__ for part in nvshmem_program.PARTS]


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.skipif(not is_installed(), reason="NVSHMEM is not installed")
@pytest.mark.parametrize("parts", PARTS, ids="-".join)
def test_the_checks_of_shmem_over_nvshmem(parts):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(PROGRAM), *parts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": " in line and not line.startswith((" ", "nvshmem:"))]
    assert [line.split(",")[0] for line in lines] == [f"{part}: right" for part in parts], done.stdout
