"""One rank of a worker pool: ``python -m tests.worlds.worker DESCRIPTOR PACKAGE.MODULE:MACHINE``; ends when its connection does."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection

from tests.worlds.messages import Answer, find, pack_answer, unpack

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the test process ends, however that ends; a hung worker would stay otherwise."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def main() -> None:
    descriptor, machine_name, parent = sys.argv[1:]
    die_with_parent(int(parent))
    connection = Connection(int(descriptor))
    machine = find(*machine_name.split(":"))()
    answer = attempt(machine.enter, settle=lambda: None)
    connection.send_bytes(pack_answer(answer))
    if answer.error is not None:
        return
    while (job := receive(connection)) is not None:
        connection.send_bytes(pack_answer(attempt(job, settle=machine.settle)))
    machine.leave()


def receive(connection: Connection):
    """The next job as a function; None when there are no more. What can't be unpacked here is an error of the job."""
    try:
        data = connection.recv_bytes()
    except EOFError:
        return None

    def call():
        job = unpack(data)
        return job.body(*job.args, **job.kwargs)

    return call


def attempt(act, settle) -> Answer:
    """Do one thing and say what became of it."""
    result, error, text = None, None, ""
    try:
        result = act()
    except BaseException as caught:
        error, text = caught, traceback.format_exc()
    try:
        settle()
    except BaseException as caught:
        text += traceback.format_exc()
        return Answer(error=error or caught, traceback=text, usable=False)
    return Answer(result, error, text)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # libraries' exit handlers wait for ranks that may have been killed
