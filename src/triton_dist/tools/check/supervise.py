"""Runs the worker of ``triton-dist check`` and reads what it says; nothing here waits without a limit."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any

from ...errors import InvalidArgumentError
from .options import Options, Run
from .report import Failure, Item, Report

_LINES = 30
"""Of a failed run's output that are shown."""

_START = 120.0
"""Seconds for a worker to import what it needs."""


class Supervisor:
    """One check of one script. progress: called before each run with how many have ended."""

    def __init__(self, path: str, arguments: Sequence[str], options: Options, progress: Callable[[int], object] | None = None) -> None:
        self._path, self._arguments, self._options = path, list(arguments), options
        self._progress = progress
        self._plan = options.plan()
        self._next = 0
        self._compiled: list[str] = []
        self._begin = time.monotonic()
        self.report = Report(path, len(self._plan))

    def check(self) -> Report:
        """Do all runs, or as many as the budget allows. Raises InvalidArgumentError for what the worker could not run at all."""
        while self._next < len(self._plan) and not self._spent():
            before = self._next, len(self._compiled)
            self._one_worker()
            if before == (self._next, len(self._compiled)) and not self._spent():
                self.report.failures.append(Failure(None, "the process that runs the script ends between runs"))
                break
        self.report.seconds = time.monotonic() - self._begin
        return self.report

    def _spent(self) -> bool:
        budget = self._options.budget
        return budget is not None and self._next > 0 and time.monotonic() - self._begin > budget

    def _one_worker(self) -> None:
        """Start one and listen until it ends, takes too long, or the budget is spent."""
        task = {
            "path": self._path,
            "arguments": self._arguments,
            "options": asdict(self._options),
            "runs": [(index, asdict(run)) for index, run in enumerate(self._plan) if index >= self._next],
            "compiled": self._compiled,
        }
        reader, writer = os.pipe()
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            worker = subprocess.Popen(
                [sys.executable, "-u", "-m", "triton_dist.tools.check.worker", str(writer), json.dumps(task)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[writer], start_new_session=True,
            )  # fmt: skip
            os.close(writer)
            try:
                self._listen(reader, worker, output)
            finally:
                os.close(reader)
                _kill(worker)

    def _listen(self, reader: int, worker: subprocess.Popen, output: IO[str]) -> None:
        doing: dict[str, Any] = {"event": "start"}
        said, wait = 0, _Wait(max(_START, self._options.time_limit))
        for event in _events(reader, wait):
            wait.restart(self._options.time_limit)
            if event is None:
                self._lost(doing, f"took longer than {self._options.time_limit:g} s", _tail(output, said))
                return
            doing = event
            if event["event"] == "usage":
                raise InvalidArgumentError(event["text"])
            if event["event"] == "begin":
                if self._spent():
                    return
                said = output.seek(0, os.SEEK_END)
                if self._progress is not None:
                    self._progress(event["run"])
            elif event["event"] == "end":
                self._ended(event, _tail(output, said))
            elif event["event"] == "compiling":
                self._compiled.append(event["kernel"])
                self.report.kernels[event["kernel"]] = event["name"]
            elif event["event"] == "compiled":
                self.report.add((_item(item) for item in event["items"]), self._options.ignore)
        code = worker.wait(self._options.time_limit)
        if code or self._next < len(self._plan):
            self._lost(doing, f"ended its process with {_ending(code)}", _tail(output, said))

    def _ended(self, event: dict[str, Any], output: str) -> None:
        run = self._plan[event["run"]]
        if event["outcome"] == "usage":
            raise InvalidArgumentError(event["text"])
        self._next = event["run"] + 1
        self.report.done.append(run)
        self.report.add((_item(item) for item in event["items"]), self._options.ignore)
        if event["outcome"] == "failed":
            self.report.failures.append(Failure(run, event["text"], output))

    def _lost(self, doing: dict[str, Any], how: str, output: str) -> None:
        """Note what a worker did that did not come back, and go on behind it."""
        if doing["event"] == "compiling":
            item = Item("TD207", "does-not-compile", f"compiling it for sm_{self._options.architectures} {how}", kernel=doing["name"])
            self.report.add([item], self._options.ignore)
        elif doing["event"] == "begin":
            run = self._plan[doing["run"]]
            self._next = doing["run"] + 1
            self.report.done.append(run)
            self.report.failures.append(Failure(run, f"the run {how}", output))
        elif doing["event"] == "start":
            raise InvalidArgumentError(f"the process that runs the script {how}, before the first run:\n{output}")


class _Wait:
    """How long the next event may take."""

    def __init__(self, seconds: float) -> None:
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(self._end - time.monotonic(), 0)


def _events(reader: int, wait: _Wait) -> Iterator[dict[str, Any] | None]:
    """The worker's lines, until it closes its end; None when ``wait`` is over."""
    buffer = b""
    while True:
        ready, _, _ = select.select([reader], [], [], wait.left())
        if not ready:
            yield None
            return
        data = os.read(reader, 1 << 16)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _item(fields: dict[str, Any]) -> Item:
    run = fields.pop("run")
    return Item(**fields, run=Run(**run) if run else None)


def _tail(output: IO[str], begin: int) -> str:
    output.seek(begin)
    return "".join(output.readlines()[-_LINES:]).rstrip()


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _kill(worker: subprocess.Popen) -> None:
    """End the worker and all processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
