"""What ends a hang, with threads in place of kernels and real processes in place of ranks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tests.runtime.waiting_kernels import PTX, WaitingKernels, address_of, time_out, write_record
from triton_dist import errors
from triton_dist.errors import PeerLostError, TritonDistError, WaitTimeoutError
from triton_dist.runtime import peers, processes
from triton_dist.runtime import wait_layout as layout
from triton_dist.runtime.cuda import watchdog as module
from triton_dist.runtime.cuda.watchdog import Watchdog
from triton_dist.runtime.wait_board import BlockName, WaitBoard, path_of

FLAGS = BlockName("flags", 4096, 64)
SOON = 20.0
"""Seconds that a test waits for what a correct program does within fractions of one."""


@pytest.fixture
def board(tmp_path, monkeypatch):
    (tmp_path / "cache" / "key").mkdir(parents=True)
    (tmp_path / "cache" / "key" / "consumer_kernel.ptx").write_text(PTX)
    made = WaitBoard.create(0, 2, str(tmp_path / "cache"), tmp_path)
    made.write_blocks([FLAGS])
    yield made
    made.close()


@pytest.fixture
def watch(board):
    """Makes watchdogs that end with the test."""
    made = []

    def make(bound=None, with_peers=()):
        made.append(Watchdog(board, with_peers, board.blocks))
        if bound is not None:
            made[-1].set_bound(bound)
        return made[-1]

    yield make
    for each in made:
        each.stop()


def wait_until(condition):
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_timeout_is_printed_at_once_and_raised_at_every_call(board, watch, capfd):
    watchdog = watch(2)
    assert board.bound == pytest.approx(2, abs=0.01)
    watchdog.raise_failure()
    time_out(board, number=1, program=(5, 0, 0), address=address_of(1, 4096 + 12), expected=3, seen=2, cmp="ge")
    wait_until(lambda: watchdog.failure)
    printed = capfd.readouterr().err
    assert printed.startswith("triton_dist: WaitTimeoutError: rank 0: a wait took longer than the 2 s of wait_timeout:")
    for _ in range(2):
        with pytest.raises(WaitTimeoutError) as caught:
            watchdog.raise_failure()
        text = str(caught.value)
        assert (
            "rank 0, program (5, 0, 0) of consumer_kernel at /home/user/kernels.py:15 waits for flags[3] of rank 1 >= 3; it is 2 (2.1 s)"
            in text
        )
        assert "finalize()" in text and "unknown state" in text
        assert text in printed
    assert watchdog.told
    assert capfd.readouterr().err == "", "printed once"


class SlowError(io.StringIO):
    """Standard error that takes its time."""

    def write(self, text):
        time.sleep(0.2)
        return super().write(text)


def test_who_sees_the_failure_finds_it_printed(board, watch, monkeypatch):
    file = SlowError()
    monkeypatch.setattr(sys, "stderr", file)
    watchdog = watch(2)
    time_out(board, address=address_of(0, 4096))
    wait_until(lambda: watchdog.failure)
    assert file.getvalue() == f"triton_dist: WaitTimeoutError: {watchdog.failure}\n"


@pytest.mark.parametrize("act", [Watchdog.raise_failure, Watchdog.check])
def test_a_failure_that_nobody_can_read_is_raised(board, watch, monkeypatch, act):
    file = io.StringIO()
    file.close()
    monkeypatch.setattr(sys, "stderr", file)
    watchdog = watch(2)
    time_out(board, address=address_of(0, 4096))
    with pytest.raises(WaitTimeoutError):
        act(watchdog)
    assert watchdog.failure


def test_a_call_that_comes_before_the_thread_looks_raises_too(board, watch, monkeypatch):
    monkeypatch.setattr(module, "_PERIOD", 0.001)
    watchdog = watch()
    time_out(board, address=address_of(0, 4096))
    with pytest.raises(WaitTimeoutError, match=r"flags\[0\] of rank 0 == 1; it is 0"):
        watchdog.check()


def test_programs_that_wait_for_the_same_are_named_together(board, watch):
    watchdog = watch()
    for slot in range(1, 133):
        write_record(board, slot, layout.STAMP_TIMED_OUT, program=(slot, 0, 0), address=address_of(0, 4096))
    time_out(board, program=(0, 0, 0), address=address_of(0, 4096))
    with pytest.raises(
        WaitTimeoutError, match=r"programs \(0, 0, 0\), \(1, 0, 0\), \(2, 0, 0\) and 130 more of consumer_kernel at .* wait for"
    ):
        watchdog.check()


def test_of_many_different_waits_some_are_named(board, watch):
    watchdog = watch()
    for slot in range(1, 16):
        write_record(board, slot, layout.STAMP_TIMED_OUT, address=address_of(0, 4096 + 4 * slot))
    time_out(board, address=address_of(0, 4096))
    with pytest.raises(WaitTimeoutError, match="and 8 more") as caught:
        watchdog.check()
    assert str(caught.value).count("consumer_kernel") == 8


def test_words_and_kernels_that_are_not_known(board, watch):
    watchdog = watch()
    write_record(board, 1, layout.STAMP_TIMED_OUT, number=9, address=address_of(1, 0))
    time_out(board, number=8, address=0x7F00_0000_0000)
    with pytest.raises(WaitTimeoutError) as caught:
        watchdog.check()
    text = str(caught.value)
    assert "a kernel whose PTX is not found (00000000000000ab, wait 9)" in text
    assert "in the heap of rank 1, in no tensor" in text
    assert "the word at 0x7f0000000000, outside the symmetric heap" in text


def test_a_list_of_tensors_that_cannot_be_read_hides_nothing(board, watch, capfd):
    board._memory[layout.BLOCKS + 8 : layout.BLOCKS + 9] = b"?"
    time_out(board, address=address_of(1, 4096))
    with pytest.raises(WaitTimeoutError, match="in the heap of rank 1, in no tensor == 1; it is 0"):
        watch(2).check()
    assert "without names, since JSONDecodeError" in capfd.readouterr().err


def test_all_is_well_without_a_failure(board, watch):
    watchdog = watch(1)
    watchdog.check()
    watchdog.raise_failure()
    assert watchdog.run_bounded("call", lambda: 7) == 7
    assert watchdog.failure is None and not watchdog.told
    watchdog.stop()
    watchdog.stop()


def test_without_a_bound_nothing_is_started(board, watch):
    before = threading.active_count()
    watchdog = watch()
    assert threading.active_count() == before and board.bound is None
    assert watchdog.run_bounded("call", threading.current_thread) is threading.current_thread()


ERRORS = [KeyError, *(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TritonDistError))]


@pytest.mark.parametrize("bound", [None, 5])
@pytest.mark.parametrize("error", ERRORS)
def test_errors_of_a_call_are_handed_on(board, watch, bound, error):
    """Those that the ranks told each other, too, many of which are RuntimeErrors as gloo's are: the world goes on."""

    def fail():
        raise error("x")

    watchdog = watch(bound)
    with pytest.raises(error) as caught:
        watchdog.run_bounded("call", fail)
    assert caught.type is error and not board.abort
    watchdog.check()


