"""Stream operations on plain addresses and handles, which the driver's and the runtime's names share."""

from __future__ import annotations

import ctypes
import enum
import operator
from typing import Any

from ....errors import InvalidArgumentError, MissingNameError
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


def number(value: Any, name: str, what: str) -> int:
    """A number of bytes, elements or a value, as cuda-bindings takes it. Raises InvalidArgumentError."""
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{what}: {name} must be an integer, not {value!r}") from None


def flags_of(flags: Any, known: type[enum.IntFlag], what: str) -> Any:
    """``flags`` as the driver's. Raises InvalidArgumentError for what is none of them."""
    bits = number(flags, "flags", what)
    if bits & ~sum(known):
        raise InvalidArgumentError(f"{what}: flags={flags!r} are not of {known.__name__}: {[each.name for each in known]}")
    return known(bits)


def word_address(pointer: Any, bits: int, what: str) -> int:
    """The address of a signal word. Raises InvalidArgumentError where the driver returns CUDA_ERROR_INVALID_VALUE."""
    place = address(pointer)
    if place % (bits // 8):
        raise InvalidArgumentError(
            f"{what}: a word of {bits} bits can't lie at {place:#x}, which is no multiple of {bits // 8} (CUDA_ERROR_INVALID_VALUE)"
        )
    return place


def copy(destination: Any, source: Any, size: int, stream: Any, what: str) -> None:
    """Queue a copy of ``size`` bytes by the copy engine."""
    here(what).submit(
        Copy(address(destination), address(source), number(size, "the number of bytes", what), what), stream=handle_of(stream, what)
    )


def fill(destination: Any, value: int, width: int, count: int, stream: Any, what: str) -> None:
    """Queue a fill of ``count`` elements of ``width`` bytes."""
    work = Fill(address(destination), number(value, "the value", what), width, number(count, "the number of elements", what))
    here(what).submit(work, stream=handle_of(stream, what))


def write_value(stream: Any, pointer: Any, value: int, bits: int, what: str) -> None:
    """Queue a store into a signal word."""
    work = WriteValue(word_address(pointer, bits, what), signed(number(value, "the value", what), bits), bits)
    here(what).submit(work, stream=handle_of(stream, what))


def wait_value(stream: Any, pointer: Any, value: int, compare: str, bits: int, what: str) -> None:
    """Queue a wait for a signal word."""
    work = WaitValue(word_address(pointer, bits, what), signed(number(value, "the value", what), bits), compare, bits)
    here(what).submit(work, stream=handle_of(stream, what))


def signed(value: int, bits: int) -> int:
    """The word as a signed number: the machine's words are signed, the driver's are not."""
    word = value & (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word


def missing(module: str, name: str, prefixes: tuple[str, ...]) -> AttributeError:
    """What ``__getattr__`` of a module raises: a name of the driver is refused as this package does."""
    if not name.startswith(prefixes):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return MissingNameError(f"{module}.{name}: the simulator has not this function or type; it has streams, copies, fills and queries")


def error_name(error: Any, known: type[enum.IntEnum], what: str) -> str:
    """The name of an error code. Raises InvalidArgumentError for one that is never returned here."""
    try:
        return known(error).name
    except ValueError:
        raise InvalidArgumentError(f"{what}: {error!r} is not an error of the simulator's: {[each.name for each in known]}") from None


def synchronize(stream: Any, what: str) -> None:
    """Make the host wait for one stream."""
    here(what).synchronize(handle_of(stream, what), what)
