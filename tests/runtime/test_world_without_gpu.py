"""Joining, failing and leaving the world on GPUs, by ``world_without_gpu.py``: two real processes, no GPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from triton_dist.runtime.wait_board import path_of

PROGRAM = Path(__file__).parent / "world_without_gpu.py"


PARTS = [
    "joined",
    "timed_out",
    "finalize_tells",
    "killed",
    "not_registered",
    "group_ended_first",
    "broken_device",
    "joining_fails",
    "lost_while_joining",
    "with_nvshmem",
    "ends_its_threads",
    "ends_without_leaving",
]


def run(part, stores):
    """Exit codes and output of both ranks. stores: a folder for files by which torch's ranks meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "STORES": str(stores)}
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_DIST_WAIT_TIMEOUT"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), part],
            env={**variables, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert not any(path_of(process.pid).exists() for process in ranks), "a board is left"
    return [process.returncode for process in ranks], said


@pytest.mark.parametrize("part", PARTS)
def test_world(part, tmp_path):
    codes, said = run(part, tmp_path)
    assert codes == [0, -signal.SIGKILL if part in ("killed", "lost_while_joining") else 0], "\n".join(said)
    assert not any("Traceback" in text for text in said), "\n".join(said)
    assert ("triton_dist: WaitTimeoutError" in said[0]) == (part in ("timed_out", "finalize_tells"))
