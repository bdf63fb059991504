"""The host threads of the ranks: exactly one of them, or the machine, runs at any time.

Each rank's host function has a thread. The thread that holds the *baton* runs; it hands the baton to the scheduler when it has to
wait, and the scheduler (in the thread that called ``simulate``) hands it to the next rank or lets the machine move. The machine
moves only while every host function waits or has ended, so a run depends on the seed and not on thread timing.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DeadlockError
from . import context as rank_context
from .autotuner_state import interrupted_autotuners, restore
from .context import RankContext
from .schedules.trace import host_name
from .virtual_process import VirtualProcess

if TYPE_CHECKING:
    from .schedules.policy import Policy

_FRUITLESS_POLLS = 2000
"""How often polling ranks may ask in vain, with nothing else able to move, before that counts as a deadlock."""

_SWALLOWED_UNWINDS = 100
"""A rank that catches the unwinding exception this often is parked for good instead of joined."""


class RankUnwound(BaseException):
    """Raised at a rank's blocking point when the run has ended without it. Not an Exception, so that handlers let it pass."""


@dataclass
class _Wait:
    """Why a host thread is not running: ``what`` for the report, ``ready`` for the scheduler."""

    what: str | Callable[[], str]
    ready: Callable[[], bool]
    polling: bool = False

    def describe(self) -> str:
        return self.what if isinstance(self.what, str) else self.what()


class RankThread:
    """The thread, the virtual process and the outcome of one rank."""

    def __init__(self, context: RankContext, process: VirtualProcess, body: Callable[[], Any], returned: threading.Lock) -> None:
        self.context = context
        self.process = process
        self.wait: _Wait | None = None
        self.hang: DeadlockError | None = None
        """What to raise where the rank waits now."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.unwinds = 0
        self.parked = False
        self._body: Callable[[], Any] | None = body
        self._awake = False
        self._baton = threading.Lock()
        self._baton.acquire()
        self._returned = returned
        self._thread = threading.Thread(target=self._main, name=f"triton_dist rank {context.rank}", daemon=True)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def unfinished(self) -> bool:
        """Whether the thread has begun and can still be made to end."""
        return self._thread.is_alive() and not self.parked and not self.context.ended

    def _main(self) -> None:
        try:
            self._baton.acquire()
            self._awake = True
            rank_context.set_current(self.context)
            body, self._body = self._body, None
            self.result = body() if body is not None else None
        except RankUnwound:
            pass
        except SystemExit as exit_request:
            # As for a process: exit code 0 is a normal end, any other code is a failure of the run.
            if exit_request.code not in (None, 0):
                self.error = exit_request
        except BaseException as error:  # noqa: BLE001 - whatever it is, simulate raises it again in its own thread
            self.error = error
        finally:
            rank_context.set_current(None)
            self.context.ended = True
            self._returned.release()

    def hand_over(self) -> None:
        """Scheduler's side: run this rank until it waits or ends."""
        if not self.started:
            self._thread.start()
        self._baton.release()
        # With a timeout, because a signal that comes just before the wait would not interrupt it.
        while not self._returned.acquire(timeout=0.5):
            pass

    def give_up(self) -> None:
        """Rank's side: return the baton and wait until it comes back."""
        self._awake = False
        self._returned.release()
        self._baton.acquire()
        self._awake = True

    def park(self) -> None:
        """Rank's side: never run again. The daemon thread stays asleep until the interpreter exits."""
        self.parked = True
        self.give_up()

    def interrupt(self) -> None:
        """Scheduler's side: make a thread that computes raise at its next Python instruction, until it waits or ends."""
        while not self._returned.acquire(timeout=0.2):
            if not self._thread.is_alive():
                return
            if not self._awake and self._baton.locked():
                # The interrupt fell between choosing this rank and handing it the baton.
                self._baton.release()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(RankUnwound))

    def release(self) -> None:
        """Drop results and errors, so that they do not live until the garbage collector finds this object."""
        self.result = self.error = self._body = None

    def join(self) -> None:
        if self.started and not self.parked:
            self._thread.join()


