"""What a watchdog does around an attempt: threads stand in for kernels, and a second board for a peer."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tests.runtime.test_watchdog import FLAGS, SOON, board, wait_until, watch  # noqa: F401  (fixtures)
from tests.runtime.waiting_kernels import WaitingKernels, address_of, time_out
from triton_dist.errors import PeerLostError, WaitTimeoutError
from triton_dist.runtime import wait_layout as layout
from triton_dist.runtime.cuda import stream_waits
from triton_dist.runtime.cuda.attempts import CudaAttempts
from triton_dist.runtime.cuda.watchdog import LET_GO
from triton_dist.runtime.peers import Peer
from triton_dist.runtime.wait_board import WaitBoard


@pytest.fixture
def peer_board(tmp_path):
    made = WaitBoard.create(1, 2, "", _folder(tmp_path / "peer"))
    yield made
    made.close()


def _folder(path):
    path.mkdir()
    return path


def test_a_hang_is_found_and_forgotten(board, watch, capfd):  # noqa: F811
    watchdog = watch()
    watchdog.begin_attempt(7.5)
    assert board.bound == pytest.approx(7.5, rel=0.01)
    time_out(board, address=address_of(0, FLAGS.offset + 4))
    with pytest.raises(WaitTimeoutError, match=r"longer than the 7.5 s"):
        watchdog.raise_failure()
    hang = watchdog.end_attempt()
    assert isinstance(hang, WaitTimeoutError) and "flags[1] of rank 0" in str(hang) and "finalize" not in str(hang)
    assert board.abort == 0 and board.bound is None and watchdog.failure is None and not watchdog.told
    assert board.records(layout.STAMP_TIMED_OUT) == [], "the next report does not name these waits again"
    watchdog.raise_failure()
    assert capfd.readouterr().err == "", "who makes the attempt says what came of it"


def test_nothing_happened(board, watch):  # noqa: F811
    watchdog = watch()
    watchdog.begin_attempt(5)
    assert watchdog.end_attempt() is None and board.bound is None


def test_somebody_watches_after_an_attempt_that_failed(board, watch):  # noqa: F811
    watchdog = watch(bound=3)
    for _ in range(3):
        watchdog.begin_attempt(2)
        time_out(board)
        wait_until(lambda: watchdog.failure is not None)
        assert watchdog.end_attempt() is not None
    time_out(board)
    wait_until(lambda: watchdog.failure is not None)


def test_a_bound_of_the_user_stays(board, watch):  # noqa: F811
    watchdog = watch(bound=3)
    watchdog.begin_attempt(60)
    assert board.bound == pytest.approx(3, rel=0.01), "never longer than asked for"
    time_out(board)
    wait_until(lambda: watchdog.failure is not None)
    assert watchdog.end_attempt() is not None and board.bound == pytest.approx(3, rel=0.01)
    time_out(board)
    wait_until(lambda: watchdog.failure is not None)  # the thread watches again
    with pytest.raises(WaitTimeoutError):
        watchdog.raise_failure()


def test_attempts_inside_one_another(board, watch):  # noqa: F811
    watchdog = watch()
    watchdog.begin_attempt(50)
    watchdog.begin_attempt(5)
    time_out(board)
    assert watchdog.end_attempt() is not None and board.bound == pytest.approx(50, rel=0.01)
    assert watchdog.end_attempt() is None and board.bound is None


def test_a_rank_that_failed_lets_the_others_go(board, peer_board, watch):  # noqa: F811
    """Its own waits hold; the peer's fall through, long before its bound, and it hears why."""
    watchdog = watch(with_peers=[Peer(1, WaitBoard.open(peer_board.path))])
    watchdog.let_peers_go([0, 2])
    assert peer_board.abort == 0, "it is not in this attempt"
    watchdog.let_peers_go([0, 1])
    assert board.abort == 0 and peer_board.abort == LET_GO
    from triton_dist.runtime.cuda.watchdog import Watchdog

    peer = Watchdog(peer_board, [], peer_board.blocks)
    peer.begin_attempt(500)
    assert WaitingKernels(peer_board, [{}]).aborted.wait(SOON)
    hang = peer.end_attempt()
    peer.stop()
    assert "let go, since the call failed on another rank" in str(hang) and peer_board.abort == 0


def test_let_go_too_late_or_too_early(board, watch):  # noqa: F811
    """It counts inside of the attempt only, and is cleared when the ranks meet behind it."""
    watchdog = watch()
    board.abort = LET_GO
    watchdog.raise_failure()
    watchdog.check()
    assert watchdog.failure is None
    watchdog.begin_attempt(5)
    assert "let go" in str(watchdog.end_attempt())
    board.abort = LET_GO
    watchdog.hold_again()
    assert board.abort == 0
    board.abort = layout.TIMED_OUT
    watchdog.hold_again()
    assert board.abort == layout.TIMED_OUT, "what is a failure stays one"


def test_a_rank_that_is_let_go_in_a_call_with_others_ends_that_call_first(board, watch):  # noqa: F811
    """The rank that has failed meets it there. Left behind, the call would be in the way of the next one of the same group."""
    watchdog = watch()
    watchdog.begin_attempt(60)

    def gather():
        board.abort = LET_GO
        wait_until(lambda: watchdog.failure)
        time.sleep(0.2)  # several looks at the board
        return "what the other rank says"

    assert watchdog.run_bounded("allocation", gather) == "what the other rank says"
    with pytest.raises(WaitTimeoutError, match="let go"):
        watchdog.raise_failure()
    assert "let go" in str(watchdog.end_attempt())


def test_a_lost_peer_is_no_hang(board, peer_board, watch):  # noqa: F811
    class Gone(Peer):
        lost = "rank 1 (process 7) was killed"

    watchdog = watch(with_peers=[Gone(1, peer_board)])
    watchdog.begin_attempt(50)
    begun = time.monotonic()
    wait_until(lambda: watchdog.failure is not None)
    assert time.monotonic() - begun < SOON
    with pytest.raises(PeerLostError, match="was killed"):
        watchdog.end_attempt()
    assert FLAGS.name == "flags"


def test_a_rank_that_fails_while_another_one_begins(board, watch, monkeypatch):  # noqa: F811
    """What has to be loaded raises what the world has run into; that another rank has failed by then is for the attempt to say."""
    watchdog = watch()
    loaded: list[str] = []

    def load_waits(device):
        board.abort = LET_GO
        watchdog.raise_failure()
        loaded.append(device)

    monkeypatch.setattr(stream_waits, "load_waits", load_waits)
    attempts = CudaAttempts(SimpleNamespace(device="cuda:0", wait_for_device=lambda: None), watchdog)  # type: ignore[arg-type]
    attempts.begin(5)
    assert loaded == ["cuda:0"]
    with pytest.raises(WaitTimeoutError, match="let go"):
        watchdog.raise_failure()
    assert "let go" in str(attempts.end()) and board.abort == 0
