"""Shared memory that blocks declare: where variables lie, and loads, stores and atomics there.

Each block that declares a variable has one of its own, as on a GPU; another block gets at it by its address. What a variable holds before
it is written is not defined: all bits set. Who wrote and who read a byte since the last barrier is kept by ``ops.block_memory``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import MisalignedAccessError, OutOfBoundsError
from ..ops.block_memory import BlockMemory
from .block_state import state_of
from .form import Read, contents
from .syntax import Address, Instruction, Operand, Variable

if TYPE_CHECKING:
    from ..program import Program
    from .frame import Frame

_UNDEFINED = 0xFF
_WHAT = "a byte of shared memory"


def place_of(frame: Frame, variable: Variable) -> int:
    """The address of a variable of the block that runs, which comes into being with the first use."""
    context = frame.context
    memory = memory_of(context)
    key = f"asm {frame.site} {frame.copy} {variable.number}"
    if key not in memory.places:
        begin = memory.place(key, variable.size, variable.align)
        memory.data[begin : begin + variable.size] = _UNDEFINED
        state_of(context).variables.append((begin, begin + variable.size, variable.name))
    return memory.places[key]


def memory_of(context: Program) -> BlockMemory:
    """The shared memory of a program, made when it is first asked for."""
    if context.block_memory is None:
        context.block_memory = BlockMemory()
    return context.block_memory


def shared_address(instruction: Instruction, operand: Operand) -> Read:
    """Addresses in shared memory that an operand ``[a + b]`` stands for: of 32 or 64 bits, or a variable's name."""
    if not isinstance(operand, Address):
        raise instruction.wrong("an address, in brackets, is taken here")
    base, offset = operand.base, np.int64(operand.offset)
    if isinstance(base, Variable):
        return lambda frame: np.array([place_of(frame, base)], np.int64) + offset
    if base.width not in (32, 64):
        raise instruction.wrong(f"{base.name} has {base.width} bits, but an address in shared memory has 32 or 64")
    read = contents(instruction, base, base.width)
    return lambda frame: read(frame).astype(np.int64) + offset


def checked_places(frame: Frame, addresses: np.ndarray, lanes: np.ndarray, size: int, count: int, what: str) -> np.ndarray:
    """Addresses of all elements, a row for each lane. Raises OutOfBoundsError, MisalignedAccessError."""
    starts = np.broadcast_to(addresses, (frame.lanes,))[lanes].astype(np.int64)
    width = size * count
    for start in np.unique(starts).tolist():
        check_place(frame, start, width, width if width & (width - 1) == 0 else size, what)
    return starts[:, None] + np.arange(count, dtype=np.int64) * size


def check_place(frame: Frame, start: int, size: int, alignment: int, what: str) -> None:
    """Bounds and alignment of bytes in shared memory. Raises OutOfBoundsError, MisalignedAccessError."""
    variables = state_of(frame.context).variables
    inside = next((one for one in variables if one[0] <= start < one[1]), None)
    if inside is None or start + size > inside[1]:
        known = ", ".join(f"{name} ({end - begin} bytes at {begin:#x})" for begin, end, name in variables) or "none"
        raise OutOfBoundsError(
            f"{what} of {size} bytes at {start:#x} of shared memory lies outside of all variables that blocks have declared: {known}"
        )
    if start % alignment:
        begin, _, name = inside
        raise MisalignedAccessError(
            f"{what} of {size} bytes at {name} + {start - begin} in shared memory: the address is not a multiple of {alignment}"
        )


def load_shared(frame: Frame, places: np.ndarray, lanes: np.ndarray, size: int, weak: bool) -> np.ndarray:
    """The bits at places, as unsigned integers. weak: whether a barrier has to order it."""
    memory = memory_of(frame.context)
    if weak and frame.known:
        memory.note_read(*_bytes(frame, places, lanes, size), _WHAT)
    return memory.data.view(f"u{size}")[places // size]


def store_shared(frame: Frame, places: np.ndarray, lanes: np.ndarray, values: np.ndarray, weak: bool) -> None:
    """Write bits; where several lanes write one place, the last one's stay."""
    memory, size = memory_of(frame.context), values.dtype.itemsize
    values = np.broadcast_to(values, places.shape)
    view = memory.data.view(values.dtype)
    view[places // size] = values
    if weak and frame.known:
        octets, threads = _bytes(frame, places, lanes, size)
        memory.note_store(octets, threads, memory.data[octets] == np.ascontiguousarray(values).view(np.uint8).reshape(-1), _WHAT)
    changed(frame.context)


def changed(context: Program) -> None:
    """A thread that spins on shared memory has to look again."""
    context.memory.version += 1


def _bytes(frame: Frame, places: np.ndarray, lanes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    octets = (places[:, :, None] + np.arange(size)).reshape(-1)
    return octets, np.repeat(frame.threads[lanes], places.shape[1] * size)
