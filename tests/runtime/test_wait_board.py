"""The file through which waiting kernels and the host talk: what it holds, whose it is, and when it goes away."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from tests.runtime.waiting_kernels import KERNEL, write_record
from triton_dist.errors import NoWaitBoardError
from triton_dist.runtime import processes, wait_board
from triton_dist.runtime import wait_layout as layout
from triton_dist.runtime.wait_board import BlockName, Record, State, WaitBoard, all_boards, path_of, remove_stale


@pytest.fixture
def board(tmp_path):
    made = WaitBoard.create(2, 4, "/home/üser/.triton", tmp_path)
    yield made
    made.close()


def test_layout():
    assert layout.BOARD_BYTES % 4096 == 0
    assert layout.RECORD_SLOTS & (layout.RECORD_SLOTS - 1) == 0, "slots are found by a mask"
    assert layout.RECORDS % layout.RECORD_BYTES == 0 and layout.RECORD_STAMP + 4 == layout.RECORD_BYTES
    assert wait_board._HEADER.size <= layout.BOUND and layout.REQUEST + 4 <= wait_board._CACHE_DIRECTORY


def test_header_and_words_are_shared(board, tmp_path):
    other = WaitBoard.open(path_of(os.getpid(), tmp_path))
    assert (other.pid, other.rank, other.world_size, str(other.cache_directory)) == (os.getpid(), 2, 4, "/home/üser/.triton")
    assert other.alive and other.state is State.ALIVE
    assert other.bound is None and other.abort == 0 and other.request == 0
    board.bound, board.abort = 2.5, layout.PEER_LOST
    other.request = 77
    assert other.bound == pytest.approx(2.5, abs=0.002) and other.abort == layout.PEER_LOST and board.request == 77
    board.bound = None
    assert other.bound is None
    board.bound = 1e-9
    assert 0 < other.bound < 0.002, "a bound never becomes none by rounding"


def test_only_its_user_may_open_it(board):
    assert stat.S_IMODE(os.stat(board.path).st_mode) == 0o600


@pytest.mark.parametrize("bits, expected, seen", [(32, -1, 2**31 - 1), (64, -(2**63), 2**40), (32, 5, 0)])
@pytest.mark.parametrize("cmp", layout.COMPARISONS)
def test_records(board, bits, expected, seen, cmp):
    write_record(board, 9, 5, number=3, program=(7, 8, 9), address=0x1234, expected=expected, seen=seen, bits=bits, cmp=cmp)
    assert board.records(5) == [Record(KERNEL, 3, (7, 8, 9), 0x1234, expected, seen, bits, cmp, pytest.approx(2.097152))]
    assert board.records(6) == board.records(layout.STAMP_TIMED_OUT) == []


def test_a_block_that_several_warps_report_counts_once(board):
    for slot, program in enumerate([(1, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0)]):
        write_record(board, slot, 5, program=program)
    assert [record.program for record in board.records(5)] == [(0, 0, 0), (1, 0, 0), (0, 1, 0)]


def test_a_record_that_makes_no_sense_is_left_out(board):
    write_record(board, 0, 5, bits=16)
    start = layout.RECORDS + layout.RECORD_KIND
    write_record(board, 1, 5)
    board._memory[start + 64 : start + 68] = (99 << 8 | 32).to_bytes(4, "little")
    write_record(board, 2, 5, address=4)
    assert [record.address for record in board.records(5)] == [4]


def test_blocks(board, tmp_path):
    other = WaitBoard.open(board.path)
    assert other.blocks() == []
    blocks = [BlockName("flags", 0, 16), BlockName('a "name" ü', 4096, 0)]
    board.write_blocks(blocks)
    assert other.blocks() == blocks
    board.write_blocks([])
    assert other.blocks() == []


def test_of_too_many_blocks_the_newest_are_kept(board):
    blocks = [BlockName(f"tensor with a long name {number}", 4096 * number, 4096) for number in range(20_000)]
    board.write_blocks(blocks)
    kept = board.blocks()
    assert 1000 < len(kept) < 20_000 and kept == blocks[-len(kept) :]
    board.write_blocks([BlockName("x" * layout.BLOCKS_BYTES, 0, 1)])
    assert board.blocks() == []


def test_blocks_of_a_process_that_was_killed_while_it_wrote_them(board):
    board.write_blocks([BlockName("flags", 0, 16)])
    board._words[layout.BLOCKS // 4] += 1
    assert board.blocks() == []


def test_it_goes_when_it_is_closed(tmp_path):
    board = WaitBoard.create(0, 1, "", tmp_path)
    other = WaitBoard.open(board.path)
    board.close()
    assert not board.path.exists() and other.state is State.LEFT
    again = WaitBoard.create(0, 1, "", tmp_path)
    assert again.path == board.path and again.path.exists()
    again.close()


ENDINGS = {
    "return": ("", State.LEFT, False),
    "exit": ("sys.exit(3)", State.LEFT, False),
    "exception": ("raise ValueError('on purpose')", State.FAILED, False),
    "killed": ("os.kill(os.getpid(), 9)", State.ALIVE, True),
    "a child ends": ("os.fork() or sys.exit(); os.wait(); sys.stdin.read(); os.kill(os.getpid(), 9)", State.ALIVE, True),
}


def start(code, directory):
    """A process that makes a board in ``directory``, says so, and goes on with the code once it is told to."""
    lines = [
        "import os, sys, time, pathlib",
        "from triton_dist.runtime.wait_board import WaitBoard",
        f"board = WaitBoard.create(1, 2, '', pathlib.Path({str(directory)!r}))",
        "print('made', flush=True)",
        "sys.stdin.readline()",
        code,
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout.readline() == "made\n"
    return process


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_left_of_a_process(ending, tmp_path):
    code, state, stays = ENDINGS[ending]
    process = start(code, tmp_path)
    board = WaitBoard.open(path_of(process.pid, tmp_path))
    assert board.alive
    process.communicate("\n", timeout=60)
    assert not board.alive
    assert board.state is state
    assert board.path.exists() == stays


def test_a_process_that_nobody_has_waited_for_is_not_alive(tmp_path):
    process = start("", tmp_path)
    board = WaitBoard.open(path_of(process.pid, tmp_path))
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not board.alive
    process.wait()
    process.stdin.close(), process.stdout.close()


def test_stale_boards_are_removed_and_live_ones_stay(board, tmp_path):
    process = start("", tmp_path)
    process.kill()
    process.wait()
    process.stdin.close(), process.stdout.close()
    assert remove_stale(tmp_path) == [path_of(process.pid, tmp_path)]
    assert [each.pid for each in all_boards(tmp_path)] == [os.getpid()]


def test_containers_leave_each_others_boards_alone(board, tmp_path, monkeypatch):
    """They have /dev/shm in common here, and the same process number in both."""
    monkeypatch.setattr(processes, "pid_namespace", lambda: 1)
    monkeypatch.setattr(processes, "start_time", lambda pid: 42 if pid == os.getpid() else None)
    assert board.alive, "what it does can't be seen from here"
    assert list(all_boards(tmp_path)) == remove_stale(tmp_path) == []
    other = WaitBoard.create(0, 1, "", tmp_path)
    assert board.path.exists() and [each.start_time for each in all_boards(tmp_path)] == [42]
    monkeypatch.undo()
    assert [each.path for each in all_boards(tmp_path)] == [board.path] and remove_stale(tmp_path) == []
    other.close()
    assert board.path.exists()


def test_a_board_of_an_earlier_process_with_this_pid_is_replaced(tmp_path):
    path_of(os.getpid(), tmp_path).write_bytes(b"old")
    board = WaitBoard.create(0, 1, "", tmp_path)
    assert WaitBoard.open(board.path).alive
    board.close()


FOREIGN = {
    "missing": (lambda path: None, "can't be opened: No such file"),
    "short": (lambda path: path.write_bytes(b"x"), "not a wait board of this user"),
    "other contents": (lambda path: path.write_bytes(bytes(layout.BOARD_BYTES)), "not a wait board of this version"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "can't be opened"),
    "a folder": (lambda path: path.mkdir(), "can't be opened"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_board_is_refused_and_left_alone(kind, tmp_path):
    make, text = FOREIGN[kind]
    path = path_of(12345, tmp_path)
    make(path)
    with pytest.raises(NoWaitBoardError, match=text):
        WaitBoard.open(path)
    assert list(all_boards(tmp_path)) == remove_stale(tmp_path) == []


def test_a_place_where_no_board_can_be_made(tmp_path):
    with pytest.raises(NoWaitBoardError, match="can't be made: No such file or directory"):
        WaitBoard.create(0, 1, "", tmp_path / "missing")


def test_processes():
    assert processes.start_time(os.getpid()) > 0
    assert processes.start_time(2**22 + 1) is None and processes.parent(2**22 + 1) is None and processes.owner(2**22 + 1) is None
    assert processes.parent(os.getpid()) == os.getppid()
    assert processes.owner(os.getpid()) == os.getuid()
    assert processes.is_descendant(os.getpid(), os.getppid())
    assert not processes.is_descendant(os.getppid(), os.getpid())
    assert not processes.is_descendant(os.getpid(), 2**22 + 1)
