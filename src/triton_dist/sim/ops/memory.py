"""Loads, stores and atomics of tiles and scalars, each checked against the allocation it should be in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..memory import VIEW_BASE, WORDS, Allocation, element_index, scalar_view, window
from ..pointers import Layout, Pointers, full, only_axis
from .arith import flush

if TYPE_CHECKING:
    from ..program import Program
    from ..work import Task

_SWAP = "compare-and-swap"
_UPDATES = ("atomic", "atomic_poll")
"""Accesses that are checked for races one by one, or when they have succeeded."""

_EMPTY = object()
_GENERAL = object()

AND, OR, XOR, ADD, FADD, MAX, MIN, UMAX, UMIN, XCHG = range(1, 11)
"""Kinds of ``tt.atomic_rmw``, numbered as in the IR."""


_known_ranges: dict[tuple, tuple] = {}
"""Ranges found before, by identity of the vector and its bounds, with the vector so that it stays alive. Masks repeat from load to load."""


def _bound_range(array: np.ndarray, lo: int | None, hi: int | None, axis: int | None, rank: int) -> tuple | None:
    """(axis, begin, end) of the elements of a linear vector that are at least ``lo`` and below ``hi``; () where that is all of them.

    axis, rank: where the vector lies in the mask; None if it has the mask's shape. None if it does not ascend by a constant step.
    """
    key = (id(array), lo, hi, axis)
    known = _known_ranges.get(key)
    if known is not None:
        return known[1]
    if len(_known_ranges) > 256:
        _known_ranges.clear()
    found = _find_bound_range(array, lo, hi, axis)
    _known_ranges[key] = (array, found)
    return found


def _find_bound_range(array: np.ndarray, lo: int | None, hi: int | None, axis: int | None) -> tuple | None:
    flat = array.reshape(-1)
    count = flat.size
    first = int(flat[0])
    step = 1
    if count > 1:
        step = int(flat[1]) - first
        if step <= 0 or first + step * (count - 1) != int(flat[-1]):
            return None
    begin = 0 if lo is None or lo <= first else min((lo - first + step - 1) // step, count)
    end = count if hi is None else max(0, min((hi - first + step - 1) // step, count))
    if axis is None:
        axis = only_axis(array) if count > 1 else 0
    return () if begin == 0 and end == count else (axis, begin, end)


def _as_array(mask):
    """A mask term as a boolean array."""
    if type(mask) is not tuple:
        return mask
    array, lo, hi, axis, rank = mask
    if axis is not None and np.ndim(array):
        array = array.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))
    if lo is None:
        return array < hi
    return array >= lo if hi is None else (array >= lo) & (array < hi)


def _ranges(layout: Layout, masks: tuple):
    """For each axis that a mask restricts, the one range of it that is on; _EMPTY if nothing is, _GENERAL if it is not a box."""
    ranges: dict[int, tuple[int, int]] = {}
    for mask in masks:
        found = None
        if type(mask) is tuple:
            if isinstance(mask[0], np.ndarray) and mask[0].ndim:
                found = _bound_range(*mask)
            if found is None:
                mask = _as_array(mask)
        if found is None:
            found = _mask_range(mask)
            if found is _EMPTY or found is _GENERAL:
                return found
        if not found:
            continue
        axis, begin, end = found
        if axis in ranges:
            begin, end = max(begin, ranges[axis][0]), min(end, ranges[axis][1])
        if begin >= end:
            return _EMPTY
        ranges[axis] = (begin, end)
    return ranges if layout.regular else _GENERAL


def _mask_range(mask):
    """As ``_bound_range``, of any mask; _EMPTY if nothing is on, _GENERAL if it is not one range of one axis."""
    if not isinstance(mask, np.ndarray) or mask.size == 1:
        return () if (mask if not isinstance(mask, np.ndarray) else mask.reshape(-1)[0]) else _EMPTY
    if mask.all():
        return ()
    axis = only_axis(mask)
    if axis is None:
        return _GENERAL if mask.any() else _EMPTY
    on = mask.reshape(-1).nonzero()[0]
    if not on.size:
        return _EMPTY
    begin, end = int(on[0]), int(on[-1]) + 1
    return (axis, begin, end) if end - begin == on.size else _GENERAL


def _box(context: Program, pointers: Pointers, ranges: dict, dtype: np.dtype, what: str, origin: Allocation | None):
    """The window of memory that a box of pointers covers: (first address, low, high, counts, byte strides), bounds checked."""
    itemsize = dtype.itemsize
    layout, base = pointers.layout, pointers.base
    counts: tuple | list = layout.counts
    if not ranges:
        address, lo, hi, size = base + layout.first, base + layout.low, base + layout.high + itemsize, layout.size
    else:
        address, lo, hi = base, base, base + itemsize
        counts = list(counts)
        size = 1
        for position, axis in layout.axes.items():
            begin, end = ranges.get(position, (0, axis.count))
            low, high = axis.span(begin, end)
            lo += low
            hi += high
            address += axis.first + axis.step * begin  # type: ignore[operator]
            counts[position] = end - begin
            size *= end - begin
    if (address | layout.bits) & (itemsize - 1):
        raise context.memory.misaligned(address, itemsize, what)
    if origin is None or lo < origin.lo or hi > origin.hi or origin.freed:
        origin = context.memory.check(lo, hi, itemsize, what, origin)
    if context.race is not None:
        context.race.checker.box(context, address, counts, layout.strides, itemsize, what, origin)
    owner, rates = origin.rank, context.rates
    context.memory_ns += size * itemsize * (rates.local_ns_per_byte if owner is None or owner == context.rank else rates.remote_ns_per_byte)
    return address, lo, hi, counts, layout.strides


def addresses_of(context: Program, pointers, masks: tuple, shape: tuple[int, ...], dtype: np.dtype, what: str, origin: Allocation | None):
    """The general case: (flat addresses of what is on, mask or None), bounds checked."""
    address = full(pointers)
    mask = None
    for term in map(_as_array, masks):
        if isinstance(term, np.ndarray) or not term:
            mask = term if mask is None else mask & term
    if mask is not None and not isinstance(mask, np.ndarray):
        mask = np.full((1,) * len(shape), mask)
    if mask is not None and mask.all():
        mask = None
    if mask is not None:
        common = np.broadcast_shapes(address.shape, mask.shape)
        address = np.broadcast_to(address, common)
        mask = np.broadcast_to(mask, common)
        selected = address[mask]
    else:
        selected = np.asarray(address).reshape(-1)
    if selected.size:
        itemsize = dtype.itemsize
        lo, hi = int(selected.min()), int(selected.max()) + itemsize
        if itemsize > 1 and (selected & (itemsize - 1)).any():
            raise context.memory.misaligned(int(selected[(selected & (itemsize - 1)) != 0][0]), itemsize, what)
        if origin is None or lo < origin.lo or hi > origin.hi or origin.freed:
            _check_each(context, selected, itemsize, what, origin)
        if context.race is not None and what != _SWAP:
            context.race.checker.tile(context, selected, itemsize, what, origin)
        context.charge((selected.size,), itemsize, origin)
    return selected, mask, np.shape(address)


def _check_each(context: Program, selected: np.ndarray, itemsize: int, what: str, origin: Allocation | None) -> None:
    """Addresses that span several allocations are right as long as each is in one."""
    memory = context.memory
    remaining = selected
    while remaining.size:
        first = int(remaining.min())
        allocation = memory.check(first, first + itemsize, itemsize, what, origin)
        remaining = remaining[remaining + itemsize > allocation.hi]


def load(
    context: Program,
    pointers,
    masks: tuple,
    other,
    dtype: np.dtype,
    shape: tuple[int, ...],
    origin: Allocation | None,
    borrow: bool = False,
):
    """``tt.load`` of a tile.

    masks: terms whose conjunction is the mask: a boolean array, or (vector, lo, hi, axis, rank) for
    ``lo <= vector < hi`` along an axis (see ``_bound_range``). Masked elements read
    ``other``, or 0 where it is None.
    borrow: whether the result may be a view of memory, because it is used up before memory can change.
    Returns an array that broadcasts to ``shape``.
    """
    if type(pointers) is Pointers:
        ranges = _ranges(pointers.layout, masks)
        if ranges is _EMPTY:
            return dtype.type(0) if other is None else other
        if ranges is not _GENERAL:
            address, _, _, counts, strides = _box(context, pointers, ranges, dtype, "load", origin)
            if not ranges:
                view = window(address, counts, strides, dtype)
                return view if borrow else view.copy()
            axes = pointers.layout.axes
            sizes = [shape[axis] if axis in axes or axis in ranges else 1 for axis in range(len(shape))]
            if other is None:
                result = np.zeros(sizes, dtype)
            else:
                result = np.empty(np.broadcast_shapes(tuple(sizes), np.shape(other)), dtype)
                result[...] = other
            place = tuple(slice(*ranges[axis]) if axis in ranges else slice(None) for axis in range(len(shape)))
            result[place] = window(address, tuple(counts), strides, dtype)
            return result
    selected, mask, common = addresses_of(context, pointers, masks, shape, dtype, "load", origin)
    values = scalar_view(dtype).take(element_index(selected, dtype.itemsize))
    if mask is None:
        return values.reshape(common) if common else values[0]
    if other is None or np.broadcast_shapes(mask.shape, np.shape(other)) != mask.shape:
        result = np.zeros(mask.shape, dtype)
        result[mask] = values
        return result if other is None else np.where(mask, result, other)
    result = np.empty(mask.shape, dtype)
    result[...] = other
    result[mask] = values
    return result


def store(context: Program, pointers, value, masks: tuple, dtype: np.dtype, shape: tuple[int, ...], origin: Allocation | None) -> None:
    """``tt.store`` of a tile; ``value`` broadcasts to ``shape``. Where several elements go to one address, the last one stays."""
    if type(pointers) is Pointers:
        ranges = _ranges(pointers.layout, masks)
        if ranges is _EMPTY:
            return
        if ranges is not _GENERAL:
            address, lo, hi, counts, strides = _box(context, pointers, ranges, dtype, "store", origin)
            if isinstance(value, np.ndarray) and value.ndim:
                place = tuple(slice(*ranges[axis]) if axis in ranges and size > 1 else slice(None) for axis, size in enumerate(value.shape))
                value = value[place]
                axes = pointers.layout.axes
                counts = [value.shape[axis] if axis not in axes else count for axis, count in enumerate(counts)]
            window(address, tuple(counts), strides, dtype)[...] = value
            context.memory.changed(lo, hi, context)
            if context.matrix_ns:
                context.settle()  # a tile is stored when its products are done
            return
    selected, mask, _ = addresses_of(context, np.broadcast_to(full(pointers), shape), masks, shape, dtype, "store", origin)
    if not selected.size:
        return
    value = np.broadcast_to(value, shape)
    scalar_view(dtype)[element_index(selected, dtype.itemsize)] = value.reshape(-1) if mask is None else value[np.broadcast_to(mask, shape)]
    context.memory.changed(int(selected.min()), int(selected.max()) + dtype.itemsize, context)


def check_scalar(context: Program, address: int, itemsize: int, what: str, origin: Allocation | None) -> None:
    """Bounds, alignment and cost of one scalar access."""
    context.word = address
    if origin is None:
        memory = context.memory
        origin = memory.known_words[itemsize].get(address) or memory.check_word(address, itemsize, what)
    elif address < origin.lo or address + itemsize > origin.hi or origin.freed:
        origin = context.memory.check(address, address + itemsize, itemsize, what, origin)
    if address & (itemsize - 1):
        raise context.memory.misaligned(address, itemsize, what)
    if context.race is not None and what not in _UPDATES:
        context.race.checker.scalar(context, address, itemsize, what)
    owner = origin.rank
    context.clock += context.rates.local_ns if owner is None or owner == context.rank else context.rates.remote_ns


def load_scalar(context: Program, address: int, dtype: np.dtype, origin: Allocation | None):
    """``tt.load`` of a scalar, as a numpy scalar."""
    check_scalar(context, address, dtype.itemsize, "load", origin)
    return scalar_view(dtype)[element_index(address, dtype.itemsize)]


def store_scalar(context: Program, address: int, value, dtype: np.dtype, origin: Allocation | None, location: int) -> None:
    """``tt.store`` of a scalar."""
    check_scalar(context, address, dtype.itemsize, "store", origin)
    put_word(context, address, value, dtype, location)


def put_word(context: Program | Task, address: int, value, dtype: np.dtype, location: int) -> None:
    """Write one word, remember who did, and wake who waits for it. The address is checked."""
    if context.memory_ns:
        context.settle()
    memory = context.memory
    view = scalar_view(dtype)
    index = element_index(address, dtype.itemsize)
    old = view[index]
    view[index] = value
    if old != view[index]:
        memory.version += 1
    memory.writes[address] = (context, value, context.clock, location)
    granule = address >> 3
    if granule in memory.watchers:
        memory.wake(memory.watchers.pop(granule))


def put_integer(context: Program, address: int, value: int, itemsize: int, location: int, time: float) -> None:
    """``put_word`` for a Python int that fits into the word: the path of signals. time: when others can see it."""
    memory = context.memory
    view, index = WORDS[itemsize], (address - VIEW_BASE) // itemsize
    if view[index] != value:
        view[index] = value
        memory.version += 1
    memory.writes[address] = (context, value, time, location)
    if memory.watchers:
        parked = memory.watchers.pop(address >> 3, None)
        if parked is not None:
            memory.wake(parked)


def see_word(context: Program | Task, address: int) -> None:
    """The clock of who reads a signal word is not before that of who wrote it."""
    if context.memory_ns:
        context.settle()
    write = context.memory.writes.get(address)
    if write is not None and write[2] > context.clock:
        allocation = context.memory.find(address)
        if allocation is None or not allocation.timeless:
            context.clock = write[2]


def see_words(context: Program, addresses: np.ndarray, allocation: Allocation) -> None:
    """``see_word`` of many words of one allocation."""
    if context.memory_ns:
        context.settle()
    if not allocation.timeless:
        writes = map(context.memory.writes.get, addresses.tolist())
        context.clock = max([context.clock, *[write[2] for write in writes if write is not None]])


def _combine(kind: int, old, value):
    """New content of a word under an atomic of a kind; works on scalars and arrays of one dtype."""
    if kind == FADD and old.dtype == np.float32:  # the memory's adder flushes subnormal fp32, and no other type
        return flush(flush(old) + flush(value))
    if kind in (ADD, FADD):
        return old + value
    if kind == XCHG:
        return value
    if kind == AND:
        return old & value
    if kind == OR:
        return old | value
    if kind == XOR:
        return old ^ value
    if kind in (UMAX, UMIN):
        unsigned = f"u{old.dtype.itemsize}"
        picked = (np.maximum if kind == UMAX else np.minimum)(old.view(unsigned), value.view(unsigned))
        return picked.view(old.dtype)
    return (np.maximum if kind == MAX else np.minimum)(old, value)


def atomic_scalar(context: Program, kind: int, address: int, value, on, dtype: np.dtype, origin: Allocation | None, location: int):
    """``tt.atomic_rmw`` of a scalar: the old value, or 0 where the mask is off."""
    if not on:
        return dtype.type(0)
    check_scalar(context, address, dtype.itemsize, "atomic", origin)
    see_word(context, address)
    if context.race is not None:
        context.race.checker.update(context, address, dtype.itemsize)
    old = scalar_view(dtype)[element_index(address, dtype.itemsize)]
    put_word(context, address, _combine(kind, old, dtype.type(value)), dtype, location)
    return old


def atomic(
    context: Program, kind: int, pointers, value, masks: tuple, dtype: np.dtype, shape: tuple[int, ...], origin, used: bool, location: int
):
    """``tt.atomic_rmw`` of a tile: element by element in index order. Returns the old values (0 where masked off), or None if unused."""
    selected, mask, _ = addresses_of(context, np.broadcast_to(full(pointers), shape), masks, shape, dtype, "atomic", origin)
    result = np.zeros(shape, dtype) if used else None
    if not selected.size:
        return result
    value = np.broadcast_to(np.asarray(value, dtype), shape)
    value = value.reshape(-1) if mask is None else value[np.broadcast_to(mask, shape)]
    view = scalar_view(dtype)
    index = element_index(selected, dtype.itemsize)
    if np.unique(index).size == index.size:
        old = view[index]
        view[index] = _combine(kind, old, value)
    else:
        old = np.empty(index.shape, dtype)
        for position, (place, item) in enumerate(zip(index.tolist(), value, strict=True)):
            before = view[place]
            old[position] = before
            view[place] = _combine(kind, before, item)
    memory = context.memory
    for address in selected.tolist() if selected.size <= 64 else ():
        memory.writes[address] = (context, view[element_index(address, dtype.itemsize)], context.clock, location)
    memory.changed(int(selected.min()), int(selected.max()) + dtype.itemsize)
    if result is not None:
        if mask is None:
            result[...] = old.reshape(shape)
        else:
            result[np.broadcast_to(mask, shape)] = old
    return result


def compare_and_swap_scalar(context: Program, address: int, expected, value, dtype: np.dtype, origin: Allocation | None, location: int):
    """``tt.atomic_cas`` of a scalar: compares bits, returns the old value."""
    check_scalar(context, address, dtype.itemsize, "atomic", origin)
    see_word(context, address)
    old = scalar_view(dtype)[element_index(address, dtype.itemsize)]
    swaps = old.tobytes() == dtype.type(expected).tobytes()
    if context.race is not None:
        context.race.checker.update(context, address, dtype.itemsize, writes=swaps)
    if swaps:
        put_word(context, address, dtype.type(value), dtype, location)
    return old


def compare_and_swap(
    context: Program, pointers, expected, value, dtype: np.dtype, shape: tuple[int, ...], origin, location: int
) -> np.ndarray:
    """``tt.atomic_cas`` of a tile, element by element in index order."""
    selected, _, _ = addresses_of(context, np.broadcast_to(full(pointers), shape), (), shape, dtype, _SWAP, origin)
    expected = np.broadcast_to(np.asarray(expected, dtype), shape).reshape(-1)
    value = np.broadcast_to(np.asarray(value, dtype), shape).reshape(-1)
    old = [
        compare_and_swap_scalar(context, address, want, new, dtype, origin, location)
        for address, want, new in zip(selected.tolist(), expected, value, strict=True)
    ]
    return np.array(old, dtype).reshape(shape)
