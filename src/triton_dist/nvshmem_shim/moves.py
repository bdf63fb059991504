"""Puts, gets and signals of the host in stream order, by address, on simulated ranks and on GPUs."""

from __future__ import annotations

import operator
from typing import Any

import torch
import triton
import triton.language as tl

from ..errors import InvalidArgumentError, NotSymmetricError
from ..runtime import streams
from ..runtime.address_map import STRIDE, rank_of
from ..runtime.foreign_streams import as_stream
from ..runtime.world import World, require_world

COMPARISONS = ("eq", "ne", "gt", "le", "lt", "ge")
"""Conditions in the order of NVSHMEM's numbers."""

SIGNAL_SET, SIGNAL_ADD = 9, 10


class SignalWord:
    """A signal word by its address; a kernel argument, too."""

    def __init__(self, address: int, dtype: torch.dtype) -> None:
        self._address = address
        self.dtype = dtype

    def data_ptr(self) -> int:
        return self._address


@triton.jit
def _add_kernel(word, value):
    tl.atomic_add(word, value, sem="release", scope="sys")


def index(value: Any, name: str, what: str) -> int:
    """``value`` as an int. Raises InvalidArgumentError for what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{what}: {name} must be an integer, not {value!r}") from None


def address_in(pointer: Any, what: str) -> int:
    """An address: an integer, or a driver's type that converts to one. Raises InvalidArgumentError for what is none."""
    if isinstance(pointer, (int, str, float, torch.Tensor)) or not hasattr(pointer, "__int__"):
        return index(pointer, "an address", what)
    return int(pointer)


def check_signal(word: torch.Tensor | SignalWord, value: Any, operation: Any, what: str) -> None:
    """Raises InvalidArgumentError for an operation that there is not, and for a value that the word can't hold."""
    if operation not in (SIGNAL_SET, SIGNAL_ADD):
        raise InvalidArgumentError(f"{what}: operation {operation!r} is neither SIGNAL_SET (9) nor SIGNAL_ADD (10)")
    bits = word.dtype.itemsize * 8
    if not -(1 << bits - 1) <= index(value, "the signal's value", what) < 1 << bits:
        raise InvalidArgumentError(f"{what}: value={value!r} does not fit into a signal word of {bits} bits")
    if word.data_ptr() % (bits // 8):
        raise InvalidArgumentError(f"{what}: a signal word of {bits} bits can't lie at {word.data_ptr():#x}, no multiple of {bits // 8}")


def remote_address(address: int, rank: int, what: str) -> int:
    """The address of the same symmetric object in the heap of world rank ``rank``, whether or not this rank may load from it.

    Raises NotSymmetricError, InvalidArgumentError.
    """
    world = require_world(what)
    if not 0 <= index(rank, "the rank", what) < world.world_size:
        raise InvalidArgumentError(f"{what}: there is no rank {rank}; the world has {world.world_size}")
    address = address_in(address, what)
    owner = rank_of(address)
    if owner is None:
        raise NotSymmetricError(f"{what}: {address:#x} is not in symmetric memory; allocate it by nvshmem.core.tensor")
    return address + (rank - owner) * STRIDE


def copy(destination: int, source: int, nbytes: int, stream: Any, what: str, keep: Any = None) -> None:
    """Queue a copy of ``nbytes`` bytes by the copy engine. keep: what has to live until it has run, in the simulator.

    On a GPU torch gives the memory of a dropped tensor to later work of the same stream only.
    """
    world: Any = require_world(what)
    queue = as_stream(stream, what)
    destination, source, nbytes = address_in(destination, what), address_in(source, what), index(nbytes, "the number of bytes", what)
    if nbytes < 0:
        raise InvalidArgumentError(f"{what}: {nbytes} bytes")
    if hasattr(world, "simulation"):
        from ..sim.work import Copy

        world.submit(Copy(destination, source, nbytes, what), stream=None if queue is None else queue.handle, keep=keep)
        return
    from ..runtime.cuda import driver

    driver.call("cuMemcpyDtoDAsync", destination, source, nbytes, _handle(world, queue))


def _handle(world: World, queue: streams.Stream | None) -> int:
    return world.streams.key(world.streams.current() if queue is None else queue.handle)


def signal(word: torch.Tensor | SignalWord, rank: int, value: int, operation: int, stream: Any, what: str) -> None:
    """Queue a set of, or an addition to, the signal word at the place of ``word`` in rank ``rank``'s heap.

    What was queued before is visible to whoever sees the new value. Raises what ``check_signal`` and ``remote_address`` do.
    """
    check_signal(word, value, operation, what)
    address = remote_address(word.data_ptr(), rank, what)
    world: Any = require_world(what)
    queue = as_stream(stream, what)
    bits = word.dtype.itemsize * 8
    if operation == SIGNAL_ADD:
        with streams.stream(queue):
            _add_kernel[(1,)](SignalWord(address, word.dtype), _signed(value, bits))
    elif hasattr(world, "simulation"):
        from ..sim.work import WriteValue

        world.submit(WriteValue(address, _signed(value, bits), bits), stream=None if queue is None else queue.handle)
    else:
        from ..runtime.cuda import driver

        driver.call(f"cuStreamWriteValue{bits}", _handle(world, queue), address, value & (1 << bits) - 1, 0)


def _signed(value: int, bits: int) -> int:
    """The same bits as a signed number, which the simulator's words and kernels' arguments are."""
    word = value & (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word
