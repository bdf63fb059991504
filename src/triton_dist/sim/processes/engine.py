"""The thread that runs this process's machine and watches over its waits.

It runs the machine while anything can run, and otherwise looks at the words that peers may write, less and less often. It wakes the
program's threads when what they wait for is there, and gives them the error when it never will be: when all processes only wait
and nothing changes, when a peer is gone, when a wait takes too long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import DeadlockError, NotInitializedError, PeerLostError, WaitTimeoutError
from ...runtime.messages import tell
from .baton import Baton
from .board import Board, Inquiry, State
from .host_place import inside_torch_distributed
from .machine import ProcessMachine
from .reporter import Reporter
from .shared_lock import SharedLock

_SHORTEST_SLEEP, _LONGEST_SLEEP = 2e-5, 2e-3
"""Seconds between two looks at words: doubled while nothing changes."""

_NOTHING_TO_SEE = 0.05
"""Seconds between two looks at peers while this process waits for nobody."""

_LONGEST_ROUND = 0.02
"""Seconds for which loops that change nothing run before the engine looks around again."""

_QUIET = 0.03
"""Seconds without a change after which a process says that it is stuck."""

_COLLECTIVE_QUIET = 3.0
"""The same for a host inside ``torch.distributed``, which may be moving data."""

_PEER_PERIOD = 0.25
_LONGEST_JOIN = 300.0
"""Seconds that hosts wait for each other at least, where waits have a bound."""

_LONGEST_STOP = 10.0
"""Seconds to wait for the end of what runs when the process ends: an operator of torch can't be interrupted."""

_FRUITLESS_POLLS = 2000
"""How often a program may ask in vain until asking counts as waiting."""

_POLL_WAIT = 0.01


@dataclass(eq=False)
class HostWait:
    """A thread of the program that waits. joint: for other ranks' hosts. main: it is the thread that the program began with."""

    what: str | Callable[[], str]
    ready: Callable[[], bool]
    joint: bool
    main: bool = field(default_factory=lambda: threading.current_thread() is threading.main_thread())
    since: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)

    def describe(self) -> str:
        return self.what if isinstance(self.what, str) else self.what()


