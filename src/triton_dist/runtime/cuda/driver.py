"""The few calls of the CUDA driver that the runtime needs, with their errors named."""

from __future__ import annotations

from typing import Any

from ...errors import AddressInUseError, HeapFullError, NotInitializedError, TritonDistError


class CudaDriverError(TritonDistError, RuntimeError):
    """A call of the CUDA driver failed; the text has its name and what the driver says."""


def bindings() -> Any:
    """cuda-bindings' driver module. Raises NotInitializedError where the package is missing."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise NotInitializedError("ranks on GPUs need the package cuda-bindings: pip install triton-dist[cuda]") from None
    return driver


def call(name: str, *arguments: Any) -> Any:
    """``driver.name(*arguments)``: its result, or CudaDriverError."""
    driver = bindings()
    error, *results = getattr(driver, name)(*arguments)
    if int(error) != 0:
        text = driver.cuGetErrorString(error)[1]
        raise CudaDriverError(f"{name}: {text.decode() if isinstance(text, bytes) else text} ({error})")
    return results[0] if len(results) == 1 else tuple(results)


def allocation_properties(device: int) -> Any:
    """Memory of one GPU that can be handed to other processes as a file descriptor."""
    driver = bindings()
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    properties.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


def granularity(device: int) -> int:
    """Bytes that allocations of a GPU are multiples of."""
    recommended = bindings().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
    return int(call("cuMemGetAllocationGranularity", allocation_properties(device), recommended))


def create(device: int, size: int) -> Any:
    """Allocate physical memory. Raises HeapFullError if the GPU has not that much free."""
    driver = bindings()
    error, handle = driver.cuMemCreate(size, allocation_properties(device), 0)
    if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise HeapFullError(f"GPU {device} has no {size} bytes free for the symmetric heap; ask for a smaller heap_size, or free memory")
    if int(error) != 0:
        raise CudaDriverError(f"cuMemCreate of {size} bytes on GPU {device}: {driver.cuGetErrorString(error)[1]!r}")
    return handle


def export_descriptor(handle: Any) -> int:
    """A file descriptor for memory that another process can import."""
    kind = bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return int(call("cuMemExportToShareableHandle", handle, kind, 0))


def import_descriptor(descriptor: int) -> Any:
    """The memory behind another process's file descriptor."""
    kind = bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return call("cuMemImportFromShareableHandle", descriptor, kind)


def reserve(address: int, size: int) -> None:
    """Reserve exactly this range of addresses. Raises AddressInUseError.

    The driver takes the address as a hint only, and below half a gigabyte it ignores it: reserve whole slots.
    """
    got = int(call("cuMemAddressReserve", size, 0, address, 0))
    if got != address:
        call("cuMemAddressFree", got, size)
        raise AddressInUseError(
            f"the address {address:#x} of the symmetric heap can't be had: something else in this process is there; "
            "initialize triton_dist before other libraries reserve address space, or in a fresh process"
        )


def map_memory(address: int, size: int, handle: Any, device: int) -> None:
    """Map memory at an address that is reserved, readable and writable by ``device``."""
    driver = bindings()
    call("cuMemMap", address, size, 0, handle, 0)
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call("cuMemSetAccess", address, size, [access], 1)


def register_host_memory(address: int, size: int) -> int:
    """Let kernels of every GPU context of this process reach host memory; returns the address they use."""
    portable, mapped = 1, 2
    call("cuMemHostRegister", address, size, portable | mapped)
    return int(call("cuMemHostGetDevicePointer", address, 0))


def unregister_host_memory(address: int) -> None:
    """Undo ``register_host_memory``; no kernel may use the memory any more."""
    call("cuMemHostUnregister", address)