class HostScheduler:
    """Runs the host functions of all ranks and the machine, in an order that follows from the seed.

    between: called before ready ranks are looked for; moves what is neither host code nor machine work (collectives).
    """

    def __init__(self, machine: Any, *, seed: int, schedule: str, caller: VirtualProcess, between: Callable[[], None]) -> None:
        self._machine = machine
        self._random = random.Random(f"hosts {seed}") if schedule == "random" else None
        self._installed = caller
        self._caller = caller
        self._between = between
        self._returned = threading.Lock()
        self._returned.acquire()
        self._threads: list[RankThread] = []
        self._running: RankThread | None = None
        self._aborting = False
        self._hosts_ran = False
        self._moves = 0
        self._fruitless_polls = 0

    def add_rank(self, context: RankContext, process: VirtualProcess, body: Callable[[], Any]) -> None:
        """Add a rank whose host function is ``body``; it starts when ``run`` first chooses it."""
        thread = RankThread(context, process, body, self._returned)
        thread.wait = _Wait("start", lambda: True)
        self._threads.append(thread)

    # Called in the threads of the ranks:

    def block(self, context: RankContext, what: str | Callable[[], str], ready: Callable[[], bool]) -> None:
        """See ``RankContext.block``."""
        self._leave(self._threads[context.rank], _Wait(what, ready))

    def poll(self, context: RankContext, what: str) -> None:
        """See ``RankContext.poll``."""
        moves = self._moves
        self._leave(self._threads[context.rank], _Wait(what, lambda: self._moves != moves, polling=True))

    def pause(self, context: RankContext) -> None:
        """Others may run before this rank goes on."""
        self._leave(self._threads[context.rank], _Wait("queues work", lambda: True))

    def _leave(self, thread: RankThread, wait: _Wait) -> None:
        if self._aborting:
            self._unwind(thread)
        autotuners = interrupted_autotuners()
        recorder = self._machine.recorder
        noted = None if recorder is None else recorder.host_waits(thread.context.rank, wait.describe())
        thread.wait = wait
        thread.give_up()
        restore(autotuners)
        if self._aborting:
            self._unwind(thread)
        if thread.hang is not None:
            hang, thread.hang = thread.hang, None
            raise hang
        if recorder is not None and noted is not None:
            recorder.host_goes_on(noted)

    def _unwind(self, thread: RankThread) -> None:
        thread.unwinds += 1
        if thread.unwinds > _SWALLOWED_UNWINDS:
            thread.park()
        raise RankUnwound(f"rank {thread.context.rank} was stopped because the run has ended")

    # Called in the thread of simulate:

    def run(self) -> list[Any]:
        """Run every rank to its end, then the machine until it is idle. Returns the ranks' results, or raises the first error."""
        try:
            while self._advance():
                pass
            self._finish_machine()
            return [thread.result for thread in self._threads]
        except BaseException as error:
            if self._machine.recorder is not None:
                self._machine.recorder.stop(error)
            self._abort()
            raise
        finally:
            self._caller.install(self._installed)
            self._installed = self._caller
            for thread in self._threads:
                thread.release()

    def _advance(self) -> bool:
        """Run one ready rank, or else the machine until a rank is ready. False when every rank has ended."""
        self._between()
        ready = [thread for thread in self._threads if thread.wait is not None and thread.wait.ready()]
        if ready and self._machine.policy is not None:
            self._by_policy(ready, self._machine.policy)
            return True
        if ready:
            self._run_rank(ready[0] if self._random is None or len(ready) == 1 else self._random.choice(ready))
            return True
        waiting = [thread for thread in self._threads if thread.wait is not None]
        if not waiting:
            return False
        try:
            if not self._step_until_change():
                raise self._deadlock(waiting)
        except DeadlockError as hang:
            if not self._end_attempts(hang):
                raise
        return True

    def _deadlock(self, waiting: list[RankThread]) -> DeadlockError:
        if self._machine.races is not None and not any(thread.context.attempts_begun for thread in waiting):
            self._machine.races.finish()  # a race may be why
        return self._machine.deadlock([(thread.context.rank, thread.wait.describe()) for thread in waiting if thread.wait is not None])

    def _end_attempts(self, hang: DeadlockError) -> bool:
        """Let the ranks that wait inside of an attempt raise, with nothing of theirs queued any more. False if there is none."""
        trying = [thread for thread in self._threads if thread.wait is not None and thread.context.attempts_begun]
        if not trying or not self._machine.drop({thread.context.rank for thread in trying}):
            return False
        for thread in trying:
            # Each raises its own, for tracebacks and notes of one are not those of another.
            thread.hang = DeadlockError(*hang.args)
            thread.wait = _Wait("goes on behind an attempt", lambda: True)
        return True

    def _by_policy(self, ready: list[RankThread], policy: Policy) -> None:
        """Run the rank that the policy chooses, or let the machine go on before any of them."""
        threads = {thread.context.rank: thread for thread in ready}
        rank = policy.host(list(threads), idle=False)
        if rank is None:
            if self._hosts_ran:
                self._machine.memory.touch_all()
                self._hosts_ran = False
            policy.ready_hosts = tuple(threads)
            moved = self._machine.step()
            policy.ready_hosts = ()
            if moved:
                return
            rank = policy.host(list(threads), idle=True)
        assert rank is not None, "a policy has to choose a host when the machine is idle"
        self._run_rank(threads[rank])

    def _step_until_change(self) -> bool:
        """Step the machine until a work item has finished (only that can make a rank ready). False when nothing can move.

        With a rank that polls, one step: its next answer may already be another one.
        """
        machine = self._machine
        if self._hosts_ran:
            # A host may have written a word that a kernel spins on.
            machine.memory.touch_all()
            self._hosts_ran = False
        polling = [thread for thread in self._threads if thread.wait is not None and thread.wait.polling]
        before = finished, _ = machine.finished, machine.memory.version
        if not polling:
            moved = False
            while machine.finished == finished and machine.step():
                moved = True
            return moved
        self._moves += 1
        self._fruitless_polls += 1
        # Nothing has changed as long as this is true, so the answers will be the same; but the program may act after some of them.
        while machine.step() and (machine.finished, machine.memory.version) == before:
            if self._fruitless_polls <= _FRUITLESS_POLLS:
                return True
        if (machine.finished, machine.memory.version) != before:
            self._fruitless_polls = 0
        return self._fruitless_polls <= _FRUITLESS_POLLS

    def _run_rank(self, thread: RankThread) -> None:
        if thread.wait is not None and not thread.wait.polling:
            self._fruitless_polls = 0
        thread.wait = None
        if self._machine.tracer is not None:
            self._machine.tracer.moved(host_name(thread.context.rank))
        self._resume(thread)
        if thread.error is not None:
            if self._machine.recorder is not None:
                self._machine.recorder.failed_rank = thread.context.rank
            thread.error.add_note(f"raised by rank {thread.context.rank} of {thread.context.world_size}")
            raise thread.error

    def _resume(self, thread: RankThread) -> None:
        thread.process.install(self._installed)
        self._installed = thread.process
        self._running = thread
        self._hosts_ran = True
        thread.hand_over()
        self._running = None

    def _finish_machine(self) -> None:
        self._machine.memory.touch_all()
        while self._machine.step():
            pass
        self._between()
        if any(self._machine.busy(thread.context.rank) for thread in self._threads):
            if self._machine.races is not None:
                self._machine.races.finish()
            raise self._machine.deadlock([])

    def _abort(self) -> None:
        """Unwind every rank that has not ended, one after the other, and join the threads."""
        self._aborting = True
        if self._running is not None:
            # Only an exception in this very thread (Ctrl-C) leaves a rank running.
            self._running.interrupt()
            self._running = None
        for thread in self._threads:
            while thread.unfinished:
                self._resume(thread)
        for thread in self._threads:
            thread.join()
