"""The memory beneath the simulated symmetric heaps: mapped once a process, at the addresses of the constant map."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from ..errors import AddressInUseError, HeapFullError
from ..runtime.address_map import GUARD_BYTES, MAX_WORLD_SIZE, STRIDE, heap_base
from ..runtime.process_maps import who_holds

PAGE = mmap.PAGESIZE
# Linux numbers that Python's mmap module does not have.
_MAP_NORESERVE = 0x4000
_MAP_FIXED_NOREPLACE = 0x100000
_MADV_DONTNEED = 4

_mapped: dict[int, int] = {}
"""Bytes mapped for each rank's heap, from heap_base(rank) + GUARD_BYTES on. They stay mapped until the process ends:
a tensor that outlives its simulation must stay readable."""


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def data_base(rank: int) -> int:
    """Address of offset 0 of ``rank``'s heap, just after the unmapped guard."""
    return heap_base(rank) + GUARD_BYTES


def ensure_mapped(rank: int, nbytes: int) -> None:
    """Map at least ``nbytes`` of ``rank``'s heap. Raises AddressInUseError if something else lies there.

    Pages are zero and take no memory until they are written.
    """
    if not 0 <= rank < MAX_WORLD_SIZE:
        raise HeapFullError(f"rank {rank} has no heap: the address map has room for {MAX_WORLD_SIZE} ranks")
    nbytes = -(-nbytes // PAGE) * PAGE
    if nbytes > STRIDE - GUARD_BYTES:
        raise HeapFullError(f"a heap of {nbytes} bytes does not fit into a rank's slot of {STRIDE} bytes; ask for a smaller heap_size")
    have = _mapped.get(rank, 0)
    if nbytes <= have:
        return
    address, size = data_base(rank) + have, nbytes - have
    map_at(address, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, f"rank {rank}'s symmetric heap")
    _mapped[rank] = nbytes


def map_at(address: int, size: int, flags: int, what: str, descriptor: int = -1, offset: int = 0) -> None:
    """Map memory at an address where nothing is yet. flags, descriptor, offset: as for mmap. what: its name, for errors.

    Raises AddressInUseError, HeapFullError.
    """
    libc = _libc()
    flags |= _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
    got = libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, offset)
    failed = ctypes.get_errno() if got == ctypes.c_void_p(-1).value else 0
    if not failed and got != address:
        # A kernel older than 4.17 takes the address as a hint only.
        libc.munmap(got, size)
        failed = errno.EEXIST
    if failed == errno.EEXIST:
        raise AddressInUseError(
            f"{what} needs addresses {address:#x} to {address + size:#x}, but {who_holds(address, address + size)} "
            "is there; start the simulation before whatever maps it, or in a fresh process"
        )
    if failed:
        raise HeapFullError(f"can't map {size} bytes for {what}: {os.strerror(failed)}; ask for a smaller heap_size")


def release_pages(rank: int, offset: int, nbytes: int) -> None:
    """Give the memory of whole pages back to the system; they read as zero afterwards."""
    if nbytes:
        _libc().madvise(data_base(rank) + offset, nbytes, _MADV_DONTNEED)
