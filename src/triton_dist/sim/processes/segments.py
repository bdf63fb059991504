"""The shared memory of the ranks of one host: a file without a name for each, with its board and its heap, mapped in every process.

The files are passed as descriptors over private sockets, so nothing has to be removed: when the last process is gone, however it ended,
the memory is. It stays mapped until the process ends, because tensors that outlive their world must stay readable.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import HeapFullError, InvalidArgumentError
from ...runtime.address_map import CONTEXT, MAX_HEAP_SIZE
from ...runtime.agreement import agreed
from ...runtime.context_layout import PAGE_BYTES
from ...runtime.cuda.exchange import exchange_descriptors
from ..address_space import PAGE, data_base, map_at
from .board import BOARD_BYTES, Board

_PUNCH_HOLE, _KEEP_SIZE = 2, 1
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE."""

SEGMENT_NAME = "triton_dist"
"""What the files are called in /proc; several may be."""

Gather = Callable[[Any], list[Any]]


@dataclass
class Segments:
    """The files of all ranks, as mapped in this process. rank: this one. boards: by rank.

    descriptors: of the files, by rank. mapped: bytes of each rank's heap that are mapped here. context_mapped: whether the page of
    words at CONTEXT is.
    """

    rank: int
    boards: list[Board]
    descriptors: list[int]
    mapped: list[int] = field(default_factory=list)
    context_mapped: bool = False

    def map_heaps(self, size: int, gather: Gather) -> Segments:
        """Map ``size`` bytes of every rank's heap at the constant addresses; all ranks call it. Raises the same on every rank."""
        ranks = range(len(self.boards))
        agreed(gather, ranks, "making the symmetric heap", lambda: self._grow(size))
        agreed(gather, ranks, "mapping the symmetric heap", lambda: self._map(size))
        return self

    def _grow(self, size: int) -> None:
        descriptor = self.descriptors[self.rank]
        wanted = BOARD_BYTES + size
        if os.fstat(descriptor).st_size < wanted:
            try:
                os.ftruncate(descriptor, wanted)
            except OSError as error:
                raise HeapFullError(f"a heap of {size} bytes can't be made: {error.strerror}; ask for a smaller heap_size") from None

    def _map(self, size: int) -> None:
        if size > MAX_HEAP_SIZE:
            raise HeapFullError(f"a heap of {size} bytes does not fit into a rank's slot; ask for at most {MAX_HEAP_SIZE}")
        if not self.context_mapped:
            map_at(CONTEXT, PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, "the context page")
            self.context_mapped = True
        for rank, descriptor in enumerate(self.descriptors):
            have = self.mapped[rank]
            if size > have:
                what = f"rank {rank}'s symmetric heap"
                map_at(data_base(rank) + have, size - have, mmap.MAP_SHARED, what, descriptor, BOARD_BYTES + have)
                self.mapped[rank] = size

    def release(self, offset: int, nbytes: int) -> None:
        """Give the memory of whole pages of this rank's heap back to the system; they read as zero afterwards."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        nbytes = min(nbytes, self.mapped[self.rank] - offset) // PAGE * PAGE
        if nbytes <= 0:
            return
        if libc.fallocate(self.descriptors[self.rank], _PUNCH_HOLE | _KEEP_SIZE, BOARD_BYTES + offset, nbytes):
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(code, f"memory of the symmetric heap can't be given back: {os.strerror(code)}")
            ctypes.memset(data_base(self.rank) + offset, 0, nbytes)

    def close(self) -> None:
        """Nothing: what was mapped stays, for tensors that live on and for the next world of this process."""


_segments: Segments | None = None
"""Those of this process, once made."""


def join_segments(rank: int, world_size: int, gather: Gather) -> Segments:
    """This process's view of the shared memory, with fresh boards; all ranks call it.

    gather: all-gather of Python objects among all ranks, by other means than the boards.
    Raises PeerIdentityError for a process of another user, and InvalidArgumentError if this process was another rank before.
    """
    global _segments
    ranks = range(world_size)
    places = gather(None if _segments is None else (_segments.rank, len(_segments.boards)))
    known = [place == (other, world_size) for other, place in zip(ranks, places, strict=True)]
    if any(place is not None and not same for place, same in zip(places, known, strict=True)):
        raise InvalidArgumentError(
            f"processes that were ranks of another world (rank, world size: {places}) can't join one of {world_size} ranks; start new ones"
        )
    if _segments is None or not all(known):
        _segments = _make(rank, world_size, gather)
    _segments.boards[rank].reset(rank, world_size)
    gather("boards are fresh")
    return _segments


def _make(rank: int, world_size: int, gather: Gather) -> Segments:
    ranks = range(world_size)

    def create() -> int:
        descriptor = os.memfd_create(SEGMENT_NAME, os.MFD_CLOEXEC)
        os.posix_fallocate(descriptor, 0, BOARD_BYTES)  # or the first write to full memory is a bus error
        return descriptor

    own: list[int] = []
    agreed(gather, ranks, "making shared memory", lambda: own.append(create()))
    descriptors = exchange_descriptors(own[0], rank, list(ranks), gather)
    descriptors[rank] = own[0]
    in_order = [descriptors[other] for other in ranks]
    boards = [Board(mmap.mmap(descriptor, BOARD_BYTES)) for descriptor in in_order]
    return Segments(rank, boards, in_order, [0] * world_size)
