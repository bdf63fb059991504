"""NVSHMEM beneath ``libshmem_device``: started beside a world of ranks on GPUs, told of its heap and of each kernel that uses it.

The heap stays this package's own. NVSHMEM maps its memory a second time, at addresses of its own; kernels find the distance in the context
page. A module in which kernels call NVSHMEM's device functions has to be told of the other ranks when it is loaded: by a hook of
Triton's that is added to those already there, and taken away when the world ends.

NVSHMEM ends, as it registers memory, by a barrier of all ranks. So it is ended where they are known to come: when they leave a world
together, and when all have agreed that it can't be made. A world that has failed leaves it running unless it has one rank, and says so at
the next try.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from triton import knobs

from ...errors import InvalidArgumentError, MissingCapabilityError, PeerLostError, TritonDistError
from . import driver, nvshmem_library
from .undo import run_all

_WITH_UNIQUE_ID = 1 << 3
_NOT_INITIALIZED, _BOOTSTRAPPED, _INITIALIZED = 0, 1, 2
"""What NVSHMEM says of itself: nothing yet, the processes have met, and it has a GPU and a heap."""

_MOST_BYTES = (1 << 32) - 1
"""NVSHMEM registers less than 4 GiB in one piece."""

_UNIQUE_ID_BYTES, _ARGUMENTS_BYTES, _ATTRIBUTES_BYTES, _ID_ARGUMENTS_BYTES = 128, 128, 144, 24
_STATE_SYMBOL = b"nvshmemi_device_state_d"

_modules: list[int] = []
"""Modules of this process in which kernels use NVSHMEM; they stay loaded from one world to the next."""

_started_here = False
"""Whether this process has started NVSHMEM by this module; the processes stay met when a world ends."""

_left_running = False
"""Whether a world of this process could not end the NVSHMEM that it had started."""

_in_use: NvshmemBacking | None = None


class NvshmemError(TritonDistError, RuntimeError):
    """A call of NVSHMEM's host library failed; the text has its name and status. NVSHMEM_DEBUG=INFO makes it say more."""


def library_in_use() -> str | None:
    """The device library to compile kernels with, None where NVSHMEM is not used."""
    return None if _in_use is None else _in_use.device_library


