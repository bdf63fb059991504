"""Stands for the CUDA driver and for NVML: machines of a few GPUs, described by a table."""

from __future__ import annotations

from types import SimpleNamespace

from triton_dist.runtime.cuda.driver import CudaDriverError


class _Names:
    """Any attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


class FakeDriver:
    """``count`` GPUs that have every attribute and reach each other, but for what is taken away.

    lacks: {attribute name: GPUs without it}. apart: ordered pairs without a peer attribute, by the attribute's name.
    """

    def __init__(self, count: int, lacks: dict[str, set[int]] | None = None, apart: dict[str, set[tuple[int, int]]] | None = None) -> None:
        self.count, self.lacks, self.apart = count, lacks or {}, apart or {}
        self.calls: list[str] = []

    def bindings(self) -> SimpleNamespace:
        return SimpleNamespace(CUdevice_attribute=_Names(), CUdevice_P2PAttribute=_Names())

    def call(self, name: str, *arguments):
        self.calls.append(name)
        return getattr(self, name)(*arguments)

    def cuInit(self, flags):
        return ()

    def cuDeviceGetCount(self):
        return self.count

    def cuDeviceGet(self, index):
        if index >= self.count:
            raise CudaDriverError("cuDeviceGet: invalid device ordinal")
        return index

    def cuDeviceGetName(self, length, device):
        return b"Test GPU\0\0\0"

    def cuDeviceTotalMem(self, device):
        return 80 << 30

    def cuDeviceGetPCIBusId(self, length, device):
        return f"0000:{device:02x}:00.0\0".encode()

    def cuDeviceGetAttribute(self, attribute, device):
        values = {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132}
        short = attribute.removeprefix("CU_DEVICE_ATTRIBUTE_")
        return values.get(short, int(device not in self.lacks.get(short, ())))

    def cuDeviceGetP2PAttribute(self, attribute, source, destination):
        short = attribute.removeprefix("CU_DEVICE_P2P_ATTRIBUTE_")
        return int((source, destination) not in self.apart.get(short, ()))


class FakeNvml:
    """NVML for GPUs with these numbers of active links; pairs in ``far`` have no NVLink and this common ancestor."""

    class NVMLError(Exception):
        """As NVML's."""

    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def __init__(self, links: list[int], far: dict[tuple[int, int], int] | None = None) -> None:
        self.links, self.far = links, far or {}
        self.open = 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByPciBusId(self, bus):
        return int(bus.split(":")[1], 16)

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= self.links[handle]:
            raise self.NVMLError("not supported")
        return 1

    def nvmlDeviceGetP2PStatus(self, one, other, index):
        return 5 if (one, other) in self.far else 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        ancestor = self.far[one, other]
        if ancestor < 0:
            raise self.NVMLError("unknown")
        return ancestor
