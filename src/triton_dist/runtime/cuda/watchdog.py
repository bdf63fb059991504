"""What ends a hang: the bound of waits, the watch over peers, and the error that comes of it.

A wait that runs into the bound ends by itself: the kernel writes who waited for what to the wait board and lets every wait of this
process fall through. The watchdog thread only reads the board, which is plain memory, prints at once, and keeps the error for
the next call of triton_dist on this process. It also looks whether the peers' processes live. Without a bound there is no thread:
kernels wait for ever, and ``triton-dist attach`` shows for what.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import PeerLostError, TritonDistError, WaitTimeoutError
from .. import wait_layout as layout
from ..messages import tell
from ..peers import Peer, lost_peers
from ..wait_board import BlockName, Record, WaitBoard
from ..wait_places import texts_in_process
from ..wait_report import Wait, describe

_PERIOD = 0.05
_PEER_PERIOD = 0.5
_REPORT_TIME = 0.2
"""Seconds that kernels get to write their records when a peer is lost; they look at the board every few milliseconds."""

_ENDING_TIME = 2.0
"""Seconds from a broken connection until the process at its end counts as running: a process ends after its connections do."""

_LONGEST_JOIN = 300.0
"""Seconds that a call in which all ranks take part waits for the others, if nothing says earlier that one won't come."""

_LONGEST_EXIT = 20.0
"""Seconds that the end of the process waits for a thread that was left behind: it comes back when the other ranks have ended."""

_WAITS_NAMED = 8

LET_GO = 3
"""Value of the board's ``abort`` beside those of the layout: the call of another rank has failed in an attempt that this rank is in, too.
Kernels see that it is not 0. It is written by that rank, and counts inside an attempt only."""

_AFTERWARDS = (
    "All waits of this process fall through now, so signals and data of this world are in an unknown state: "
    "triton_dist.finalize() and initialize() make a new one"
)


