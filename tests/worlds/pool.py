"""Worker processes that live as long as the tests: one world a pool, many jobs, and no job without an end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.worlds.messages import Answer, Job, pack, unpack

ROOT = Path(__file__).parents[2]
GRACE = 10.0
"""Seconds that the other ranks have to answer after one has failed: most wait for it in a collective and never will."""


class WorkerError(AssertionError):
    """A job hung, or a worker died or could not start; the text has what the workers wrote."""


class WorkerPool:
    """``world_size`` processes that run the same function, again and again, in one world.

    machine: "module:class" of ``tests.worlds.machines``. environment: variables for the workers beside what a launcher sets.
    Workers start at the first job, and again at the job after one that left them unusable.
    """

    def __init__(self, world_size: int, machine: str, environment: Mapping[str, str] | None = None, start_timeout: float = 180.0) -> None:
        self.world_size = world_size
        self.starts = 0
        self._machine = machine
        self._environment = dict(environment or {})
        self._start_timeout = start_timeout
        self._workers: list[subprocess.Popen] = []
        self._connections: list[Connection] = []
        self._output: Any = None

    def run(self, body: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, timeout: float = 60) -> list:
        """``body(*args, **kwargs)`` on every rank; the results by rank.

        body: a function of a module. timeout: seconds for the job, without the start of the workers.
        Raises the error of the first rank that failed, and WorkerError for a rank that hung or died.
        """
        message = pack(Job(body, tuple(args), dict(kwargs or {})))
        if not self._workers:
            self._start()
        for connection in self._connections:
            self._send(connection, message)
        answers = self._answers(f"{body.__module__}.{body.__qualname__}", timeout)
        return [answers[rank].result for rank in range(self.world_size)]

    def close(self) -> None:
        """Let the workers leave their world and end; what does not end within the grace is killed."""
        for connection in self._connections:
            connection.close()
        deadline = time.monotonic() + GRACE
        for worker in self._workers:
            try:
                worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        self._kill()

    # ------------------------------------------------------------------ processes

    def _start(self) -> None:
        self.starts += 1
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by _kill
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(self.world_size):
            ours, theirs = multiprocessing.Pipe()
            descriptor = theirs.fileno()
            command = [sys.executable, "-m", "tests.worlds.worker", str(descriptor), self._machine, str(os.getpid())]
            # A session of its own: killing the group takes what the worker started, such as a compiler, with it.
            worker = subprocess.Popen(
                command, env=self._environment_of(rank, port), cwd=ROOT, pass_fds=[descriptor], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
            )  # fmt: skip
            theirs.close()
            self._workers.append(worker)
            self._connections.append(ours)
        self._answers("the start of the workers", self._start_timeout)

    def _environment_of(self, rank: int, port: int) -> dict[str, str]:
        numbers = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.world_size,
            "MASTER_PORT": port,
        }
        launcher = {name: str(number) for name, number in numbers.items()} | {"MASTER_ADDR": "127.0.0.1"}
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, **launcher, "PYTHONPATH": os.pathsep.join(path for path in paths if path), **self._environment}

    def _kill(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        for connection in self._connections:
            connection.close()
        if self._output is not None:
            self._output.close()
        self._workers, self._connections, self._output = [], [], None

    # ------------------------------------------------------------------ answers

    def _send(self, connection: Connection, message: bytes) -> None:
        with contextlib.suppress(OSError):  # a worker that is gone: _answers finds and says so
            connection.send_bytes(message)

    def _answers(self, what: str, timeout: float) -> dict[int, Answer]:
        """One answer a rank. If not all are good, raises, and kills the workers unless they failed alike and can go on."""
        answers: dict[int, Answer] = {}
        dead: dict[int, int | None] = {}
        deadline = time.monotonic() + timeout
        while len(answers) + len(dead) < self.world_size:
            missing = {self._connections[rank]: rank for rank in range(self.world_size) if rank not in answers and rank not in dead}
            ready = wait(list(missing), max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for connection in ready:
                rank = missing[connection]
                try:
                    answers[rank] = unpack(connection.recv_bytes())
                except (EOFError, OSError):
                    dead[rank] = self._exit_code(rank)
                if rank in dead or answers[rank].error is not None:
                    deadline = min(deadline, time.monotonic() + GRACE)
        late = [rank for rank in range(self.world_size) if rank not in answers and rank not in dead]
        self._judge(what, timeout, answers, dead, late)
        return answers

    def _exit_code(self, rank: int) -> int | None:
        try:
            return self._workers[rank].wait(GRACE)
        except subprocess.TimeoutExpired:
            return None

    def _judge(self, what: str, timeout: float, answers: dict[int, Answer], dead: dict[int, int | None], late: list[int]) -> None:
        failed = {rank: answers[rank] for rank in sorted(answers) if answers[rank].error is not None}
        if not failed and not dead and not late:
            return
        together = len(failed) == self.world_size and len({type(answer.error) for answer in failed.values()}) == 1
        output = self._tail()
        if not together or not all(answer.usable for answer in failed.values()) or what == "the start of the workers":
            self._kill()
        story = [f"{what}: rank {rank} died (exit code {code})" for rank, code in sorted(dead.items())]
        if late:
            story.append(
                f"{what}: ranks {late} had not answered after {timeout:g} s, or {GRACE:g} s after a failure; the workers were killed"
            )
        if failed:
            rank, answer = next(iter(failed.items()))
            assert answer.error is not None
            answer.error.add_note("\n".join([f"on rank {rank} of {self.world_size}:", answer.traceback, *story]))
            raise answer.error
        raise WorkerError("\n".join([*story, "what they wrote last:", output]))

    def _tail(self, size: int = 4000) -> str:
        # Workers write at the file's position, which they share with this process: it must not move.
        descriptor = self._output.fileno()
        return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size)).decode(errors="replace")
