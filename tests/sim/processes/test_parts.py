"""What a world of CPU processes is made of, part by part."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from triton_dist import errors
from triton_dist.errors import AllocationMismatchError
from triton_dist.runtime import world
from triton_dist.runtime.meeting import Call, check_all_meet
from triton_dist.sim.processes import segments
from triton_dist.sim.processes.baton import Baton
from triton_dist.sim.processes.board import BOARD_BYTES, Board, State
from triton_dist.sim.processes.engine import Engine
from triton_dist.sim.processes.mail import Mail
from triton_dist.sim.processes.shared_lock import SharedLock


def board() -> Board:
    made = Board(mmap.mmap(-1, BOARD_BYTES))
    made.reset()
    return made


def start_child(act) -> int:
    """The number of a forked process that runs ``act``."""
    child = os.fork()
    if not child:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def status_of(child: int) -> int:
    """Its wait status, when it has ended."""
    return os.waitpid(child, 0)[1]


def in_child(act) -> int:
    """Run ``act`` in a forked process; its wait status."""
    return status_of(start_child(act))


def test_the_lock_excludes_other_processes():
    shared = board()
    lock = SharedLock(shared.lock_address, create=True)

    def count() -> None:
        theirs = SharedLock(shared.lock_address)
        for _ in range(20_000):
            with theirs, theirs:  # recursive
                shared.polls = shared.polls + 1

    children = [start_child(count) for _ in range(3)]
    for _ in range(20_000):
        with lock:
            shared.polls = shared.polls + 1
    assert [status_of(child) for child in children] == [0, 0, 0] and shared.polls == 80_000


def test_a_process_that_dies_with_the_lock_gives_it_back():
    shared = board()
    lock = SharedLock(shared.lock_address, create=True)

    def die() -> None:
        SharedLock(shared.lock_address).acquire()
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == signal.SIGKILL
    for _ in range(2):
        with lock:
            pass
    assert in_child(lambda: SharedLock(shared.lock_address).acquire()) == 0


def test_the_baton_goes_to_who_wants_it():
    baton, got, stop = Baton(), threading.Event(), threading.Event()

    def engine() -> None:
        while not stop.is_set():
            with baton:
                if baton.wanted:
                    got.wait(0)
            baton.give_way()

    thread = threading.Thread(target=engine)
    thread.start()
    for _ in range(200):
        with baton, baton:
            got.set()
    stop.set()
    thread.join()
    assert not baton.wanted


def test_texts_of_a_board():
    shared = board()
    assert shared.read_text("lines") is None and shared.state is State.RUNNING and shared.alive
    shared.write_text("lines", [["a"], ["b"]])
    assert shared.read_text("lines") == [["a"], ["b"]]
    shared.write_text("error", "x" * 1_000_000)
    assert set(shared.read_text("error")) == {"x"} and len(shared.read_text("error")) > 100_000
    assert shared.read_text("lines") == [["a"], ["b"]]
    shared.reset()
    assert shared.read_text("lines") is None


def test_mail_waits_until_the_last_message_was_taken():
    boards = [board(), board(), board()]
    blocked: list[str] = []

    def block(what, ready) -> None:
        while not ready():
            blocked.append(what())
            turn[0].set()
            turn[1].wait(10)

    turn = threading.Event(), threading.Event()
    mails = [Mail(rank, boards, block) for rank in range(3)]
    results: list = [None, None]
    first = threading.Thread(
        target=lambda: results.__setitem__(0, [mails[0].gather((0, 2), {"a": 1}, "a call"), mails[0].gather((0, 1), 5, "b")])
    )
    first.start()
    turn[0].wait(10)
    assert blocked[0] == "a call: waits for ranks [2]"
    turn[1].set()
    assert mails[2].gather((0, 2), "two", "a call") == [{"a": 1}, "two"]
    assert mails[1].gather((0, 1), 6, "b") == [5, 6]
    first.join()
    assert results[0] == [[{"a": 1}, "two"], [5, 6]]
    assert mails[1].gather((1,), 7, "alone") == [7]
    with pytest.raises(errors.HeapFullError, match="too many pieces"):
        mails[1].gather((1, 2), bytes(BOARD_BYTES), "long")


def test_a_process_stays_the_rank_that_it_was(monkeypatch):
    monkeypatch.setattr(segments, "_segments", segments.Segments(1, [board(), board()], [0, 0], [0, 0]))
    with pytest.raises(errors.InvalidArgumentError, match="another world"):
        segments.join_segments(0, 1, lambda value: [value])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, False), ({"RANK": "0", "WORLD_SIZE": "2"}, True), ({"RANK": "0"}, False), ({"TRITON_DIST_SIMULATE": "1"}, True)],
)
def test_where_ranks_are_cpu_processes(environment, expected, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "TRITON_DIST_SIMULATE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(world.torch.cuda, "is_available", lambda: False)
    assert world.on_cpu_processes() is expected
    monkeypatch.setattr(world.torch.cuda, "is_available", lambda: True)
    assert world.on_cpu_processes() is ("TRITON_DIST_SIMULATE" in environment)


def test_without_a_launcher_that_is_said():
    code = "import triton_dist; triton_dist.initialize()"
    variables = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([sys.executable, "-c", code], env={**variables, "TRITON_DIST_SIMULATE": "1"}, capture_output=True, text=True)
    assert done.returncode == 1 and "NotInitializedError" in done.stderr and "torchrun" in done.stderr


@pytest.mark.parametrize("verdict", [0, 1])
def test_a_peer_that_ended_of_a_deadlock_is_not_what_is_told(verdict):
    """It has heard the verdict sooner than this process, which looks at its peers first."""
    shared = board()
    shared.write_text("verdict", "nothing can move")
    shared.verdict = verdict
    told: list[Exception] = []
    peer = SimpleNamespace(how_lost=lambda rank: f"rank {rank} failed")
    engine = SimpleNamespace(_boards=[shared, peer], _rank=0, failure=None, _reporter=SimpleNamespace(sections=lambda: []))

    def fail(error: Exception) -> None:
        engine.failure = error
        told.append(error)

    engine._fail, engine._hear_verdict = fail, lambda: Engine._hear_verdict(engine)
    Engine._look_at_peers(engine)
    assert [type(error) for error in told] == [errors.DeadlockError if verdict else errors.PeerLostError]


def test_a_rank_that_does_not_come_to_a_meeting_is_told_with_both_reasons():
    with pytest.raises(AllocationMismatchError, match=r"ranks \[0\] come to another call.*never make this one.*failed on one of them"):
        check_all_meet((0, 1), [None, Call("rendezvous", None, "'buffer'", None, (), [], 0, (0, "nothing yet"))], "symmetric rendezvous")
