"""``triton-dist attach`` on boards of real processes, with threads in place of their kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.runtime.waiting_kernels import PTX, WaitingKernels, address_of
from triton_dist.errors import NoWaitBoardError
from triton_dist.runtime import processes, wait_board
from triton_dist.runtime import wait_layout as layout
from triton_dist.runtime.wait_board import BlockName, WaitBoard
from triton_dist.tools import attach as module
from triton_dist.tools.attach import attach, boards_of, waits_of

RANK = """
import pathlib, sys
from triton_dist.runtime.wait_board import BlockName, WaitBoard
rank, directory, cache = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
board = WaitBoard.create(rank, 2, cache, directory)
board.write_blocks([BlockName('flags', 4096, 64)])
print('made', flush=True)
sys.stdin.readline()
"""

LAUNCHER = """
import subprocess, sys
pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
ranks = [subprocess.Popen([sys.executable, '-c', sys.argv[1], str(rank), *sys.argv[2:]], **pipes) for rank in (1, 0)]
for rank in ranks:
    rank.stdout.readline()
print('made', flush=True)
sys.stdin.readline()
for rank in ranks:
    rank.communicate('end')
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where boards are in this test, with a Triton cache beside them."""
    monkeypatch.setattr(wait_board, "DIRECTORY", tmp_path)
    (tmp_path / "cache" / "key").mkdir(parents=True)
    (tmp_path / "cache" / "key" / "consumer_kernel.ptx").write_text(PTX)
    return tmp_path


@pytest.fixture
def launcher(place):
    """A process that has started two ranks."""
    arguments = [sys.executable, "-c", LAUNCHER, RANK, str(place), str(place / "cache")]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "made\n"
    yield process
    process.communicate("end", timeout=60)


@pytest.fixture
def board(place):
    made = WaitBoard.create(0, 1, str(place / "cache"), place)
    made.write_blocks([BlockName("flags", 4096, 64)])
    yield made
    made.close()


def test_the_ranks_of_a_launcher_are_shown_with_what_they_wait_for(launcher, capsys):
    boards = boards_of(launcher.pid)
    assert [board.rank for board in boards] == [0, 1]
    kernels = [
        WaitingKernels(boards[0], [{"program": (x, 0, 0), "address": address_of(0, 4096 + 8), "number": 0} for x in range(5)]),
        WaitingKernels(
            boards[1], [{"program": (0, 1, 0), "address": address_of(0, 4096), "number": 1, "cmp": "ge", "expected": 7, "seen": -3}]
        ),
    ]
    assert attach(launcher.pid) == 0
    for each in kernels:
        each.stop()
    text = capsys.readouterr().out
    for part in (
        "programs (0, 0, 0), (1, 0, 0), (2, 0, 0) and 2 more",
        "consumer_kernel at /home/user/kernels.py:12",
        "flags[2] of rank 0 == 1",
        "program (0, 1, 0)",
        "consumer_kernel at /home/user/kernels.py:15",
        "flags[0] of rank 0 >= 7",
        "-3",
        "2.1 s",
    ):
        assert part in text
    assert [board.request for board in boards] == [0, 0], "nobody is asked any more"
    assert [board.abort for board in boards] == [0, 0], "the job goes on"


def test_one_rank(launcher, capsys):
    (one,) = boards_of(boards_of(launcher.pid)[1].pid)
    assert one.rank == 1


def test_nothing_waits(board, capsys, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_ANSWER", 0.2)
    assert waits_of([board], 0.2) == {0: []}
    assert attach(os.getpid()) == 0
    assert f"rank 0 (process {os.getpid()}): no kernel waits, or the GPU did not answer" in capsys.readouterr().out


def test_waits_that_were_given_up(board, capsys, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_ANSWER", 0.2)
    board.abort = layout.TIMED_OUT
    assert attach(os.getpid()) == 0
    assert "have timed out" in capsys.readouterr().out


def test_the_request_of_another_who_came_later_stays(board, monkeypatch):
    kernels = WaitingKernels(board, [{"address": address_of(0, 4096)}])
    original = module._collect

    def collect(*arguments):
        answers = original(*arguments)
        board.request = 4711
        return answers

    monkeypatch.setattr(module, "_collect", collect)
    assert len(waits_of([board], 2)[0]) == 1
    kernels.stop()
    assert board.request == 4711


def test_without_rich_it_is_plain_text(board, capsys, monkeypatch):
    kernels = WaitingKernels(board, [{"address": address_of(0, 4096)}])
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert attach(os.getpid()) == 0
    kernels.stop()
    assert "rank: 0; programs: program (0, 0, 0); kernel and line: consumer_kernel at /home/user/kernels.py:12" in capsys.readouterr().out


def test_no_such_process(place, capsys):
    assert attach(2**22 + 1) == 1
    assert "there is no process 4194305 here" in capsys.readouterr().out


def test_a_process_of_another_user(place, capsys, monkeypatch):
    monkeypatch.setattr(processes, "owner", lambda pid: os.getuid() + 1)
    assert attach(os.getpid()) == 1
    assert f"belongs to user {os.getuid() + 1}, and you are user {os.getuid()}" in capsys.readouterr().out


def test_a_process_without_a_world(place, capsys):
    assert attach(os.getpid()) == 1
    assert "has not called triton_dist.initialize() yet" in capsys.readouterr().out


def test_a_process_of_another_container_with_the_same_number(place, monkeypatch):
    monkeypatch.setattr(processes, "pid_namespace", lambda: 1)
    board = WaitBoard.create(0, 1, "", place)
    monkeypatch.undo()
    monkeypatch.setattr(wait_board, "DIRECTORY", place)
    with pytest.raises(NoWaitBoardError, match="has not called"):
        boards_of(os.getpid())
    assert board.path.exists()
    board.close()


def test_a_board_that_an_earlier_process_left(board, monkeypatch):
    monkeypatch.setattr(WaitBoard, "alive", False)
    with pytest.raises(NoWaitBoardError, match="has called finalize"):
        boards_of(os.getpid())
