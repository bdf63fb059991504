"""``cuda.bindings.runtime`` (also ``from cuda import cudart``) for simulated ranks: copies, fills, devices, synchronisation."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

from ....errors import InvalidArgumentError, UnsupportedOperationError
from ...gpu_sheets import device_properties
from ..streams import here
from ..torch_cuda import set_device
from . import common


class cudaError_t(enum.IntEnum):  # noqa: N801  (the runtime's name)
    """Error codes; only success is ever returned."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorNotReady = 600


class cudaMemcpyKind(enum.IntEnum):  # noqa: N801
    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


class cudaDeviceP2PAttr(enum.IntEnum):  # noqa: N801
    cudaDevP2PAttrPerformanceRank = 1
    cudaDevP2PAttrAccessSupported = 2
    cudaDevP2PAttrNativeAtomicSupported = 3


_SUCCESS = (cudaError_t.cudaSuccess,)


class cudaStream_t(common.StreamHandle):
    """A stream: made of the number that ``torch.cuda.Stream.cuda_stream`` gives."""


def cudaGetErrorName(error: Any) -> tuple:  # noqa: N802
    return *_SUCCESS, common.error_name(error, cudaError_t, "cudaGetErrorName").encode()


def cudaGetErrorString(error: Any) -> tuple:  # noqa: N802
    return *_SUCCESS, ("no error" if error == 0 else common.error_name(error, cudaError_t, "cudaGetErrorString")).encode()


def cudaGetDevice() -> tuple:  # noqa: N802
    return *_SUCCESS, here("cudaGetDevice").local_rank


def cudaSetDevice(device: int) -> tuple:  # noqa: N802
    set_device(device)
    return _SUCCESS


def cudaGetDeviceCount() -> tuple:  # noqa: N802
    return *_SUCCESS, here("cudaGetDeviceCount").local_world_size


def cudaGetDeviceProperties(device: int) -> tuple:  # noqa: N802
    """The properties that scripts ask for, by the runtime's names."""
    told = device_properties(here("cudaGetDeviceProperties").machine.gpu)
    return *_SUCCESS, SimpleNamespace(
        name=told.name.encode(),
        major=told.major,
        minor=told.minor,
        totalGlobalMem=told.total_memory,
        multiProcessorCount=told.multi_processor_count,
        sharedMemPerBlock=told.shared_memory_per_block,
        sharedMemPerBlockOptin=told.shared_memory_per_block_optin,
        sharedMemPerMultiprocessor=told.shared_memory_per_multiprocessor,
        maxThreadsPerBlock=told.max_threads_per_block,
        warpSize=told.warp_size,
        l2CacheSize=told.L2_cache_size,
    )


def cudaDeviceCanAccessPeer(device: int, peerDevice: int) -> tuple:  # noqa: N802, N803
    return *_SUCCESS, int(device != peerDevice)


def cudaDeviceGetP2PAttribute(attr: Any, srcDevice: int, dstDevice: int) -> tuple:  # noqa: N802, N803
    """Access and atomics work between all GPUs of a node."""
    if attr == cudaDeviceP2PAttr.cudaDevP2PAttrPerformanceRank:
        return *_SUCCESS, 0
    if attr in (cudaDeviceP2PAttr.cudaDevP2PAttrAccessSupported, cudaDeviceP2PAttr.cudaDevP2PAttrNativeAtomicSupported):
        return *_SUCCESS, 1
    raise UnsupportedOperationError(f"cudaDeviceGetP2PAttribute({attr!r}): the simulator answers {list(cudaDeviceP2PAttr.__members__)}")


def cudaFree(devPtr: int) -> tuple:  # noqa: N802, N803
    """``cudaFree(0)``, by which scripts create a context. There is no cudaMalloc here, hence nothing else to free."""
    if devPtr:
        raise InvalidArgumentError(f"cudaFree({devPtr:#x}): the simulator has no cudaMalloc; allocate by torch")
    return _SUCCESS


def cudaDeviceSynchronize() -> tuple:  # noqa: N802
    here("cudaDeviceSynchronize").synchronize(why="cudaDeviceSynchronize")
    return _SUCCESS


def cudaStreamSynchronize(stream: Any) -> tuple:  # noqa: N802
    common.synchronize(stream, "cudaStreamSynchronize")
    return _SUCCESS


def cudaMemcpyAsync(dst: Any, src: Any, count: int, kind: Any, stream: Any) -> tuple:  # noqa: N802
    common.copy(dst, src, count, stream, "cudaMemcpyAsync")
    return _SUCCESS


def cudaMemcpy(dst: Any, src: Any, count: int, kind: Any) -> tuple:  # noqa: N802
    """A copy on the default stream that the host waits for."""
    common.copy(dst, src, count, 0, "cudaMemcpy")
    common.synchronize(0, "cudaMemcpy")
    return _SUCCESS


def cudaMemsetAsync(devPtr: Any, value: int, count: int, stream: Any) -> tuple:  # noqa: N802, N803
    common.fill(devPtr, value, 1, count, stream, "cudaMemsetAsync")
    return _SUCCESS


def __getattr__(name: str) -> Any:
    raise common.missing("cuda.bindings.runtime", name, ("cuda",))
