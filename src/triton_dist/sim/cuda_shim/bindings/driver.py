"""``cuda.bindings.driver`` (also ``from cuda import cuda``) for simulated ranks: stream writes and waits, copies, fills, queries."""

from __future__ import annotations

import enum
from typing import Any

from ....errors import UnsupportedOperationError
from ...gpu_sheets import device_properties
from ..streams import here
from . import common

DRIVER_VERSION = 13000
"""The driver that the simulator pretends to have, as cuDriverGetVersion numbers it."""


class CUresult(enum.IntEnum):
    """Error codes; only success is ever returned."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NOT_READY = 600


class CUstreamWriteValue_flags(enum.IntFlag):  # noqa: N801  (the driver's name)
    CU_STREAM_WRITE_VALUE_DEFAULT = 0
    CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 1


class CUstreamWaitValue_flags(enum.IntFlag):  # noqa: N801
    CU_STREAM_WAIT_VALUE_GEQ = 0
    CU_STREAM_WAIT_VALUE_EQ = 1
    CU_STREAM_WAIT_VALUE_AND = 2
    CU_STREAM_WAIT_VALUE_NOR = 3
    CU_STREAM_WAIT_VALUE_FLUSH = 1 << 30


class CUdevice_attribute(enum.IntEnum):  # noqa: N801
    """The attributes that are answered, numbered as the driver does."""

    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132


_COMPARISONS = {CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ: "ge", CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ: "eq"}
_SUCCESS = (CUresult.CUDA_SUCCESS,)

CUdevice = CUdeviceptr = CUcontext = int
"""Devices, device pointers and contexts are numbers here."""

_CONTEXT = 1
"""The context of the rank's GPU, which is current from the start."""


class cuuint32_t(int):  # noqa: N801  (the driver's name)
    """An unsigned number of 32 bits."""


class cuuint64_t(int):  # noqa: N801
    """An unsigned number of 64 bits."""


class CUstream(common.StreamHandle):
    """A stream: made of the number that ``torch.cuda.Stream.cuda_stream`` gives."""


def cuInit(flags: int = 0) -> tuple:  # noqa: N802
    return _SUCCESS


def cuDriverGetVersion() -> tuple:  # noqa: N802
    return *_SUCCESS, DRIVER_VERSION


def cuGetErrorName(error: Any) -> tuple:  # noqa: N802
    return *_SUCCESS, common.error_name(error, CUresult, "cuGetErrorName").encode()


def cuGetErrorString(error: Any) -> tuple:  # noqa: N802
    return *_SUCCESS, common.error_name(error, CUresult, "cuGetErrorString").lower().replace("_", " ").encode()


def cuDeviceGet(ordinal: int) -> tuple:  # noqa: N802
    return *_SUCCESS, int(ordinal)


def cuDeviceGetCount() -> tuple:  # noqa: N802
    return *_SUCCESS, here("cuDeviceGetCount").local_world_size


def cuCtxGetDevice() -> tuple:  # noqa: N802
    return *_SUCCESS, here("cuCtxGetDevice").local_rank


def cuCtxGetCurrent() -> tuple:  # noqa: N802
    here("cuCtxGetCurrent")
    return *_SUCCESS, CUcontext(_CONTEXT)


def cuCtxSynchronize() -> tuple:  # noqa: N802
    here("cuCtxSynchronize").synchronize(why="cuCtxSynchronize")
    return _SUCCESS


def cuDeviceGetAttribute(attrib: Any, dev: Any) -> tuple:  # noqa: N802
    """Raises UnsupportedOperationError for an attribute that is not in the table."""
    properties = device_properties(here("cuDeviceGetAttribute").machine.gpu)
    attributes = CUdevice_attribute
    known = {
        attributes.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: properties.max_threads_per_block,
        attributes.CU_DEVICE_ATTRIBUTE_WARP_SIZE: properties.warp_size,
        attributes.CU_DEVICE_ATTRIBUTE_CLOCK_RATE: properties.clock_rate,
        attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: properties.multi_processor_count,
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: properties.major,
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: properties.minor,
        attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: properties.shared_memory_per_block_optin,
        attributes.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: 0,
    }
    if attrib not in known:
        raise UnsupportedOperationError(f"cuDeviceGetAttribute({attrib!r}): the simulator answers {[each.name for each in known]}")
    return *_SUCCESS, known[attrib]


def _write(bits: int) -> Any:
    name = f"cuStreamWriteValue{bits}"

    def write(stream: Any, addr: Any, value: Any, flags: Any = 0) -> tuple:
        common.flags_of(flags, CUstreamWriteValue_flags, name)
        common.write_value(stream, addr, value, bits, name)
        return _SUCCESS

    write.__name__ = write.__qualname__ = name
    return write


def _wait(bits: int) -> Any:
    name = f"cuStreamWaitValue{bits}"

    def wait(stream: Any, addr: Any, value: Any, flags: Any = 0) -> tuple:
        asked = common.flags_of(flags, CUstreamWaitValue_flags, name)
        compare = _COMPARISONS.get(asked & ~CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_FLUSH)
        if compare is None:
            raise UnsupportedOperationError(f"{name} with flags {flags!r}: the simulator waits for GEQ and EQ")
        common.wait_value(stream, addr, value, compare, bits, name)
        return _SUCCESS

    wait.__name__ = wait.__qualname__ = name
    return wait


cuStreamWriteValue32, cuStreamWriteValue64 = _write(32), _write(64)  # noqa: N816
cuStreamWaitValue32, cuStreamWaitValue64 = _wait(32), _wait(64)  # noqa: N816


def cuStreamSynchronize(hStream: Any) -> tuple:  # noqa: N802, N803
    common.synchronize(hStream, "cuStreamSynchronize")
    return _SUCCESS


def cuMemcpyAsync(dst: Any, src: Any, ByteCount: int, hStream: Any) -> tuple:  # noqa: N802, N803
    common.copy(dst, src, ByteCount, hStream, "cuMemcpyAsync")
    return _SUCCESS


cuMemcpyDtoDAsync = cuMemcpyAsync  # noqa: N816


def cuMemsetD8Async(dstDevice: Any, uc: int, N: int, hStream: Any) -> tuple:  # noqa: N802, N803
    common.fill(dstDevice, uc, 1, N, hStream, "cuMemsetD8Async")
    return _SUCCESS


def cuMemsetD32Async(dstDevice: Any, ui: int, N: int, hStream: Any) -> tuple:  # noqa: N802, N803
    common.fill(dstDevice, ui, 4, N, hStream, "cuMemsetD32Async")
    return _SUCCESS


def __getattr__(name: str) -> Any:
    raise common.missing("cuda.bindings.driver", name, ("cu", "CU"))
