"""NVML by ctypes: clocks and places of GPUs, from the library that comes with the driver."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from ...errors import NoDeviceError

SM_CLOCK = 1
"""NVML's number of the clock domain of the SMs."""


class _PciInfo(ctypes.Structure):
    """``nvmlPciInfo_t`` of version 3."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pci_device_id", "pci_subsystem_id")),
        ("bus_id", ctypes.c_char * 32),
    ]


@functools.cache
def library() -> Any:
    """The loaded and started library. Raises NoDeviceError where there is none."""
    try:
        found = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise NoDeviceError(f"NVML can't be loaded ({error}); it comes with NVIDIA's driver") from None
    _check(found, found.nvmlInit_v2(), "nvmlInit_v2")
    return found


def _check(nvml: Any, code: int, name: str) -> None:
    if code != 0:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        raise NoDeviceError(f"{name}: {nvml.nvmlErrorString(code).decode()} ({code})")


def _handle(device_id: int) -> Any:
    """NVML's handle of torch's GPU ``device_id``, found by its UUID: the two libraries number GPUs differently."""
    nvml, handle = library(), ctypes.c_void_p()
    uuid = f"GPU-{torch.cuda.get_device_properties(device_id).uuid}".encode()
    _check(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)), "nvmlDeviceGetHandleByUUID")
    return handle


def clock_khz(device_id: int, *, maximum: bool) -> int:
    """The clock of the SMs now, or the greatest one."""
    nvml, megahertz = library(), ctypes.c_uint()
    name = "nvmlDeviceGetMaxClockInfo" if maximum else "nvmlDeviceGetClockInfo"
    _check(nvml, getattr(nvml, name)(_handle(device_id), SM_CLOCK, ctypes.byref(megahertz)), name)
    return megahertz.value * 1000


def pci_bus_id(device_id: int) -> str:
    """The PCI address as the files of the kernel spell it, such as 0000:18:00.0."""
    nvml, info = library(), _PciInfo()
    _check(nvml, nvml.nvmlDeviceGetPciInfo_v3(_handle(device_id), ctypes.byref(info)), "nvmlDeviceGetPciInfo_v3")
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
