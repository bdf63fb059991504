"""A lock in memory that several processes map: what makes an atomic one step for all of them."""

from __future__ import annotations

import ctypes
import errno
import os

LOCK_BYTES = 128
"""Room for the C library's mutex, which is smaller on every machine."""

_PROCESS_SHARED, _ROBUST, _RECURSIVE = 1, 1, 1
"""PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST and PTHREAD_MUTEX_RECURSIVE on Linux."""


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    for name in ("pthread_mutex_lock", "pthread_mutex_unlock", "pthread_mutex_consistent"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.pthread_mutex_init.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


class SharedLock:
    """A recursive lock at ``address``, for threads of all processes that map it. A process that dies with it gives it back.

    create: whether to make it there; done by one process before any other one uses it.
    """

    def __init__(self, address: int, *, create: bool = False) -> None:
        library = _library()
        self._address = address
        self._lock, self._unlock, self._repair = library.pthread_mutex_lock, library.pthread_mutex_unlock, library.pthread_mutex_consistent
        if not create:
            return
        attributes = ctypes.create_string_buffer(LOCK_BYTES)
        steps = (
            library.pthread_mutexattr_init(attributes),
            library.pthread_mutexattr_setpshared(attributes, _PROCESS_SHARED),
            library.pthread_mutexattr_setrobust(attributes, _ROBUST),
            library.pthread_mutexattr_settype(attributes, _RECURSIVE),
            library.pthread_mutex_init(address, attributes),
        )
        failed = next((code for code in steps if code), 0)
        if failed:
            raise OSError(failed, f"no lock can be made in shared memory: {os.strerror(failed)}")

    def acquire(self) -> None:
        """Wait for the lock. After the death of its holder, whose last step may be half done, the others still get it."""
        code = self._lock(self._address)
        if code == errno.EOWNERDEAD:
            self._repair(self._address)
        elif code:
            raise OSError(code, f"the shared lock can't be taken: {os.strerror(code)}")

    def release(self) -> None:
        self._unlock(self._address)

    def __enter__(self) -> SharedLock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
