"""Tensor descriptors: loads, stores, gathers, scatters and reductions of boxes, clipped to the tensor's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import SimulationError
from ...runtime.address_map import rank_of
from ..memory import Allocation, window
from .arith import maximum_number, minimum_number, unsigned

if TYPE_CHECKING:
    from ..program import Program

ADD, MIN, MAX, INC, DEC, AND, OR, XOR = range(1, 9)
"""Kinds of ``tt.descriptor_reduce``, numbered as in the IR."""


class Descriptor:
    """A tensor in global memory: base address, shape and strides in elements, block shape, and what lies outside reads as (0, or NaN).

    Raises SimulationError where the hardware has undefined behaviour: a base that is not a multiple of 16 bytes, a last stride that is
    not 1, or another stride that is not a multiple of 16 bytes.
    """

    __slots__ = ("base", "shape", "strides", "block", "dtype", "nan", "origin", "unsigned")

    def __init__(
        self,
        base: int,
        shape,
        strides,
        block: tuple[int, ...],
        dtype: np.dtype,
        nan: bool,
        origin: Allocation | None,
        is_unsigned: bool = False,
    ) -> None:
        self.base = int(base)
        self.shape = tuple(int(size) for size in shape)
        self.strides = tuple(int(stride) for stride in strides)
        self.block = block
        self.dtype = dtype
        self.nan = nan
        self.origin = origin
        self.unsigned = is_unsigned
        if self.base % 16:
            raise SimulationError(f"tensor descriptor: the base address {self.base:#x} is not a multiple of 16 bytes; align the tensor")
        if self.strides[-1] != 1:
            raise SimulationError(f"tensor descriptor: the last stride is {self.strides[-1]}, it has to be 1; make the tensor contiguous")
        for stride in self.strides[:-1]:
            if stride * dtype.itemsize % 16:
                raise SimulationError(
                    f"tensor descriptor: a stride of {stride * dtype.itemsize} bytes is not a multiple of 16; pad the rows"
                )

    def fill(self) -> np.generic:
        """What lies outside the tensor reads as."""
        return self.dtype.type(np.nan if self.nan and self.dtype.kind not in "iub" else 0)

    def box(self, context: Program, index, what: str):
        """(view of the part that is inside, its place in the block), or None if all is outside."""
        itemsize = self.dtype.itemsize
        inside, place, address = [], [], self.base
        last = self.base + itemsize
        for start, extent, size, stride in zip(index, self.block, self.shape, self.strides, strict=True):
            begin, end = max(start, 0), min(start + extent, size)
            if begin >= end:
                return None
            inside.append(end - begin)
            place.append(slice(begin - start, end - start))
            address += begin * stride * itemsize
            last += (end - 1) * stride * itemsize
        allocation = self.origin
        if allocation is not None and allocation.symmetric and rank_of(address) != rank_of(allocation.lo):
            allocation = None  # a dimension over the ranks' heaps: each rank's part of the box has bounds of its own
        if allocation is None or address < allocation.lo or last > allocation.hi or allocation.freed:
            allocation = context.memory.check(address, last, itemsize, what, allocation)
        context.charge(inside, itemsize, allocation)
        strides = tuple(stride * itemsize for stride in self.strides)
        if context.race is not None:
            checker = context.race.checker
            if what.endswith("load"):
                checker.box(context, address, inside, strides, itemsize, what, allocation)
            else:
                checker.bulk_store(context, address, inside, strides, itemsize, allocation, reduces=what.endswith("reduce"))
        return window(address, tuple(inside), strides, self.dtype), tuple(place), address, last


def load(context: Program, descriptor: Descriptor, index, shape: tuple[int, ...]):
    """``tt.descriptor_load``: the block at ``index`` (one int a dimension), reshaped to ``shape``."""
    box = descriptor.box(context, index, "descriptor load")
    if box is None:
        return np.full(shape, descriptor.fill(), descriptor.dtype)
    view, place, _, _ = box
    if view.shape == descriptor.block:
        return view.copy().reshape(shape)
    result = np.full(descriptor.block, descriptor.fill(), descriptor.dtype)
    result[place] = view
    return result.reshape(shape)


def store(context: Program, descriptor: Descriptor, index, value) -> None:
    """``tt.descriptor_store``: what lies outside the tensor is dropped."""
    _update(context, descriptor, index, value, None)


def reduce(context: Program, descriptor: Descriptor, index, value, kind: int) -> None:
    """``tt.descriptor_reduce``: combine the block into memory. ``descriptor.unsigned`` decides how integers compare."""
    _update(context, descriptor, index, value, kind)


def _update(context: Program, descriptor: Descriptor, index, value, kind: int | None) -> None:
    box = descriptor.box(context, index, "descriptor store" if kind is None else "descriptor reduce")
    if box is None:
        return
    view, place, lo, hi = box
    value = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (1,) * len(descriptor.block)))
    if value.shape != descriptor.block:
        size = int(np.prod(descriptor.block))
        value = value.reshape(descriptor.block) if value.size == size else np.broadcast_to(value, descriptor.block)
    view[...] = value[place] if kind is None else _combine(kind, view, value[place], descriptor.unsigned)
    context.memory.changed(lo, hi, context)
    if context.matrix_ns:
        context.settle()


def _combine(kind: int, old, value, is_unsigned: bool):
    if is_unsigned and kind in (MIN, MAX):
        return (np.minimum if kind == MIN else np.maximum)(unsigned(old), unsigned(value)).view(old.dtype)
    if kind == ADD:
        return old + value
    if kind in (MIN, MAX):
        if old.dtype.kind not in "iu":
            return (minimum_number if kind == MIN else maximum_number)(old, value)
        return (np.minimum if kind == MIN else np.maximum)(old, value)
    if kind == AND:
        return old & value
    if kind == OR:
        return old | value
    if kind == XOR:
        return old ^ value
    if kind == INC:
        return np.where(unsigned(old) >= unsigned(value), 0, old + 1)
    return np.where((old == 0) | (unsigned(old) > unsigned(value)), value, old - 1)


def gather(context: Program, descriptor: Descriptor, rows, column: int, shape: tuple[int, ...]):
    """``tt.descriptor_gather``: rows picked by index, a run of columns from ``column``."""
    width = shape[1]
    result = np.full(shape, descriptor.fill(), descriptor.dtype)
    for position, row in enumerate(np.broadcast_to(rows, (shape[0],)).tolist()):
        part = _row(context, descriptor, row, column, width, "descriptor gather")
        if part is not None:
            view, place = part
            result[position, place] = view
    return result


def scatter(context: Program, descriptor: Descriptor, rows, column: int, value, shape: tuple[int, ...]) -> None:
    """``tt.descriptor_scatter``: rows stored where ``rows`` says."""
    value = np.broadcast_to(value, shape)
    for position, row in enumerate(np.broadcast_to(rows, (shape[0],)).tolist()):
        part = _row(context, descriptor, row, column, shape[1], "descriptor scatter")
        if part is not None:
            view, place = part
            view[...] = value[position, place]
            address = view.__array_interface__["data"][0]
            context.memory.changed(address, address + view.nbytes, context)


def _row(context: Program, descriptor: Descriptor, row: int, column: int, width: int, what: str):
    if not 0 <= row < descriptor.shape[0]:
        return None
    begin, end = max(column, 0), min(column + width, descriptor.shape[1])
    if begin >= end:
        return None
    itemsize = descriptor.dtype.itemsize
    address = descriptor.base + (row * descriptor.strides[0] + begin) * itemsize
    last = address + (end - begin) * itemsize
    allocation = context.memory.check(address, last, itemsize, what, descriptor.origin)
    context.charge((end - begin,), itemsize, allocation)
    if context.race is not None:
        place = context, address, (end - begin,), (itemsize,), itemsize
        if what.endswith("scatter"):
            context.race.checker.bulk_store(*place, allocation)
        else:
            context.race.checker.box(*place, "load", allocation)
    return window(address, (end - begin,), (itemsize,), descriptor.dtype), slice(begin - column, end - column)
