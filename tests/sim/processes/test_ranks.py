"""Ranks that are CPU processes, by ``rank_program.py``: what they can do, and how a world of them ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import triton_dist
from tests.sim.processes import kernels

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parent / "rank_program.py"
SHARED = Path("/dev/shm")


def run(part, world_size, timeout=150):
    """Exit codes and output of the ranks, by rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {"WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_DIST")} | {"PYTHONPATH": paths}
    before = set(SHARED.iterdir())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), part],
            env=variables | {name: str(value) for name, value in {**own, "RANK": rank, "LOCAL_RANK": rank}.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        said = [process.communicate(timeout=timeout)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert set(SHARED.iterdir()) <= before, "something is left in shared memory"
    return [process.returncode for process in ranks], said


def test_what_ranks_can_do():
    codes, said = run("healthy", 4)
    assert codes == [0] * 4, "\n".join(said)
    report = next(json.loads(line.removeprefix("REPORT ")) for line in said[0].splitlines() if line.startswith("REPORT "))
    with pytest.raises(triton_dist.errors.DeadlockError) as caught:
        triton_dist.simulate(kernels.stuck, 4)
    assert report == str(caught.value)


@pytest.mark.parametrize("part", ["killed", "raised", "left"])
def test_a_rank_is_lost(part):
    codes, said = run(part, 2)
    assert codes == [0, {"killed": -signal.SIGKILL, "raised": 1}.get(part, 0)], "\n".join(said)
