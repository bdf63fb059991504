"""Passing file descriptors between the processes of one host, over a private socket, to processes of the same user only."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import TritonDistError

_TIMEOUT = 120.0


class PeerIdentityError(TritonDistError, PermissionError):
    """A process of another user connected to the socket over which memory is shared."""


def exchange_descriptors(own: int, rank: int, size: int, gather: Callable[[Any], Sequence[Any]]) -> dict[int, int]:
    """Give every other rank a copy of the descriptor ``own`` and get theirs. Collective over ``size`` ranks of one host.

    gather: all-gather of Python objects among these ranks.
    Returns new descriptors by rank, without this rank's; the caller closes them.
    Raises PeerIdentityError, and TimeoutError when a rank does not come within two minutes.
    """
    with tempfile.TemporaryDirectory(prefix="triton_dist_") as directory:  # only this user may enter it
        path = str(Path(directory) / "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(size)
            listener.settimeout(_TIMEOUT)
            paths = gather(path)
            # Everyone listens now. Send to all first: the kernel queues connections and what is sent on them.
            senders = [_send(paths[peer], own, rank) for peer in range(size) if peer != rank]
            received = dict(_receive(listener) for _ in range(size - 1))
            gather("received")
            for sender in senders:
                sender.close()
    return received


def _send(path: str, descriptor: int, rank: int) -> socket.socket:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sender.settimeout(_TIMEOUT)
    sender.connect(path)
    socket.send_fds(sender, [struct.pack("i", rank)], [descriptor])
    return sender


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
