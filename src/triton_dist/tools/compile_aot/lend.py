"""Lending a rank's symmetric heap to a C program: a process of its own, without Python, maps it and runs kernels on it.

Each rank hands out the memory of its own heap as a file descriptor, over a socket, to processes of the same user. The other side is
``LIBRARY_join`` of a library built ahead of time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgumentError, NotInitializedError
from ...runtime import context_layout
from ...runtime.address_map import CONTEXT

_OFFER = struct.Struct("<QQiiII32s")
"""``struct offer`` of join.c."""

_PAGE_BYTES = context_layout.TEAM_MEMBERS + context_layout.MAX_TEAMS * context_layout.MEMBERS_PER_TEAM
"""Bytes of the context page that mean something."""

_LONGEST_PATH = 100
"""Characters of a socket's path; the system takes 107."""

_CREDENTIALS = struct.Struct("3i")
_PERIOD = 0.2


@dataclass(frozen=True)
class Offer:
    """What a rank lends. page: the bytes of its context page. bus: place of its GPU on the host's bus."""

    rank: int
    world_size: int
    heap_bytes: int
    page: bytes
    bus: str

    def encoded(self) -> bytes:
        """As the other side reads it; the page follows."""
        return _OFFER.pack(
            context_layout.LAYOUT_MARK, self.heap_bytes, self.rank, self.world_size, len(self.page), 0, self.bus.encode()
        )  # fmt: skip


@contextlib.contextmanager
def lend_heap(folder: str | Path) -> Iterator[None]:
    """While it is entered, processes of this user can join this rank's heap, by ``LIBRARY_join(folder, rank)``.

    All ranks of a world on GPUs, on one host, enter it with the same folder, which is made for this user alone. A process that has joined
    as a rank runs kernels as that rank would, beside it: it takes part in no collective call, its waits have no bound and are not on the
    wait board, and memory that ``symm_adopt`` took in is not lent. It has to leave before the ranks call ``finalize()``.
    Raises NotInitializedError, InvalidArgumentError for a folder that others may enter.
    """
    from ...runtime.cuda import driver
    from ...runtime.cuda.mapping import data_base
    from ...runtime.cuda.world import CudaWorld
    from ...runtime.world import require_world

    world = require_world("lend_heap")
    if not isinstance(world, CudaWorld):
        raise NotInitializedError("lend_heap needs ranks on GPUs; simulated ranks have no memory that another process could map")
    index = world.device.index or 0
    memory = driver.retain_allocation(data_base(world.rank))
    try:
        descriptor = driver.export_descriptor(memory)
    finally:
        driver.call("cuMemRelease", memory)
    try:
        bus = bytes(driver.call("cuDeviceGetPCIBusId", 32, driver.call("cuDeviceGet", index))).split(bytes(1))[0].decode()
        page = bytes(world.heap.bytes_at(CONTEXT, _PAGE_BYTES).cpu().numpy())
        with serving(folder, Offer(world.rank, world.world_size, world.heap.mapped_bytes, page, bus), descriptor):
            world.gather("heaps are lent")
            yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def serving(folder: str | Path, offer: Offer, descriptor: int) -> Iterator[None]:
    """Give an offer, with a copy of a file descriptor, to each process of this user that connects to ``folder/rank<rank>``."""
    path = _private(Path(folder)) / f"rank{offer.rank}"
    if len(str(path)) > _LONGEST_PATH:
        raise InvalidArgumentError(f"{str(path)!r} is too long for a socket; give a folder with a shorter path, such as one in /tmp")
    stop = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            raise InvalidArgumentError(f"{str(path)!r} can't be made: {error.strerror}; give a folder that no other job uses") from None
        try:
            listener.listen()
            listener.settimeout(_PERIOD)
            thread = threading.Thread(target=_serve, args=(listener, offer, descriptor, stop), daemon=True, name="triton_dist lend_heap")
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join()
        finally:
            path.unlink(missing_ok=True)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidArgumentError(f"others may enter {str(folder)!r}; give a folder that is not there yet, or one with mode 700")
    return folder


def _serve(listener: socket.socket, offer: Offer, descriptor: int, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection, contextlib.suppress(OSError):  # one that goes away meanwhile is no matter
            connection.settimeout(60)
            _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if user == os.getuid():
                socket.send_fds(connection, [offer.encoded()], [descriptor])
                connection.sendall(offer.page)
