"""Stream operations on plain addresses and handles, which the driver's and the runtime's names share."""

from __future__ import annotations

import ctypes
from typing import Any

from ....errors import InvalidArgumentError
from ....runtime.foreign_streams import stream_handle
from ...cost_model import AT_ONCE
from ...requests import Steps
from ...work import Copy, Task, WaitValue, Work, WriteValue
from ..streams import handle_of, here


class StreamHandle(int):
    """The handle of a stream, which is a number here."""

    def __new__(cls, stream: Any = 0) -> StreamHandle:
        return super().__new__(cls, stream_handle(stream, cls.__name__))


class Fill(Work):
    """Set ``count`` elements of ``width`` bytes at ``address`` to ``value``."""

    def __init__(self, address: int, value: int, width: int, count: int) -> None:
        super().__init__(f"memset of {width * count} bytes")
        self.address, self.count, self.width = address, count, width
        self.pattern = (value & (1 << 8 * width) - 1).to_bytes(width, "little")

    def execute(self, task: Task) -> Steps:
        yield
        size = self.width * self.count
        if size:
            task.memory.check(self.address, self.address + size, self.width, "memset of")
            ctypes.memmove(self.address, self.pattern * self.count, size)
            task.memory.changed(self.address, self.address + size, task)
            task.clock = task.machine.computed(task.rank, task.clock, AT_ONCE)


def address(pointer: Any) -> int:
    """A device pointer as cuda-bindings takes it: an integer or something that converts to one."""
    try:
        return int(pointer)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{pointer!r} is not a device pointer; pass tensor.data_ptr()") from None


def copy(destination: Any, source: Any, size: int, stream: Any, what: str) -> None:
    """Queue a copy of ``size`` bytes by the copy engine."""
    here(what).submit(Copy(address(destination), address(source), int(size), what), stream=handle_of(stream, what))


def fill(destination: Any, value: int, width: int, count: int, stream: Any, what: str) -> None:
    """Queue a fill of ``count`` elements of ``width`` bytes."""
    here(what).submit(Fill(address(destination), int(value), width, int(count)), stream=handle_of(stream, what))


def write_value(stream: Any, pointer: Any, value: int, bits: int, what: str) -> None:
    """Queue a store into a signal word."""
    here(what).submit(WriteValue(address(pointer), signed(value, bits), bits), stream=handle_of(stream, what))


def wait_value(stream: Any, pointer: Any, value: int, compare: str, bits: int, what: str) -> None:
    """Queue a wait for a signal word."""
    here(what).submit(WaitValue(address(pointer), signed(value, bits), compare, bits), stream=handle_of(stream, what))


def signed(value: Any, bits: int) -> int:
    """The word as a signed number: the machine's words are signed, the driver's are not."""
    word = int(value) & (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word


def synchronize(stream: Any, what: str) -> None:
    """Make the host wait for one stream."""
    here(what).synchronize(handle_of(stream, what), what)
