"""Passing file descriptors between the processes of one host, over a private socket, to processes of the same user only."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import TritonDistError
from ..agreement import Gather, agreed

_TIMEOUT = 60.0
"""Seconds to wait for a rank that has said that it is about to send."""


class PeerIdentityError(TritonDistError, PermissionError):
    """A process of another user connected to the socket over which memory is shared."""


def exchange_descriptors(own: int, rank: int, ranks: Sequence[int], gather: Gather) -> dict[int, int]:
    """Give every other one of ``ranks`` a copy of the descriptor ``own`` and get theirs. Collective over ``ranks``, of one host.

    rank: this one. gather: all-gather of Python objects among ``ranks``.
    Returns new descriptors by rank, without this rank's; the caller closes them.
    Raises the same on every rank, and then leaves no descriptor open: PeerIdentityError, TritonDistError.
    """
    others = [peer for peer in ranks if peer != rank]
    received: dict[int, int] = {}
    try:
        with contextlib.ExitStack() as opened:
            listening: list[socket.socket] = []

            def listen() -> str:
                path, listener = opened.enter_context(_listener(len(ranks)))
                listening.append(listener)
                return path

            paths = dict(zip(ranks, agreed(gather, ranks, "opening a socket for memory handles", listen), strict=True))

            def pass_on() -> None:
                # Everyone listens. Send to all first: the kernel queues connections and what is sent on them.
                for peer in others:
                    opened.enter_context(_sent(paths[peer], own, rank))
                for _ in others:
                    sender, descriptor = _receive(listening[0])
                    received[sender] = descriptor

            agreed(gather, ranks, "passing memory handles", pass_on)
    except BaseException:
        for descriptor in received.values():
            os.close(descriptor)
        raise
    return received


@contextlib.contextmanager
def _listener(backlog: int) -> Iterator[tuple[str, socket.socket]]:
    """A listening socket in a directory that only this user may enter, and its path."""
    with (
        tempfile.TemporaryDirectory(prefix="triton_dist_") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        path = str(Path(directory) / "socket")
        with _address_of(path) as address:
            listener.bind(address)
        listener.listen(backlog)
        listener.settimeout(_TIMEOUT)
        yield path, listener


@contextlib.contextmanager
def _address_of(path: str) -> Iterator[str]:
    """A short name for a socket's path: an address has room for 107 bytes, and the TMPDIR of a job may take more."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


@contextlib.contextmanager
def _sent(path: str, descriptor: int, rank: int) -> Iterator[None]:
    """Send a descriptor; the connection stays open until the receiver has it for sure."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
        sender.settimeout(_TIMEOUT)
        with _address_of(path) as address:
            sender.connect(address)
        socket.send_fds(sender, [struct.pack("i", rank)], [descriptor])
        yield


def _receive(listener: socket.socket) -> tuple[int, int]:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(_TIMEOUT)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid():
            raise PeerIdentityError(
                f"a process of user {user} connected where only user {os.getuid()}'s ranks may; refusing to share memory"
            )
        message, descriptors, _, _ = socket.recv_fds(connection, struct.calcsize("i"), 1)
        return struct.unpack("i", message)[0], descriptors[0]
