"""Puts, gets and signals of the host in stream order, by address, on simulated ranks and on GPUs."""

from __future__ import annotations

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


def remote_address(address: int, rank: int, what: str) -> int:
    """The address of the same symmetric object in the heap of world rank ``rank``, whether or not this rank may load from it.

    Raises NotSymmetricError, InvalidArgumentError.
    """
    world = require_world(what)
    if not 0 <= rank < world.world_size:
        raise InvalidArgumentError(f"{what}: there is no rank {rank}; the world has {world.world_size}")
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

    What was queued before is visible to whoever sees the new value.
    """
    address = remote_address(word.data_ptr(), rank, what)
    world: Any = require_world(what)
    queue = as_stream(stream, what)
    if operation == SIGNAL_ADD:
        with streams.stream(queue):
            _add_kernel[(1,)](SignalWord(address, word.dtype), value)
    elif operation != SIGNAL_SET:
        raise InvalidArgumentError(f"{what}: operation {operation!r} is neither SIGNAL_SET (9) nor SIGNAL_ADD (10)")
    elif hasattr(world, "simulation"):
        from ..sim.work import WriteValue

        bits = word.dtype.itemsize * 8
        world.submit(WriteValue(address, value, bits), stream=None if queue is None else queue.handle)
    else:
        from ..runtime.cuda import driver

        driver.call(
            f"cuStreamWriteValue{word.dtype.itemsize * 8}", _handle(world, queue), address, value & (1 << 8 * word.dtype.itemsize) - 1, 0
        )