class Watchdog:
    """Watches over one rank's waits, without a bound until ``set_bound``. Made and closed by its world.

    blocks: gives the symmetric tensors, to name words by.
    """

    def __init__(self, board: WaitBoard, peers: Sequence[Peer], blocks: Callable[[], Sequence[BlockName]]) -> None:
        self._board = board
        self._peers = list(peers)
        self._bound: float | None = None
        self._blocks = blocks
        self._failure: TritonDistError | None = None
        self._told = False
        self._attempts: list[float | None] = []
        # A signal handler may come while this thread looks, and look as well.
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def bounded(self) -> bool:
        """Whether waits have a bound."""
        return self._bound is not None

    @property
    def failure(self) -> TritonDistError | None:
        """What went wrong, if anything."""
        return self._failure

    @property
    def told(self) -> bool:
        """Whether a call has raised the failure."""
        return self._told

    def set_bound(self, seconds: float) -> None:
        """Let no wait take longer, of kernels that run now or later, and begin to watch."""
        self._bound = seconds
        self._board.bound = seconds
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="triton_dist watchdog", daemon=True)
            self._thread.start()

    def begin_attempt(self, seconds: float) -> None:
        """Bound waits by so many seconds, or fewer if they are bounded already, until ``end_attempt``; see ``runtime.attempts``."""
        self._attempts.append(self._bound)
        self.set_bound(seconds if self._bound is None else min(seconds, self._bound))

    def let_peers_go(self, ranks: Sequence[int]) -> None:
        """Inside an attempt of ``ranks`` that this rank has failed in: the waits of the others fall through, and they fail as well."""
        for peer in self._peers:
            if peer.rank in ranks:
                peer.board.abort = LET_GO

    def end_attempt(self) -> WaitTimeoutError | None:
        """Take the bound of an attempt back, with the device idle. Gives what a wait ran into, which is forgotten; waits hold again.

        Raises PeerLostError if a process is gone.
        """
        self.look(peers=True)
        with self._lock:
            hang = self._failure if isinstance(self._failure, WaitTimeoutError) else None
            self._bound = self._attempts.pop()
            self._board.bound = self._bound
            if hang is not None:
                self._failure, self._told = None, False
                self._board.forget_records(layout.STAMP_TIMED_OUT)
                self._board.abort = 0
        self.raise_failure()
        return hang

    def hold_again(self) -> None:
        """Behind an attempt in which a rank has failed, before the ranks meet: forget that this one was let go."""
        with self._lock:
            if self._board.abort == LET_GO:
                self._board.abort = 0

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def raise_failure(self) -> None:
        """Raise what went wrong, each time; nothing if all is well. Called by every function of triton_dist, so it only reads a word."""
        if self._board.abort:
            self.look(peers=False)
        if self._failure is not None:
            self._told = True
            raise type(self._failure)(*self._failure.args)

    def check(self) -> None:
        """``raise_failure``, after a look at the peers too."""
        self.look(peers=True)
        self.raise_failure()

    def look(self, *, peers: bool) -> None:
        """Find out whether a wait gave up or, with ``peers``, a process is gone; the first to find it prints it."""
        with self._lock:
            if self._failure is not None:
                return
            reason = self._board.abort
            if reason == LET_GO:
                if self._attempts:
                    self._failure = WaitTimeoutError(f"rank {self._board.rank}: let go, since the call failed on another rank")
            elif reason:
                self._fail(self._timeout_error())
            elif peers and (lost := lost_peers(self._peers)):
                self._fail(self._lost_error(lost))

    def run_bounded(self, what: str, act: Callable[[], Any]) -> Any:
        """The result of ``act``, which waits for the other ranks' hosts; raises instead if one of them won't come.

        With a bound it runs in a thread of its own, which is left behind when this raises.
        Raises what ``raise_failure`` does, PeerLostError, WaitTimeoutError.
        """
        if not self.bounded:
            try:
                return act()
            except TritonDistError:  # what the ranks told each other
                raise
            except RuntimeError as error:
                raise self._broken(what, error) from error
        call = _CallInThread(act)
        try:
            self._wait_for(call, what)
        except BaseException:
            call.leave_behind()
            raise
        try:
            return call.result()
        except TritonDistError:
            raise
        except RuntimeError as error:
            raise self._broken(what, error) from error

    # ------------------------------------------------------------------ inside

    def _wait_for(self, call: _CallInThread, what: str) -> None:
        deadline = time.monotonic() + max(_LONGEST_JOIN, self._bound or 0)
        given_up_since: float | None = None
        while not call.wait(_PERIOD):
            self.look(peers=True)
            if not (self._attempts and self._board.abort == LET_GO):  # else the rank that has failed comes, and says so in this call
                self.raise_failure()
            waiting_in_vain = [peer.rank for peer in self._peers if peer.board.abort]
            now = time.monotonic()
            given_up_since = (given_up_since or now) if waiting_in_vain else None
            if given_up_since is not None and now - given_up_since > (self._bound or 0):
                self._give_up(f"{what}: waited for ranks {waiting_in_vain}, whose waits in kernels timed out and which do not come")
            if now > deadline:
                self._give_up(f"{what}: not every rank has called it within {_LONGEST_JOIN:.0f} s")

    def _broken(self, what: str, error: RuntimeError) -> TritonDistError:
        """gloo says that a connection broke or that time is up; who is at its end is what the user needs to know."""
        deadline = time.monotonic() + _ENDING_TIME
        while time.monotonic() < deadline and self._failure is None:
            self.look(peers=True)
            time.sleep(_PERIOD)
        failure = PeerLostError(f"rank {self._board.rank}, {what}: the other ranks can't be reached: {error}\n{_AFTERWARDS}")
        with self._lock:
            if self._failure is None:
                self._board.abort = layout.PEER_LOST
                self._fail(failure)
        self._told = True
        return self._failure or failure

    def _watch(self) -> None:
        next_look_at_peers = 0.0
        while not self._stop.wait(_PERIOD):
            now = time.monotonic()
            self.look(peers=now >= next_look_at_peers)
            if now >= next_look_at_peers:
                next_look_at_peers = now + _PEER_PERIOD

    def _fail(self, failure: TritonDistError) -> None:
        if self._failure is not None:
            return  # by a signal handler that looked while this was put together
        if not (self._attempts and isinstance(failure, WaitTimeoutError)):  # whoever makes an attempt says what came of it
            tell(f"{type(failure).__name__}: {failure}")
        self._failure = failure

    def _give_up(self, reason: str) -> None:
        with self._lock:
            if self._failure is None:
                self._board.abort = layout.TIMED_OUT
                self._fail(WaitTimeoutError(f"rank {self._board.rank}: {reason}. {_AFTERWARDS}"))
        self.raise_failure()

    def _timeout_error(self) -> WaitTimeoutError:
        time.sleep(_PERIOD)  # for those that reach the bound at the same time
        waits = self._describe(self._board.records(layout.STAMP_TIMED_OUT))
        gone = [f"; {reason}" for peer in self._peers if (reason := peer.lost)]
        took = f"took longer than the {self._bound:g} s of wait_timeout" if self._bound is not None else "was given up"
        afterwards = "" if self._attempts else f"\n{_AFTERWARDS}"
        return WaitTimeoutError(f"rank {self._board.rank}: a wait {took}{''.join(gone)}{_listed(waits)}{afterwards}")

    def _lost_error(self, lost: Sequence[Peer]) -> PeerLostError:
        """Asks the kernels what they wait for, then lets them go."""
        number = ask_number()
        self._board.request = number
        time.sleep(_REPORT_TIME)
        waits = self._describe(self._board.records(number))
        self._board.abort = layout.PEER_LOST
        self._board.request = 0
        who = " and ".join(f"{peer.lost}" for peer in lost)
        return PeerLostError(f"rank {self._board.rank}: {who}, so nothing of it can be waited for{_listed(waits)}\n{_AFTERWARDS}")

    def _describe(self, records: list[Record]) -> list[Wait]:
        try:
            return describe(self._board.rank, records, self._blocks(), texts_in_process(), self._board.cache_directory)
        except Exception as error:
            # Names are a help; a file or a list that can't be read must not hide that a wait timed out.
            tell(f"waits are shown without names, since {type(error).__name__}: {error}")
            return describe(self._board.rank, records, (), ())


class _CallInThread:
    """A call that somebody waits for, but not longer than they want to."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="triton_dist collective call", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._act()
        except BaseException as error:  # handed on to the caller
            self._error = error
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        return self._ended.wait(seconds)

    def leave_behind(self) -> None:
        """Nobody waits for it any more. Coming back from C++ while Python ends it would abort the process, whose end so waits a bit."""
        atexit.register(self._thread.join, _LONGEST_EXIT)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


def ask_number() -> int:
    """A number for a request for a report, other than those of requests shortly before."""
    return time.monotonic_ns() >> layout.TICK_BITS - 10 & 0x7FFFFFFF or 1


def _listed(waits: Sequence[Wait]) -> str:
    if not waits:
        return "; no kernel says what it waits for"
    more = f"\n  and {len(waits) - _WAITS_NAMED} more" if len(waits) > _WAITS_NAMED else ""
    return ":" + "".join(f"\n  {wait}" for wait in waits[:_WAITS_NAMED]) + more
