"""What host code asks about its GPU, answered by the driver on GPUs and by the pretended one in the simulator.

With neither, every function raises NoDeviceError.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .errors import InvalidArgumentError, NoDeviceError
from .runtime import world

if TYPE_CHECKING:
    from .sim.gpus import GPU


def pretended_gpu() -> GPU | None:
    """The GPU model of the simulator, or None where there is a real one or none at all."""
    machine = getattr(world.current_world(), "machine", None)
    return None if machine is None else machine.gpu


def is_cuda() -> bool:
    """Whether kernels see a CUDA device; the simulator pretends to be one."""
    return world.is_initialized() or torch.cuda.is_available() and torch.version.hip is None


def is_hip() -> bool:
    """Whether kernels see an AMD device."""
    return not world.is_initialized() and torch.cuda.is_available() and torch.version.hip is not None


def has_tma() -> bool:
    """Whether the (pretended) device has the tensor memory accelerator: compute capability 9.0 and up. False with no GPU."""
    gpu = pretended_gpu()
    if gpu is not None:
        return gpu.capability >= 90
    return is_cuda() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


def is_nvshmem_multimem_supported() -> bool:
    """Whether multicast memory can be used: on the simulator if the pretended GPU has it (compute capability 9.0 and up); else never, since
    the heap here maps none.
    """
    gpu = pretended_gpu()
    return gpu is not None and gpu.capability >= 90


def has_fullmesh_nvlink() -> bool:
    """Whether every pair of GPUs of this node reaches each other directly; so it is in the simulator."""
    return _every_pair("has_fullmesh_nvlink", "access")


def supports_p2p_native_atomic() -> bool:
    """Whether atomics on a peer's memory work for every pair of GPUs of this node; they do in the simulator."""
    return _every_pair("supports_p2p_native_atomic", "atomics")


def _every_pair(what: str, capability: str) -> bool:
    if pretended_gpu() is not None:
        return True
    _device(what, 0)
    return _all_pairs(capability)


def _all_pairs(what: str) -> bool:
    """Whether every GPU that this process sees has peer "access" to, or peer "atomics" on, every other one."""
    from .runtime.cuda import driver

    attributes = driver.bindings().CUdevice_P2PAttribute
    attribute = {
        "access": attributes.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
        "atomics": attributes.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
    }[what]
    devices = [driver.call("cuDeviceGet", index) for index in range(torch.cuda.device_count())]
    pairs = [(one, other) for one in devices for other in devices if int(one) != int(other)]
    return all(driver.call("cuDeviceGetP2PAttribute", attribute, one, other) for one, other in pairs)


def get_numa_node(device_id: int | None = None) -> int:
    """NUMA node of the host that GPU ``device_id`` (default: the current one) hangs on; 0 where there is one only, and in the simulator."""
    if _pretends("get_numa_node", device_id):
        return 0
    from .runtime.cuda import nvml

    path = Path("/sys/bus/pci/devices") / nvml.pci_bus_id(_device("get_numa_node", device_id)) / "numa_node"
    try:
        return max(0, int(path.read_text()))
    except (OSError, ValueError):
        return 0


def get_max_gpu_clock_rate_in_khz(device_id: int | None = None) -> int:
    """The greatest clock of the SMs of GPU ``device_id`` (default: the current one), kHz."""
    if (gpu := _pretends("get_max_gpu_clock_rate_in_khz", device_id)) is not None:
        from .sim.gpu_sheets import clock_khz

        return clock_khz(gpu)
    from .runtime.cuda import nvml

    return nvml.clock_khz(_device("get_max_gpu_clock_rate_in_khz", device_id), maximum=True)


def get_current_gpu_clock_rate_in_khz(device_id: int | None = None) -> int:
    """The clock of the SMs now, kHz; in the simulator the greatest one."""
    if _pretends("get_current_gpu_clock_rate_in_khz", device_id) is not None:
        return get_max_gpu_clock_rate_in_khz(device_id)
    from .runtime.cuda import nvml

    return nvml.clock_khz(_device("get_current_gpu_clock_rate_in_khz", device_id), maximum=False)


def get_device_max_shared_memory_size(device_id: int | None = None) -> int:
    """Bytes of shared memory that one block may use on the (pretended) device."""
    if (gpu := _pretends("get_device_max_shared_memory_size", device_id)) is not None:
        return gpu.max_shared_memory
    properties: Any = torch.cuda.get_device_properties(_device("get_device_max_shared_memory_size", device_id))
    return properties.shared_memory_per_block_optin


def get_device_property(device_id: int | None = None) -> Any:
    """What ``torch.cuda.get_device_properties`` says of GPU ``device_id`` (default: the current one)."""
    if (gpu := _pretends("get_device_property", device_id)) is not None:
        from .sim.gpu_sheets import device_properties

        return device_properties(gpu)
    return torch.cuda.get_device_properties(_device("get_device_property", device_id))


@functools.cache
def get_cpu_info_linux() -> str | None:
    """The host processor's model name; None where the kernel does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def torch_stream_max_priority() -> int:
    """The greatest priority that a stream can have (the smallest number)."""
    return -1 if pretended_gpu() is None and not torch.cuda.is_available() else -5


def _pretends(what: str, device_id: int | None) -> GPU | None:
    """The simulator's GPU, if this is a simulated rank and ``device_id`` one of its node."""
    gpu = pretended_gpu()
    if gpu is not None and device_id is not None and not 0 <= device_id < world.local_world_size():
        raise InvalidArgumentError(f"{what}({device_id}): this node has {world.local_world_size()} GPUs, one a rank")
    return gpu


def _device(what: str, device_id: int | None) -> int:
    """torch's index of a real GPU. Raises NoDeviceError, InvalidArgumentError."""
    if not torch.cuda.is_available():
        raise NoDeviceError(
            f"{what}: torch sees no GPU here; call it in a function that triton_dist.simulate runs, or under triton-dist run, to ask the "
            "simulator's"
        )
    count = torch.cuda.device_count()
    if device_id is not None and not 0 <= device_id < count:
        raise InvalidArgumentError(f"{what}({device_id}): this process sees {count} GPUs")
    return torch.cuda.current_device() if device_id is None else device_id
