"""The part of the CUDA driver that the symmetric heap uses, on a machine with no GPU: memory is memfds, mapped at the real addresses.

So the heaps of several processes are really shared, and the whole host side runs as on GPUs. ``faults`` makes calls fail.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import mmap
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

GRANULARITY = 2 << 20
DEVICE_MEMORY = 4 << 30
ANYWHERE = 0x5100_0000_0000
"""Where ranges are reserved that may lie anywhere."""

_reserved_anywhere = itertools.count()

_MAP_FIXED, _MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x10, 0x4000, 0x100000


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NOT_PERMITTED = 800


class CUmemLocationType(enum.IntEnum):
    CU_MEM_LOCATION_TYPE_DEVICE = 1
    CU_MEM_LOCATION_TYPE_HOST = 2


class CUmemAllocationType(enum.IntEnum):
    CU_MEM_ALLOCATION_TYPE_PINNED = 1


class CUmemAllocationHandleType(enum.IntEnum):
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1
    CU_MEM_HANDLE_TYPE_FABRIC = 8


class CUmemAllocationGranularity_flags(enum.IntEnum):
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1


class CUmemAccess_flags(enum.IntEnum):
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


class CUmemAllocationProp:
    def __init__(self) -> None:
        self.type = None
        self.location = SimpleNamespace(type=None, id=None)
        self.requestedHandleTypes = None


class CUmemAccessDesc:
    def __init__(self) -> None:
        self.location = SimpleNamespace(type=None, id=None)
        self.flags = None


class _Memory:
    """Physical memory: a memfd, the properties it was made with, and how many handles and mappings hold it."""

    def __init__(self, descriptor: int, size: int, properties: Any) -> None:
        self.descriptor, self.size, self.properties, self.holders = descriptor, size, properties, 1

    def let_go(self) -> None:
        self.holders -= 1
        if not self.holders:
            os.close(self.descriptor)


class FakeDriver:
    """One process's driver. gpus: names of the GPUs that it sees, in order; accessible: whether they reach each other.

    current: the GPU of the current context. capture_mode: of the calling thread.
    """

    CUresult = CUresult
    CUmemLocationType = CUmemLocationType
    CUmemAllocationType = CUmemAllocationType
    CUmemAllocationHandleType = CUmemAllocationHandleType
    CUmemAllocationGranularity_flags = CUmemAllocationGranularity_flags
    CUmemAccess_flags = CUmemAccess_flags
    CUstreamCaptureMode = CUstreamCaptureMode
    CUmemAllocationProp = CUmemAllocationProp
    CUmemAccessDesc = CUmemAccessDesc

    def __init__(self, gpus: tuple[str, ...] = ("only",), accessible: bool = True) -> None:
        self.gpus = gpus
        self.accessible = accessible
        self.current = 0
        self.capture_mode = CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self.streams = 0
        self.faults: dict[str, Callable[..., CUresult | None]] = {}
        self.reservations: dict[int, int] = {}
        self.mappings: dict[int, tuple[int, _Memory]] = {}
        self.handles: dict[int, _Memory] = {}
        self.avoided: set[int] = set()
        self._next = 1
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not name.startswith(("cuMem", "cuDevice", "cuCtxGet")):
            return value

        def call(*arguments: Any) -> tuple:
            fault = self.faults.get(name)
            failed = fault(*arguments) if fault is not None else None
            return value(*arguments) if failed is None else (failed, None)

        return call

    @property
    def in_use(self) -> tuple[int, int, int]:
        """Reservations, mappings and handles that have not been given back."""
        return len(self.reservations), len(self.mappings), len(self.handles)

    def cuGetErrorString(self, error: CUresult) -> tuple:
        return CUresult.CUDA_SUCCESS, error.name.encode()

    # ------------------------------------------------------------------ devices

    def cuDeviceGet(self, ordinal: int) -> tuple:
        return CUresult.CUDA_SUCCESS, ordinal

    def cuDeviceGetCount(self) -> tuple:
        return CUresult.CUDA_SUCCESS, len(self.gpus)

    def cuDeviceGetUuid(self, device: int) -> tuple:
        return CUresult.CUDA_SUCCESS, SimpleNamespace(bytes=self.gpus[device].encode().ljust(16, b"."))

    def cuDeviceGetPCIBusId(self, length: int, device: int) -> tuple:
        return CUresult.CUDA_SUCCESS, f"0000:{self.gpus[device]}:00.0".encode().ljust(length, b"\0")

    def cuDeviceCanAccessPeer(self, device: int, peer: int) -> tuple:
        return CUresult.CUDA_SUCCESS, int(self.accessible)

    def cuCtxGetDevice(self) -> tuple:
        return CUresult.CUDA_SUCCESS, self.current

    # ------------------------------------------------------------------ streams

    def cuThreadExchangeStreamCaptureMode(self, mode: CUstreamCaptureMode) -> tuple:
        before, self.capture_mode = self.capture_mode, mode
        return CUresult.CUDA_SUCCESS, before

    def cuStreamCreate(self, flags: int) -> tuple:
        self.streams += 1
        return CUresult.CUDA_SUCCESS, 77

    def cuStreamSynchronize(self, stream: int) -> tuple:
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamDestroy(self, stream: int) -> tuple:
        self.streams -= 1
        return (CUresult.CUDA_SUCCESS,)

    # ------------------------------------------------------------------ memory

    def cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> tuple:
        if self.capture_mode is not CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED or self._mapping(target) is None:
            return (CUresult.CUDA_ERROR_NOT_PERMITTED,)
        ctypes.memmove(target, source, nbytes)
        return (CUresult.CUDA_SUCCESS,)

    def cuMemGetAllocationGranularity(self, properties: Any, option: Any) -> tuple:
        return CUresult.CUDA_SUCCESS, GRANULARITY

    def cuMemGetInfo(self) -> tuple:
        return CUresult.CUDA_SUCCESS, DEVICE_MEMORY - 1, DEVICE_MEMORY

    def _handle(self, memory: _Memory) -> int:
        self.handles[self._next] = memory
        self._next += 1
        return self._next - 1

    def cuMemCreate(self, size: int, properties: Any, flags: int) -> tuple:
        if size % GRANULARITY:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        if size > DEVICE_MEMORY:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        descriptor = os.memfd_create("fake device memory")
        os.ftruncate(descriptor, size)
        return CUresult.CUDA_SUCCESS, self._handle(_Memory(descriptor, size, properties))

    def cuMemRelease(self, handle: int) -> tuple:
        self.handles.pop(handle).let_go()
        return (CUresult.CUDA_SUCCESS,)

    def cuMemExportToShareableHandle(self, handle: int, kind: Any, flags: int) -> tuple:
        memory = self.handles[handle]
        if memory.properties is not None and memory.properties.requestedHandleTypes != kind:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        return CUresult.CUDA_SUCCESS, os.dup(memory.descriptor)

    def cuMemImportFromShareableHandle(self, descriptor: int, kind: Any) -> tuple:
        own = os.dup(descriptor)
        return CUresult.CUDA_SUCCESS, self._handle(_Memory(own, os.fstat(own).st_size, None))

    def _mmap(self, address: int, size: int, protection: int, flags: int, descriptor: int = -1) -> bool:
        return self._libc.mmap(address, size, protection, flags, descriptor, 0) == address

    def cuMemAddressReserve(self, size: int, alignment: int, address: int, flags: int) -> tuple:
        how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
        if not address or address in self.avoided or not self._mmap(address, size, 0, how):
            # As the driver does: the address is a hint; where it once met somebody else's memory it may not try again.
            self.avoided.add(address)
            address = ANYWHERE + next(_reserved_anywhere) * (1 << 40)
            assert self._mmap(address, size, 0, how)
        self.reservations[address] = size
        return CUresult.CUDA_SUCCESS, address

    def cuMemAddressFree(self, address: int, size: int) -> tuple:
        assert self.reservations.pop(address) == size
        assert not any(address <= mapped < address + size for mapped in self.mappings), "still mapped"
        self._libc.munmap(address, size)
        return (CUresult.CUDA_SUCCESS,)

    def _reserved(self, address: int, size: int) -> bool:
        return any(start <= address and address + size <= start + length for start, length in self.reservations.items())

    def cuMemMap(self, address: int, size: int, offset: int, handle: int, flags: int) -> tuple:
        memory = self.handles[handle]
        taken = any(start < address + size and start + length > address for start, (length, _) in self.mappings.items())
        if address % GRANULARITY or size % GRANULARITY or size > memory.size or offset or taken or not self._reserved(address, size):
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        memory.holders += 1
        self.mappings[address] = size, memory
        return (CUresult.CUDA_SUCCESS,)

    def cuMemUnmap(self, address: int, size: int) -> tuple:
        length, memory = self.mappings.pop(address)
        assert length == size
        assert self._mmap(address, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED)
        memory.let_go()
        return (CUresult.CUDA_SUCCESS,)

    def cuMemSetAccess(self, address: int, size: int, access: list, count: int) -> tuple:
        length, memory = self.mappings[address]
        assert length == size and count == len(access) == 1
        assert self._mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, memory.descriptor)
        return (CUresult.CUDA_SUCCESS,)

    def _mapping(self, address: int) -> tuple[int, int, _Memory] | None:
        found = ((start, size, memory) for start, (size, memory) in self.mappings.items() if start <= address < start + size)
        return next(found, None)

    def cuMemRetainAllocationHandle(self, address: int) -> tuple:
        found = self._mapping(address)
        if found is None:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        found[2].holders += 1
        return CUresult.CUDA_SUCCESS, self._handle(found[2])

    def cuMemGetAddressRange(self, address: int) -> tuple:
        found = self._mapping(address)
        return (CUresult.CUDA_ERROR_INVALID_VALUE, None, None) if found is None else (CUresult.CUDA_SUCCESS, found[0], found[1])

    def cuMemGetAllocationPropertiesFromHandle(self, handle: int) -> tuple:
        return CUresult.CUDA_SUCCESS, self.handles[handle].properties
