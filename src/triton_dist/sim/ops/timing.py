"""Loads and stores of tiles in a run for its time: checked as always, charged, and carried out for integers and pointers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...runtime.address_map import STRIDE_BITS
from ..memory import Allocation
from ..pointers import Pointers, full
from . import descriptor as descriptors
from . import memory

if TYPE_CHECKING:
    from ..timing_machine import TimingProgram


def _place(
    context: TimingProgram, pointers, masks: tuple, shape: tuple[int, ...], dtype: np.dtype, what: str, origin: Allocation | None
) -> list[tuple[int, int, Allocation]]:
    """(first address, bytes, allocation) of what a tile access reaches, checked: one entry for each rank's memory."""
    if type(pointers) is Pointers:
        ranges = memory._ranges(pointers.layout, masks)
        if ranges is memory._EMPTY:
            return []
        if ranges is not memory._GENERAL:
            address, low, _, counts, _ = memory._box(context, pointers, ranges, dtype, what, origin)
            size = dtype.itemsize
            for extent in counts:
                size *= extent
            return [(address, size, _owner(context, low, origin))]
    selected, _, _ = memory.addresses_of(context, np.broadcast_to(full(pointers), shape), masks, shape, dtype, what, origin)
    _, first, counts = np.unique(selected >> STRIDE_BITS, return_index=True, return_counts=True)
    return [
        (int(selected[index]), int(count) * dtype.itemsize, _owner(context, int(selected[index]), origin))
        for index, count in zip(first, counts, strict=True)
    ]


def _owner(context: TimingProgram, address: int, origin: Allocation | None) -> Allocation:
    if origin is not None and origin.lo <= address < origin.hi:
        return origin
    found = context.memory.find(address)
    return found if found is not None else context.memory.check(address, address + 1, 1, "access", origin)


def load(context: TimingProgram, pointers, masks: tuple, dtype: np.dtype, shape: tuple[int, ...], origin: Allocation | None) -> None:
    """A load of a floating-point tile."""
    before = context.memory_ns
    places = _place(context, pointers, masks, shape, dtype, "load", origin)
    context.memory_ns = before
    for place in places:
        context.read(*place)


def load_values(context: TimingProgram, pointers, masks: tuple, other, dtype: np.dtype, shape: tuple[int, ...], origin: Allocation | None):
    """A load of an integer tile: as ``memory.load``."""
    load(context, pointers, masks, dtype, shape, origin)
    before = context.memory_ns
    result = memory.load(context, pointers, masks, other, dtype, shape, origin)
    context.memory_ns = before
    return result


def store(context: TimingProgram, pointers, masks: tuple, dtype: np.dtype, shape: tuple[int, ...], origin: Allocation | None) -> None:
    """A store of (or an atomic on) a floating-point tile."""
    before = context.memory_ns
    places = _place(context, pointers, masks, shape, dtype, "store", origin)
    context.memory_ns = before
    for place in places:
        context.write(*place)


def store_values(
    context: TimingProgram, pointers, value, masks: tuple, dtype: np.dtype, shape: tuple[int, ...], origin: Allocation | None
) -> None:
    """A store of an integer tile: as ``memory.store``."""
    store(context, pointers, masks, dtype, shape, origin)
    before = context.memory_ns
    memory.store(context, pointers, value, masks, dtype, shape, origin)
    context.memory_ns = before


def load_scalar(context: TimingProgram, address: int, dtype: np.dtype, origin: Allocation | None):
    """As ``memory.load_scalar``; who reads a word in a loop reads it after it was written."""
    value = memory.load_scalar(context, address, dtype, origin)
    memory.see_word(context, address)
    return value


def _box(context: TimingProgram, descriptor: descriptors.Descriptor, index, what: str) -> tuple[int, int, Allocation] | None:
    before = context.memory_ns
    box = descriptor.box(context, index, what)
    context.memory_ns = before
    if box is None:
        return None
    return box[2], box[0].size * descriptor.dtype.itemsize, _owner(context, box[2], descriptor.origin)


def descriptor_load(context: TimingProgram, descriptor: descriptors.Descriptor, index) -> None:
    """A descriptor's load of a floating-point tile."""
    box = _box(context, descriptor, index, "descriptor load")
    if box is not None:
        context.read(*box)


def descriptor_store(context: TimingProgram, descriptor: descriptors.Descriptor, index) -> None:
    """A descriptor's store or reduction of a floating-point tile."""
    box = _box(context, descriptor, index, "descriptor store")
    if box is not None:
        context.write(*box)
