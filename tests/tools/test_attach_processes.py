"""``triton-dist attach`` on ranks that are CPU processes."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from triton_dist.runtime import processes
from triton_dist.sim.processes import reporter
from triton_dist.sim.processes.board import BOARD_BYTES, Board, Inquiry
from triton_dist.sim.processes.reporter import Reporter
from triton_dist.sim.processes.shared_lock import SharedLock
from triton_dist.tools import attach_processes
from triton_dist.tools.attach import attach

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "attached_rank.py"


@pytest.fixture
def ranks():
    """Two ranks, of which rank 1 waits until rank 0 reads a line."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TRITON_DIST_SIMULATE": 1}
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=variables | {name: str(value) for name, value in {**own, "RANK": rank, "LOCAL_RANK": rank}.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        assert [process.stdout.readline() for process in started] == ["ready\n"] * 2
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_the_waits_of_live_ranks_are_printed_and_the_job_goes_on(ranks, capsys):
    for _ in range(2):
        assert attach(os.getpid()) == 0
        said = capsys.readouterr().out
        assert "rank 1" in said and "patient_kernel" in said and "attached_rank.py" in said
        assert "flags[0]" in said and "7" in said and "rank 0" in said
    assert attach(ranks[1].pid) == 0
    said = capsys.readouterr().out
    assert "patient_kernel" in said and "rank 0 (process" not in said
    assert attach(ranks[0].pid) == 0
    assert "nothing waits" in capsys.readouterr().out
    ranks[0].stdin.write("go\n")
    ranks[0].stdin.flush()
    assert [process.wait(timeout=60) for process in ranks] == [0, 0]


def test_a_process_without_ranks(capsys):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert attach_processes.report_of(child.pid) is None
        assert attach(child.pid) == 1
        assert "world on GPUs or of CPU processes" in capsys.readouterr().out
    finally:
        child.communicate(b"\n")


def board() -> Board:
    """A board of this process alone."""
    made = Board(mmap.mmap(-1, BOARD_BYTES))
    made.reset(0, 1)
    SharedLock(made.lock_address, create=True)
    return made


def test_an_inquiry_whose_asker_is_gone_ends(monkeypatch):
    made = board()
    here = Reporter(0, [made], SharedLock(made.lock_address), None, lambda: [])
    made.kind, made.asker, made.request, made.composed = Inquiry.ATTACH, -1, 5, 5
    here.serve()
    assert made.kind == Inquiry.ATTACH and not here.ask(Inquiry.DEADLOCK)
    monkeypatch.setattr(reporter, "LONGEST_ATTACH", 0.0)
    here.serve()
    assert made.kind == Inquiry.NONE and here.ask(Inquiry.DEADLOCK)


def test_another_report_under_way_is_said(monkeypatch):
    made = board()
    made.kind = Inquiry.DEADLOCK
    monkeypatch.setattr(attach_processes, "LONGEST_ANSWER", 0.1)
    monkeypatch.setattr(attach_processes, "_boards_of", lambda pid: [made])
    assert "a report already" in attach_processes.report_of(os.getpid())
    made.kind = Inquiry.NONE
    assert "no answer within" in attach_processes.report_of(os.getpid())
    assert made.kind == Inquiry.NONE and processes.start_time(os.getpid())
