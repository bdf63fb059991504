"""The few calls of the CUDA driver that the runtime needs, with their errors named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import AddressInUseError, HeapFullError, NotInitializedError, TritonDistError
from ..process_maps import who_holds

_OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""


class CudaDriverError(TritonDistError, RuntimeError):
    """A call of the CUDA driver failed; the text has its name and what the driver says. out_of_memory: whether that was the reason."""

    out_of_memory = False


def bindings() -> Any:
    """cuda-bindings' driver module. Raises NotInitializedError where the package is missing."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise NotInitializedError("ranks on GPUs need the package cuda-bindings: pip install triton-dist[cuda]") from None
    return driver


def call(name: str, *arguments: Any) -> Any:
    """``driver.name(*arguments)``: its result, or CudaDriverError. Raises NotInitializedError where there is no driver."""
    driver = bindings()
    try:
        error, *results = getattr(driver, name)(*arguments)
    except RuntimeError as missing:  # cuda-bindings looks for libcuda, and for each function in it, at the first call
        raise NotInitializedError(
            f"{name} of NVIDIA's driver (libcuda), which ranks on GPUs need, is not on this machine: {missing}"
        ) from None
    if int(error) != 0:
        text = driver.cuGetErrorString(error)[1]
        failed = CudaDriverError(f"{name}: {text.decode() if isinstance(text, bytes) else text} ({error})")
        failed.out_of_memory = int(error) == _OUT_OF_MEMORY
        raise failed
    return results[0] if len(results) == 1 else tuple(results)


@contextmanager
def allowed_while_capturing() -> Iterator[None]:
    """This thread may call what a capture elsewhere in the process forbids, and that puts nothing on a stream that could be captured."""
    relaxed = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call("cuThreadExchangeStreamCaptureMode", relaxed)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", before)


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
    try:
        return call("cuMemCreate", size, allocation_properties(device), 0)
    except CudaDriverError as error:
        if not error.out_of_memory:
            raise
        free, whole = call("cuMemGetInfo")
        raise HeapFullError(
            f"the {describe_device(device)} has no {size} bytes free for the symmetric heap, but {free} of {whole}; "
            "ask for a smaller heap_size (initialize) or TRITON_DIST_HEAP_SIZE, or free memory (torch.cuda.empty_cache())"
        ) from error


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

    The driver takes the address as a hint only, and below half a gigabyte it ignores it: reserve whole slots. A range in which the driver
    once met memory of somebody else it may never give out again in that process, though the memory be gone.
    """
    reason = ""
    try:
        got = int(call("cuMemAddressReserve", size, 0, address, 0))
        if got == address:
            return
        call("cuMemAddressFree", got, size)
    except CudaDriverError as error:
        reason = f" ({error})"
    raise AddressInUseError(
        f"the symmetric heap needs addresses {address:#x} to {address + size:#x}, but {who_holds(address, address + size)} is there"
        f"{reason}; initialize triton_dist before other libraries reserve address space, and in a fresh process: this one may not be given "
        "them again"
    )


def set_access(address: int, size: int, device: int) -> None:
    """Let ``device`` read and write mapped memory."""
    driver = bindings()
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call("cuMemSetAccess", address, size, [access], 1)


def register_host_memory(address: int, size: int) -> int:
    """Let kernels of every GPU context of this process reach host memory; returns the address they use."""
    portable, mapped = 1, 2
    call("cuMemHostRegister", address, size, portable | mapped)
    try:
        return int(call("cuMemHostGetDevicePointer", address, 0))
    except BaseException:
        unregister_host_memory(address)
        raise


def unregister_host_memory(address: int) -> None:
    """Undo ``register_host_memory``; no kernel may use the memory any more."""
    call("cuMemHostUnregister", address)


def describe_device(device: int) -> str:
    """A GPU for messages: its number in this process and its place on the host's bus."""
    bus = call("cuDeviceGetPCIBusId", 32, call("cuDeviceGet", device))
    return f"GPU {device} at PCI {bytes(bus).split(bytes(1))[0].decode()}"


def retain_allocation(address: int) -> Any:
    """The memory mapped at an address, with a reference of our own. Raises CudaDriverError for memory that was not mapped by cuMemMap."""
    return call("cuMemRetainAllocationHandle", address)


def mapping_of(address: int) -> tuple[int, int]:
    """Where the mapping (or the allocation) that an address lies in starts, and its bytes."""
    base, size = call("cuMemGetAddressRange", address)
    return int(base), int(size)


def device_of_allocation(handle: Any) -> int | None:
    """The GPU whose memory it is, as a number; None if it is not a GPU's."""
    location = call("cuMemGetAllocationPropertiesFromHandle", handle).location
    return int(location.id) if location.type == bindings().CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE else None