class Engine:
    """Runs ``machine``. boards: of all ranks. lock: of all processes. bound: seconds that a wait may take, None for ever."""

    def __init__(self, rank: int, boards: Sequence[Board], lock: SharedLock, machine: ProcessMachine, bound: float | None) -> None:
        self.bound = bound
        self.failure: BaseException | None = None
        self.told = False
        """Whether a call has raised the failure."""
        self.tells_in_torch_distributed = True
        """Whether an error is printed when the program can't hear of it."""
        self._attempts: list[float | None] = []
        self._rank = rank
        self._process = os.getpid()
        self._boards = boards
        self._machine = machine
        self._baton: Baton = machine.memory.baton
        self._reporter = Reporter(rank, boards, lock, machine, self._host_waits)
        self._waits: list[HostWait] = []
        self._parked_since: dict[int, tuple[object, float]] = {}
        self._changes = 0
        self._fruitless_polls = 0
        self._polls_saw = -1
        self._quiet_since: float | None = None
        self._collective: tuple[str, float] | None = None
        self._snapshot: tuple[list[int], list[int]] | None = None
        self._next_look_at_peers = 0.0
        self._sleep = _SHORTEST_SLEEP
        self._stopping = False
        self._bell = threading.Event()
        self._thread = threading.Thread(target=self._run, name="triton_dist engine", daemon=True)
        machine.submitted = self.ring

    def start(self) -> None:
        """Begin to run the machine."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is still queued does not run any more."""
        if os.getpid() != self._process:
            return
        self._stopping = True
        self._bell.set()
        if self._thread.ident is not None:
            self._thread.join(_LONGEST_STOP)

    def say_ended(self, error: BaseException | None = None) -> None:
        """Tell the peers that this process leaves the world, and by which error if it was one; after ``stop``.

        A process that was forked from this one says nothing.
        """
        if os.getpid() != self._process:
            return
        error = error or self.failure
        if error is not None:
            self._tell_error(error)
        self._say(State.ENDED if error is None else State.FAILED)

    # ------------------------------------------------------------------ called by the program's threads

    def ring(self) -> None:
        """There is something new to do."""
        self._bell.set()

    def block(self, context: Any, what: str | Callable[[], str], ready: Callable[[], bool], *, joint: bool = False) -> None:
        """Wait until ``ready()``, which the engine asks; see ``RankContext.block``. Raises what went wrong meanwhile."""
        self._check_process()
        self.raise_failure()
        with self._baton:
            if ready():
                return
            wait = HostWait(what, ready, joint)
            self._waits.append(wait)
        self._bell.set()
        try:
            wait.over.wait()
        finally:
            with self._baton:
                if wait in self._waits:
                    self._waits.remove(wait)
        self.raise_failure()

    def poll(self, context: Any, what: str) -> None:
        """Called by what a program asks again and again. Asking in vain for long counts as waiting."""
        self.raise_failure()
        self._bell.set()
        if self._changes != self._polls_saw:
            self._polls_saw, self._fruitless_polls = self._changes, 0
        self._fruitless_polls += 1
        if self._fruitless_polls <= _FRUITLESS_POLLS:
            time.sleep(0)
            return
        changes, until = self._changes, time.monotonic() + _POLL_WAIT
        self.block(context, what, lambda: self._changes != changes or time.monotonic() > until)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise NotInitializedError(
                f"this process was forked from rank {self._rank} and is no rank itself; it can't run kernels or wait for them"
            )

    def raise_failure(self) -> None:
        """Raise what went wrong, each time; nothing if all is well."""
        if self.failure is not None:
            self.told = True
            raise self.failure

    # ------------------------------------------------------------------ attempts

    def begin_attempt(self, seconds: float) -> None:
        """Bound waits by so many seconds, or fewer if they are bounded already, until ``end_attempt``."""
        self._attempts.append(self.bound)
        self.bound = seconds if self.bound is None else min(seconds, self.bound)

    def end_attempt(self) -> None:
        """The bound is what it was before."""
        self.bound = self._attempts.pop()

    def take_verdict_back(self) -> None:
        """On one rank, when all processes are behind an attempt: the deadlock that was found in it is over."""
        self._boards[0].verdict = 0

    def forgive(self) -> None:
        """Behind an attempt: drop what is queued and forget what went wrong. The verdict was taken back before.

        A world that has failed in another way stays failed.
        """
        with self._baton:
            if self.failure is not None and not isinstance(self.failure, (DeadlockError, WaitTimeoutError)):
                raise self.failure
            self._machine.start_over()
            self.failure, self.told = None, False
            self._parked_since.clear()
            self._snapshot = self._quiet_since = self._collective = None
            board = self._boards[self._rank]
            board.version = board.version + 1
            self._say(State.RUNNING)
        self.ring()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stopping:
            with self._baton:
                try:
                    pause = self._round()
                except Exception as error:  # noqa: BLE001 - whatever it is, the program has to hear of it
                    self._fail(error, publish=True)
                    pause = _NOTHING_TO_SEE
            self._baton.give_way()
            if pause:
                self._bell.wait(pause)
                self._bell.clear()

    def _round(self) -> float:
        """One look around and one slice of the machine's work. Seconds until the next one."""
        now = time.monotonic()
        if self.failure is None and now >= self._next_look_at_peers:
            self._look_at_peers()
            self._next_look_at_peers = now + _PEER_PERIOD
        self._serve_reports()
        if self.failure is not None:
            self._release_all()
            return _NOTHING_TO_SEE
        machine = self._machine
        before = machine.finished, machine.memory.version
        changed = machine.look_at_words()
        if changed:
            # Said before anything that the woken do can be seen by others.
            self._note_change()
        ran = machine.run_slice()
        # Programs that spin are all tried again before this round counts as one look at everything.
        while ran and machine.runnable and (machine.finished, machine.memory.version) == before and not self._is_wanted(now):
            ran = machine.run_slice()
        changed = changed or (machine.finished, machine.memory.version) != before
        if self._release_ready() or changed:
            self._note_change()
            return 0.0
        if ran and machine.runnable:
            self._say(State.RUNNING)
            if not self._all_others_wait():
                machine.forgive_idling()
            return 0.0
        return self._idle(now)

    def _is_wanted(self, since: float) -> bool:
        """Whether the round that began at ``since`` should end for a thread of the program."""
        return self._baton.wanted or time.monotonic() - since > _LONGEST_ROUND

    def _idle(self, now: float) -> float:
        """Nothing here can run: find out whether that is for ever."""
        board = self._boards[self._rank]
        board.polls = board.polls + 1
        if self._quiet_since is None:
            self._quiet_since = now
        self._sleep = min(2 * self._sleep, _LONGEST_SLEEP)
        self._check_bound(now)
        if now - self._quiet_since > _QUIET:
            self._settle(now)
        waits = self._machine.waits_for_others or self._waits or board.state is not State.RUNNING
        return self._sleep if waits else _NOTHING_TO_SEE

    def _note_change(self) -> None:
        self._say(State.RUNNING)
        board = self._boards[self._rank]
        board.version = board.version + 1
        self._changes += 1
        self._quiet_since = None
        self._sleep = _SHORTEST_SLEEP

    def _say(self, state: State) -> None:
        board = self._boards[self._rank]
        if board.state is not state:
            board.state = state
            self._snapshot = None

    # ------------------------------------------------------------------ the program's waits

    def _release_ready(self) -> bool:
        """Wake the threads whose waits are over. Whether there were any."""
        ready = [wait for wait in self._waits if wait.ready()]
        if ready:
            self._note_change()
        for wait in ready:
            self._waits.remove(wait)
            wait.over.set()
        return bool(ready)

    def _release_all(self) -> None:
        for wait in self._waits:
            wait.over.set()
        self._waits.clear()

    def _host_waits(self) -> list[str]:
        waits = [wait.describe() for wait in self._waits]
        return waits if waits or self._collective is None else [f"is inside {self._collective[0]}"]

    # ------------------------------------------------------------------ deadlocks

    def _settle(self, now: float) -> None:
        """Say whether this process is stuck, and if all are, find out whether that is a deadlock."""
        state = State.STUCK
        if not any(wait.main for wait in self._waits):
            place = inside_torch_distributed()
            if place is None or self._collective is None or self._collective[0] != place:
                self._collective = None if place is None else (place, now)
                state = State.RUNNING
            elif now - self._collective[1] > _COLLECTIVE_QUIET:
                state = State.COLLECTIVE
            else:
                state = State.RUNNING
        else:
            self._collective = None
        if state is not State.RUNNING and self._boards[self._rank].state is State.RUNNING:
            self._reporter.publish_waits()
        self._say(state)
        if state is not State.RUNNING and self._boards[0].kind == Inquiry.NONE and self._nothing_moves():
            self._reporter.ask(Inquiry.DEADLOCK)

    def _nothing_moves(self) -> bool:
        """Whether every process has looked in vain at all that it waits for, twice since a moment at which all were stuck.

        Nobody has changed anything in that time, so nobody ever will.
        """
        states = [board.state for board in self._boards]
        stuck = [rank for rank, state in enumerate(states) if state in (State.STUCK, State.COLLECTIVE)]
        if any(state in (State.RUNNING, State.FAILED) for state in states) or all(states[rank] is State.COLLECTIVE for rank in stuck):
            self._snapshot = None
            return False
        versions, polls = [board.version for board in self._boards], [board.polls for board in self._boards]
        if self._snapshot is None or self._snapshot[0] != versions:
            self._snapshot = versions, polls
            return False
        return all(polls[rank] >= self._snapshot[1][rank] + 2 for rank in stuck)

    def _all_others_wait(self) -> bool:
        return all(board.state is not State.RUNNING for rank, board in enumerate(self._boards) if rank != self._rank)

    def _serve_reports(self) -> None:
        """Answer requests for a report, take the answers to one's own, and the verdict of a deadlock."""
        shared = self._boards[0]
        self._reporter.serve()
        kind = self._reporter.asked
        if kind is not Inquiry.NONE and self._reporter.finished():
            if kind is Inquiry.TIMEOUT:
                self._time_out()
            elif self._nothing_moves():
                shared.write_text("verdict", self._reporter.report())
                shared.verdict = 1
            self._reporter.close()
        self._hear_verdict()

    def _hear_verdict(self) -> None:
        shared = self._boards[0]
        if shared.verdict and self.failure is None:
            self._fail(DeadlockError(shared.read_text("verdict")))

    # ------------------------------------------------------------------ bounds and peers

    def _check_bound(self, now: float) -> None:
        if self.bound is None:
            return
        parked = [actor.waiting for actor in self._machine.parked()]
        self._parked_since = {id(wait): self._parked_since.get(id(wait), (wait, now)) for wait in parked}
        late = any(now - since > self.bound for _, since in self._parked_since.values())
        late = late or any(wait.joint and now - wait.since > max(self.bound, _LONGEST_JOIN) for wait in self._waits)
        if late and self._boards[0].kind == Inquiry.NONE:
            self._reporter.ask(Inquiry.TIMEOUT)

    def _time_out(self) -> None:
        lines = "\n".join(line for kind in self._reporter.sections() for line in kind)
        self._fail(WaitTimeoutError(f"rank {self._rank}: a wait took longer than the {self.bound:g} s of wait_timeout:\n{lines}"))

    def _look_at_peers(self) -> None:
        lost = [reason for rank, board in enumerate(self._boards) if rank != self._rank and (reason := board.how_lost(rank))]
        if lost:
            self._hear_verdict()  # of which they may have ended
        if lost and self.failure is None:
            lines = "\n".join(line for kind in self._reporter.sections() for line in kind)
            self._fail(
                PeerLostError(
                    f"rank {self._rank}: {' and '.join(lost)}, so nothing of it can be waited for"
                    + (f"; this rank waits:\n{lines}" if lines else "")
                )
            )

    def check(self) -> None:
        """Raise what went wrong, after a look at the peers."""
        with self._baton:
            if self.failure is None:
                self._look_at_peers()
        self.raise_failure()

    def _tell_error(self, error: BaseException) -> None:
        board = self._boards[self._rank]
        if board.read_text("error") is None:
            board.write_text("error", f"{type(error).__name__}: {error}")

    def _fail(self, error: BaseException, *, publish: bool = False) -> None:
        """The world has failed: whoever waits hears of it, and every later call. publish: tell the peers, who don't know yet."""
        if self.failure is not None:
            return
        if publish:
            self._tell_error(error)
        self._say(State.RUNNING)
        self.failure = error
        self._machine.abandon(error)
        tells = self.tells_in_torch_distributed and not self._attempts
        if tells and not any(wait.main for wait in self._waits) and inside_torch_distributed():
            # The program can't hear of it in there.
            tell(f"rank {self._rank}: {type(error).__name__}: {error}")
        self._release_all()