@pytest.mark.parametrize("loses_peer", [False, True])
def test_a_signal_handler_may_look_while_its_thread_does(board, watch, capfd, monkeypatch, loses_peer):
    """torchrun ends the others with SIGTERM right after a rank has died."""
    watchdog = watch()
    told = []
    if loses_peer:
        monkeypatch.setattr(module, "lost_peers", lambda peers: [SimpleNamespace(lost="rank 1 was killed")])
    else:
        time_out(board, address=address_of(0, 4096))

    def handle(*_):
        with pytest.raises((WaitTimeoutError, PeerLostError)) as caught:
            watchdog.check()
        told.append(caught.value)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(PeerLostError if loses_peer else WaitTimeoutError):
            watchdog.check()
        wait_until(lambda: told)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert str(told[0]) == str(watchdog.failure)
    assert capfd.readouterr().err.count(type(told[0]).__name__) == 1, "printed once"


def test_a_bounded_call_ends_when_a_wait_times_out(board, watch):
    watchdog = watch(5)
    threading.Timer(0.2, time_out, [board]).start()
    with pytest.raises(WaitTimeoutError, match="a wait took longer"):
        watchdog.run_bounded("call", threading.Event().wait)


def test_a_bounded_call_ends_after_the_longest_time(board, watch, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_JOIN", 0.3)
    with pytest.raises(WaitTimeoutError, match=r"rank 0: allocation: not every rank has called it within 0 s"):
        watch(0.2).run_bounded("allocation", threading.Event().wait)
    assert board.abort, "kernels end too"


PEER = """
import os, pathlib, sys, time
from triton_dist.runtime.wait_board import WaitBoard
board = WaitBoard.create(1, 2, '', pathlib.Path({directory!r}))
print('made', flush=True)
command = sys.stdin.readline().strip()
if command == 'leave':
    board.close()
elif command == 'fail':
    raise ValueError('on purpose')
elif command == 'time out':
    board.abort = 1
sys.stdin.readline()
"""


def introduced(pid, directory):
    """What process ``pid`` tells the others of itself."""
    return peers.Introduction(pid, str(path_of(pid, directory)), processes.start_time(pid), processes.pid_namespace())


@pytest.fixture
def peer(board, tmp_path):
    """Rank 1 as a process of its own, and rank 0's view of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PEER.format(directory=str(tmp_path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "made\n"
    (met,) = peers.meet(0, [peers.introduction(board), introduced(process.pid, tmp_path)])
    yield process, met
    process.kill()
    process.wait()
    process.stdin.close(), process.stdout.close()


def tell(process, command):
    process.stdin.write(command + "\n")
    process.stdin.flush()


def test_a_killed_peer_ends_the_waits_and_is_named(board, watch, peer, capfd):
    process, met = peer
    kernels = WaitingKernels(board, [{"address": address_of(0, 4096 + 4), "number": 1}])
    watchdog = watch(60, [met])
    watchdog.check()
    began = time.monotonic()
    process.kill()  # nobody waits for it: a zombie is gone, too
    wait_until(lambda: watchdog.failure)
    assert time.monotonic() - began < SOON
    assert kernels.aborted.wait(SOON)
    with pytest.raises(PeerLostError) as caught:
        watchdog.raise_failure()
    text = str(caught.value)
    assert f"rank 0: rank 1 (process {process.pid}) was killed" in text
    assert "consumer_kernel at /home/user/kernels.py:15 waits for flags[1] of rank 0 == 1; it is 0" in text
    assert not met.board.path.exists(), "what it left behind is removed"
    assert board.request == 0 and board.abort == layout.PEER_LOST
    assert "PeerLostError" in capfd.readouterr().err


def test_a_peer_that_ends_with_an_exception_is_named(watch, peer):
    process, met = peer
    watchdog = watch(60, [met])
    tell(process, "fail")
    wait_until(lambda: watchdog.failure)
    with pytest.raises(PeerLostError, match=rf"rank 1 \(process {process.pid}\) ended with an error"):
        watchdog.check()


@pytest.mark.parametrize("command", ["leave", "nothing"])
def test_a_peer_that_has_done_its_part_may_go(watch, peer, command):
    process, met = peer
    watchdog = watch(60, [met])
    tell(process, command)
    tell(process, "end")
    process.wait(SOON)
    watchdog.check()
    assert not met.board.alive and watchdog.failure is None


def test_without_a_bound_a_check_finds_a_killed_peer(watch, peer):
    process, met = peer
    watchdog = watch(None, [met])
    process.kill()
    process.wait()
    watchdog.raise_failure()
    with pytest.raises(PeerLostError):
        watchdog.check()


@pytest.mark.parametrize("bound", [None, 60])
def test_a_broken_connection_names_who_is_gone(watch, peer, bound):
    process, met = peer

    def gather():
        process.kill()
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(PeerLostError, match="was killed"):
        watch(bound, [met]).run_bounded("allocation", gather)


@pytest.mark.parametrize("bound", [None, 60])
def test_a_broken_connection_to_ranks_that_live(board, watch, peer, bound, monkeypatch):
    def gather():
        raise RuntimeError("Timed out waiting 1800000ms")

    monkeypatch.setattr(module, "_ENDING_TIME", 0.1)
    watchdog = watch(bound, [peer[1]])
    for call in (lambda: watchdog.run_bounded("allocation", gather), watchdog.raise_failure):
        with pytest.raises(PeerLostError, match="rank 0, allocation: the other ranks can't be reached: Timed out"):
            call()
    assert board.abort, "kernels end too"


def test_a_bounded_call_ends_when_the_other_rank_has_timed_out_and_does_not_come(watch, peer):
    process, met = peer
    watchdog = watch(0.3, [met])
    tell(process, "time out")
    with pytest.raises(WaitTimeoutError, match=r"allocation: waited for ranks \[1\], whose waits in kernels timed out"):
        watchdog.run_bounded("allocation", threading.Event().wait)


def test_who_is_watched(board, tmp_path, peer):
    process, _ = peer
    good = introduced(process.pid, tmp_path)
    own = peers.introduction(board)
    assert own == introduced(os.getpid(), tmp_path)
    assert [met.rank for met in peers.meet(0, [own, good])] == [1]
    assert peers.meet(1, [own, good])[0].board.pid == os.getpid()
    assert peers.meet(0, [own, None]) == []
    assert peers.meet(0, [own, good._replace(pid_namespace=1)]) == [], "in another container"
    assert peers.meet(0, [own, good._replace(pid=process.pid + 1)]) == []
    assert peers.meet(0, [own, good._replace(path=good.path + "0")]) == []
    assert peers.meet(0, [own, good._replace(start_time=good.start_time + 1)]) == [], "the board is of a later process"


def test_a_board_of_another_container_under_a_peers_name_is_not_watched(board, tmp_path, peer, monkeypatch):
    """Its process can't be seen from here, and would be taken for one that was killed."""
    process, met = peer
    good = introduced(process.pid, tmp_path)
    monkeypatch.setattr(processes, "pid_namespace", lambda: 1)
    stranger = WaitBoard.create(1, 2, "", tmp_path)
    monkeypatch.undo()
    stranger.path.replace(met.board.path)
    assert peers.meet(0, [peers.introduction(board), good]) == []
    stranger.close()
