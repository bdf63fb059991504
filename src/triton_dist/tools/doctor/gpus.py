"""The GPUs that this process sees, and what each pair of them can do, as the CUDA driver tells it. Nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from .finding import Finding, Status, by_pair

GPUS = "GPUs"
PEERS = "peers"
LEAST_CAPABILITY = (8, 0)


class Driver(Protocol):
    """What is asked of ``triton_dist.runtime.cuda.driver``; tests give another one."""

    def bindings(self) -> Any: ...

    def call(self, name: str, *arguments: Any) -> Any: ...


@dataclass(frozen=True)
class GPU:
    """One GPU as this process numbers it. memory, free: bytes; free is None where it is not known."""

    index: int
    name: str
    capability: tuple[int, int]
    sms: int
    memory: int
    free: int | None
    bus: str


def list_gpus(driver: Driver, free_memory: Callable[[int], int | None]) -> list[GPU]:
    """All GPUs that CUDA_VISIBLE_DEVICES lets this process see."""
    driver.call("cuInit", 0)
    attributes = driver.bindings().CUdevice_attribute
    gpus = []
    for index in range(driver.call("cuDeviceGetCount")):
        device = driver.call("cuDeviceGet", index)
        ask = lambda attribute, device=device: int(driver.call("cuDeviceGetAttribute", attribute, device))  # noqa: E731
        capability = (
            ask(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            ask(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        gpus.append(
            GPU(
                index=index,
                name=_text(driver.call("cuDeviceGetName", 256, device)),
                capability=capability,
                sms=ask(attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                memory=int(driver.call("cuDeviceTotalMem", device)),
                free=free_memory(index),
                bus=_text(driver.call("cuDeviceGetPCIBusId", 32, device)),
            )
        )
    return gpus


def describe_gpu(gpu: GPU) -> Finding:
    """One GPU's line; a warning where it is older than what the kernels are tested for, or its memory is nearly full."""
    free = "unknown" if gpu.free is None else f"{gpu.free / 2**30:.1f} GiB free"
    value = f"{gpu.name}, sm_{gpu.capability[0]}{gpu.capability[1]}, {gpu.sms} SMs, {gpu.memory / 2**30:.1f} GiB, {free}, {gpu.bus}"
    status, advice = Status.OK, ""
    if gpu.capability < LEAST_CAPABILITY:
        status, advice = Status.WARN, "kernels are tested from sm_80 (A100) on"
    elif gpu.free is not None and gpu.free < 2 << 30:
        status, advice = (
            Status.WARN,
            "less than 2 GiB are free: end other processes, or set TRITON_DIST_HEAP_SIZE below the 1 GiB that is the default",
        )
    return Finding(GPUS, f"GPU {gpu.index}", status, value, advice, asdict(gpu))


def device_attributes(driver: Driver, count: int) -> list[Finding]:
    """What every GPU has to offer for the symmetric heap and for streams' signals; multicast is asked for only, never used here."""
    names = driver.bindings().CUdevice_attribute
    wanted = (
        ("virtual memory", names.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, Status.MISSING, "the symmetric heap needs it"),
        (
            "memory handles as file descriptors",
            names.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            Status.MISSING,
            "processes share their heaps by it; Linux's driver has it, some virtual GPUs do not",
        ),
        ("64-bit signals of streams", names.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, Status.WARN, "use 32-bit signal words"),
        (
            "multicast",
            names.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
            Status.WARN,
            "only multimem kernels need it (NVSwitch, Hopper or newer)",
        ),
    )
    return [_attribute(driver, count, *row) for row in wanted]


def _attribute(driver: Driver, count: int, name: str, attribute: Any, otherwise: Status, advice: str) -> Finding:
    without = [
        index for index in range(count) if not int(driver.call("cuDeviceGetAttribute", attribute, driver.call("cuDeviceGet", index)))
    ]
    if without:
        return Finding(GPUS, name, otherwise, f"not on GPUs {without}", advice, {"without": without})
    return Finding(GPUS, name, Status.OK, "on every GPU")


def peer_matrices(driver: Driver, count: int) -> list[Finding]:
    """Access to a peer's memory, and atomics on it, for each ordered pair."""
    names = driver.bindings().CUdevice_P2PAttribute
    access = peer_matrix(driver, count, names.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)
    atomics = peer_matrix(driver, count, names.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
    return [
        judge_matrix("peer access", access, Status.MISSING, "look at nvidia-smi topo -p2p r; IOMMU, ACS or a container may block it"),
        judge_matrix("peer atomics", atomics, Status.WARN, "notify with sig_op='set' works without; 'add' on a peer and atomics do not"),
    ]


def peer_matrix(driver: Driver, count: int, attribute: Any) -> list[list[bool]]:
    """Whether GPU i has ``attribute`` towards GPU j; true on the diagonal."""
    devices = [driver.call("cuDeviceGet", index) for index in range(count)]
    return [
        [i == j or bool(driver.call("cuDeviceGetP2PAttribute", attribute, devices[i], devices[j])) for j in range(count)]
        for i in range(count)
    ]


def judge_matrix(name: str, matrix: Sequence[Sequence[bool]], otherwise: Status, advice: str) -> Finding:
    """ok if all pairs have it, else ``otherwise`` with the pairs that do not."""
    if len(matrix) < 2:
        return Finding(PEERS, name, Status.NOT_TESTED, "there is one GPU")
    without = [(i, j) for i, row in enumerate(matrix) for j, has in enumerate(row) if not has]
    data = by_pair((i, j, has) for i, row in enumerate(matrix) for j, has in enumerate(row) if i != j)
    if not without:
        return Finding(PEERS, name, Status.OK, f"between all {len(matrix)} GPUs", data=data)
    pairs = ", ".join(f"{i} to {j}" for i, j in without[:8]) + (", ..." if len(without) > 8 else "")
    return Finding(PEERS, name, otherwise, f"not from GPU {pairs}", advice, data)


def _text(value: Any) -> str:
    """A C string as the driver gives it."""
    return value.split(b"\0")[0].decode(errors="replace").strip() if isinstance(value, bytes) else str(value).strip()