class NvshmemBacking:
    """NVSHMEM in a world of ranks of one host, each with a GPU of its own; made by all ranks together.

    gather: among all ranks. address, nbytes: this rank's heap, one mapping. distance: bytes from an address of the heap to NVSHMEM's of
    the same memory.
    Raises MissingCapabilityError without NVSHMEM or with one that does not fit, InvalidArgumentError for a heap that it can't take,
    NvshmemError when a call of it fails: of the same class on every rank.
    """

    def __init__(
        self, rank: int, world_size: int, device: torch.device, together: Callable, gather: Callable, address: int, nbytes: int
    ) -> None:
        self._rank, self._world_size, self._nbytes = rank, world_size, nbytes
        self._device = device
        self._library: Any = None
        self._registered = 0
        self._told: list[int] = []
        self.version: tuple[int, int, int] = (0, 0, 0)
        self.device_library = ""
        self.distance = 0
        together("looking for NVSHMEM", lambda: self._look(device, nbytes))
        self._agree_on_version(gather)
        identities: list[bytes] = []
        together("starting NVSHMEM", lambda: identities.append(self._prepare()))
        identity = gather(identities[0])[0]
        try:
            together("starting NVSHMEM", lambda: self._start(identity))
            together("registering the symmetric heap with NVSHMEM", lambda: self._register(address))
            together("telling loaded kernels of NVSHMEM", self._take_over)
        except BaseException as error:
            all_here = isinstance(error, TritonDistError) and not isinstance(error, PeerLostError)
            self._give_up(gather if all_here else None)
            raise

    def _look(self, device: torch.device, nbytes: int) -> None:
        files = nvshmem_library.find()
        major, minor = torch.cuda.get_device_capability(device)
        self.device_library = str(files.device_library(10 * major + minor))
        self._library = nvshmem_library.load(files)
        self.version = nvshmem_library.version_of(self._library)
        if nbytes > _MOST_BYTES:
            raise InvalidArgumentError(
                f'shmem="nvshmem": the heap has {nbytes} bytes with the words of barriers, but NVSHMEM registers less than '
                f"{_MOST_BYTES + 1}; ask for a smaller heap_size"
            )
        # Memory is registered in multiples of this, by file descriptors: as this package allocates it.
        os.environ.setdefault("NVSHMEM_CUMEM_GRANULARITY", str(driver.granularity(device.index or 0)))
        os.environ.setdefault("NVSHMEM_CUMEM_HANDLE_TYPE", "FILE_DESCRIPTOR")

    def _agree_on_version(self, gather: Callable) -> None:
        versions = gather(self.version)
        if len(set(versions)) > 1:
            raise MissingCapabilityError(f"the ranks have different versions of NVSHMEM: {versions}; install the same one everywhere")

    def _prepare(self) -> bytes:
        """Declare the functions; gives rank 0's identity of the world, in which all meet."""
        self._library.nvshmemx_buffer_register_symmetric.restype = ctypes.c_void_p
        self._library.nvshmemx_buffer_register_symmetric.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._library.nvshmemx_buffer_unregister_symmetric.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._library.nvshmemx_cumodule_init.argtypes = [ctypes.c_void_p]
        self._library.nvshmemx_cumodule_finalize.argtypes = [ctypes.c_void_p]
        status = self._library.nvshmemx_init_status()
        if status >= _INITIALIZED and _left_running:
            raise NvshmemError(
                "NVSHMEM still runs in this process for an earlier world, which failed: it can only be ended by all ranks together. Start "
                'new processes for another world with it, or call triton_dist.initialize(shmem="peers")'
            )
        if status > (_BOOTSTRAPPED if _started_here else _NOT_INITIALIZED):
            raise InvalidArgumentError(
                "NVSHMEM was started in this process by another library (torch's symmetric memory?), with settings of its own; call "
                'triton_dist.initialize(shmem="nvshmem") before, in a fresh process'
            )
        return self._unique_id() if self._rank == 0 else b""

    def _unique_id(self) -> bytes:
        identity = (ctypes.c_byte * _UNIQUE_ID_BYTES)()
        _put_int(identity, 0, (1 << 16) + _UNIQUE_ID_BYTES)
        self._call("nvshmemx_get_uniqueid", identity)
        return bytes(identity)

    def _start(self, unique_id: bytes) -> None:
        identity = (ctypes.c_byte * _UNIQUE_ID_BYTES).from_buffer_copy(unique_id)
        attributes = (ctypes.c_byte * _ATTRIBUTES_BYTES)()
        _put_int(attributes, 0, (1 << 16) + _ATTRIBUTES_BYTES)
        _put_int(attributes, 16, (1 << 16) + _ARGUMENTS_BYTES)
        _put_int(attributes, 24, (1 << 16) + _ID_ARGUMENTS_BYTES)
        self._call("nvshmemx_set_attr_uniqueid_args", self._rank, self._world_size, identity, attributes)
        global _started_here
        _started_here = True
        self._call("nvshmemx_hostlib_init_attr", _WITH_UNIQUE_ID, attributes)
        seen = self._library.nvshmem_my_pe(), self._library.nvshmem_n_pes()
        if seen != (self._rank, self._world_size):
            raise NvshmemError(f"NVSHMEM takes rank {self._rank} of {self._world_size} for PE {seen[0]} of {seen[1]}")
        if self._library.nvshmemx_init_status() < _INITIALIZED:
            raise NvshmemError("NVSHMEM has met the other ranks but has not taken a GPU; run with NVSHMEM_DEBUG=INFO for its reason")

    def _register(self, address: int) -> None:
        place = self._library.nvshmemx_buffer_register_symmetric(address, self._nbytes, 0)
        if not place:
            raise NvshmemError(
                f"nvshmemx_buffer_register_symmetric of {self._nbytes} bytes failed; run with NVSHMEM_DEBUG=INFO for NVSHMEM's reason"
            )
        self._registered = place
        self.distance = place - address

    def _take_over(self) -> None:
        global _in_use
        for module in _modules:
            self._tell(module)
        knobs.runtime.kernel_load_end_hook.add(self._on_load)
        _in_use = self

    def _on_load(self, module: Any, function: Any, name: str, metadata_group: Any, hash: Any) -> None:
        """Triton has loaded a kernel; NVSHMEM has to know the module if it holds its state."""
        if module is None or module in _modules or not _has_state(module):
            return
        self._tell(module)
        _modules.append(module)

    def _tell(self, module: int) -> None:
        self._call("nvshmemx_cumodule_init", module)
        self._told.append(module)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise NvshmemError(f"{name} failed with status {status}; run with NVSHMEM_DEBUG=INFO for NVSHMEM's reason")

    def close(self) -> None:
        """End NVSHMEM; all ranks call it, before the heap is unmapped. It waits for them, so that it goes on whatever fails on this one."""
        run_all([self._leave_kernels, self._take_modules_back, self._unregister, self._end])

    def abandon(self) -> None:
        """Leave a world that has failed, whose other ranks may not come, before the heap is unmapped."""
        global _left_running
        _left_running = True
        self._leave_kernels()
        if self._world_size == 1:
            torch.cuda.synchronize(self._device)  # of a GPU that has failed NVSHMEM would end the process
            self.close()

    def _give_up(self, gather: Callable | None) -> None:
        """Undo what was done to start it. gather: among all ranks, None where not all of them do this."""
        global _left_running
        running = _left_running = self._running
        self._leave_kernels()
        with contextlib.suppress(Exception):  # why it could not be started is what the caller has to know
            if gather is not None and all(gather(running)):
                run_all([self._take_modules_back, self._end])  # memory that only some have registered is forgotten at the end

    def _leave_kernels(self) -> None:
        """Kernels that are compiled or loaded from now on have nothing to do with it."""
        global _in_use
        _in_use = None
        knobs.runtime.kernel_load_end_hook.remove(self._on_load)

    def _take_modules_back(self) -> None:
        """The next world tells the modules again."""
        told, self._told = self._told, []
        run_all(partial(self._call, "nvshmemx_cumodule_finalize", module) for module in told)

    def _unregister(self) -> None:
        if self._registered:
            place, self._registered = self._registered, 0
            self._call("nvshmemx_buffer_unregister_symmetric", place, self._nbytes)

    def _end(self) -> None:
        global _left_running
        self._library.nvshmemx_hostlib_finalize()
        _left_running = self._running

    @property
    def _running(self) -> bool:
        """Whether NVSHMEM has a GPU and a heap in this process."""
        return self._library.nvshmemx_init_status() >= _INITIALIZED


def _has_state(module: int) -> bool:
    """Whether a loaded module has NVSHMEM's variables."""
    try:
        driver.call("cuModuleGetGlobal", module, _STATE_SYMBOL)
    except driver.CudaDriverError:
        return False
    return True


def _put_int(data: Any, offset: int, value: int) -> None:
    ctypes.c_int.from_buffer(data, offset).value = value
