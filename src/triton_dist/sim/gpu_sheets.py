"""What ``torch.cuda`` and the runtime API say of the pretended GPU."""

from __future__ import annotations

from dataclasses import dataclass

from .gpus import GPU


@dataclass(frozen=True)
class _Sheet:
    """What the data sheet says of a model beyond what the simulator's machine needs: bytes, kHz and bits."""

    title: str
    memory: int
    l2_cache: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_width: int


_SHEETS = {
    "a100": _Sheet("NVIDIA A100-SXM4-80GB", 80 << 30, 40 << 20, 1_410_000, 1_593_000, 5120),
    "h100": _Sheet("NVIDIA H100 80GB HBM3", 80 << 30, 50 << 20, 1_980_000, 2_619_000, 5120),
    "h200": _Sheet("NVIDIA H200", 141 << 30, 50 << 20, 1_980_000, 3_201_000, 6144),
    "b200": _Sheet("NVIDIA B200", 180 << 30, 126 << 20, 1_965_000, 3_996_000, 8192),
}


@dataclass(frozen=True)
class DeviceProperties:
    """The fields of torch's ``_CudaDeviceProperties``, with its names and units."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_multiprocessor: int = 233_472
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0

    @property
    def gcnArchName(self) -> str:  # noqa: N802  (torch's name)
        """The name again, as torch has it where the GPU is not AMD's."""
        return self.name


def clock_khz(gpu: GPU) -> int:
    """Greatest clock of the SMs; a model that is not in the table counts as an H100 here."""
    return _SHEETS.get(gpu.name, _SHEETS["h100"]).clock_khz


def device_properties(gpu: GPU) -> DeviceProperties:
    """What ``torch.cuda.get_device_properties`` says of a GPU model."""
    sheet = _SHEETS.get(gpu.name, _SHEETS["h100"])
    major, minor = divmod(gpu.capability, 10)
    return DeviceProperties(
        name=sheet.title if gpu.name in _SHEETS else gpu.name,
        major=major,
        minor=minor,
        total_memory=sheet.memory,
        multi_processor_count=gpu.sm_count,
        shared_memory_per_block_optin=gpu.max_shared_memory,
        L2_cache_size=sheet.l2_cache,
        clock_rate=sheet.clock_khz,
        memory_clock_rate=sheet.memory_clock_khz,
        memory_bus_width=sheet.memory_bus_width,
    )
