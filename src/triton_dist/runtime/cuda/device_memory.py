"""torch tensors over mapped memory, and how we learn that the last one of them is gone."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import torch


class _DeviceMemory:
    """Device memory as torch takes it over. The storage made from it keeps this object alive, and so does each view of that storage."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}


def tensor_over(address: int, nbytes: int, device: torch.device, dropped: Callable[[], Any] | None = None) -> torch.Tensor:
    """A uint8 tensor of ``nbytes`` (at least 1) over mapped memory of a GPU, or of the host for the device "cpu".

    dropped: called once nothing refers to the storage any more: no view, no ``as_strided``, no graph of autograd. It may be called from
    anywhere, in any thread, and is not called when the interpreter ends.
    """
    on_host = device.type == "cpu"
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address) if on_host else _DeviceMemory(address, nbytes)
    if dropped is not None:
        weakref.finalize(memory, dropped).atexit = False
    if on_host:
        return torch.frombuffer(memory, dtype=torch.uint8)
    return torch.as_tensor(memory, device=device)
