"""Tensors of pointers, kept as a base and one vector of offsets an axis while that is what they are.

Most pointer tensors of a kernel are a base address plus row offsets plus column offsets, and the offsets have a constant step.
Then a load is a copy of a strided window, ten times faster than gathering the elements one by one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def _arange(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64)


class Axis:
    """Byte offsets along one axis: ``term * itemsize``. ``step`` is None where the offsets have no constant step.

    linear: the code that made the offsets says that they have a constant step but for a wrap-around, which the last one betrays.
    """

    __slots__ = ("term", "itemsize", "first", "step", "count")

    def __init__(self, term: np.ndarray, itemsize: int, linear: bool) -> None:
        flat = term.reshape(-1)
        self.term = term
        self.itemsize = itemsize
        first = int(flat[0])
        count = self.count = flat.size
        step = int(flat[1]) - first
        self.first = first * itemsize
        regular = first + step * (count - 1) == int(flat[-1])
        if regular and not linear and count > 2:
            regular = bool((flat == _arange(count) * step + first).all())
        self.step = step * itemsize if regular else None

    @property
    def offsets(self) -> np.ndarray:
        """The offsets as an array with one dimension of size above 1."""
        return self.term.astype(np.int64) * self.itemsize

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Smallest and largest offset of the elements ``begin`` to ``end`` of an axis with a constant step."""
        step = self.step or 0
        one, other = self.first + step * begin, self.first + step * (end - 1)
        return (one, other) if one <= other else (other, one)


class Layout:
    """Offsets along the axes of a tensor of pointers, and the box of memory that they cover all together.

    regular: every axis has a constant step. Then ``first``, ``low`` and ``high`` are the first, smallest and largest offset in bytes,
    ``counts`` and ``strides`` (bytes) describe the box, ``bits`` is the union of the strides' bits, and ``size`` the number of elements.
    """

    __slots__ = ("axes", "ndim", "regular", "first", "low", "high", "counts", "strides", "bits", "size")

    def __init__(self, axes: dict[int, Axis], ndim: int) -> None:
        self.axes = axes
        self.ndim = ndim
        self.regular = all(axis.step is not None for axis in axes.values())
        if not self.regular:
            return
        counts, strides = [1] * ndim, [0] * ndim
        self.first = self.low = self.high = self.bits = 0
        self.size = 1
        for position, axis in axes.items():
            counts[position] = axis.count
            step = axis.step or 0
            strides[position] = step
            extent = step * (axis.count - 1)
            self.first += axis.first
            self.low += axis.first + min(extent, 0)
            self.high += axis.first + max(extent, 0)
            self.bits |= step
            self.size *= axis.count
        self.counts, self.strides = tuple(counts), tuple(strides)


class Pointers:
    """A tensor of pointers: ``base`` plus the offsets of a layout. Moving all of them by the same distance keeps the layout."""

    __slots__ = ("base", "layout")

    def __init__(self, base: int, layout: Layout) -> None:
        self.base = base
        self.layout = layout

    def full(self) -> np.ndarray:
        """The addresses as an array; dimensions along which nothing varies have size 1."""
        total: np.ndarray | int = self.base
        for axis in self.layout.axes.values():
            total = total + axis.offsets
        return total if isinstance(total, np.ndarray) else np.full((1,) * self.layout.ndim, total, np.int64)


def full(pointers) -> np.ndarray | np.int64:
    """Any tensor of pointers as an array of addresses (or one address for all)."""
    if isinstance(pointers, Pointers):
        return pointers.full()
    return pointers if isinstance(pointers, np.ndarray) else np.int64(pointers)


def add_offsets(pointers, terms: tuple, itemsize: int, linear: tuple[bool, ...]):
    """``pointers`` plus the sum of ``terms`` elements of ``itemsize`` bytes.

    pointers: an int (the same address everywhere), an int64 array, or Pointers.
    terms: integer arrays or scalars of one dtype; their sum wraps around in that dtype, as it does on the GPU.
    linear: for each term, whether it is known to have a constant step along each axis.
    """
    if len(terms) > 1 and _may_wrap(terms):
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        terms, linear = (total,), (False,)
    elif type(pointers) is int and len(terms) == 1:
        # The same offsets are often added to several bases.
        term = terms[0]
        key = (id(term), itemsize)
        known_layout = _known_layouts.get(key)
        if known_layout is not None:
            return Pointers(pointers, known_layout[1])
        moved = _add(pointers, term, itemsize, linear[0])
        if type(moved) is Pointers and moved.base == pointers:
            if len(_known_layouts) > 256:
                _known_layouts.clear()
            _known_layouts[key] = (term, moved.layout)
        return moved
    for term, known in zip(terms, linear, strict=True):
        pointers = _add(pointers, term, itemsize, known)
    return pointers


_known_layouts: dict[tuple, tuple] = {}
"""Layouts by identity of their one vector of offsets and the element size, with the vector so that it stays alive. It never changes."""


def shift_all(pointers, distance: int):
    """``pointers`` moved by the same number of bytes."""
    return Pointers(pointers.base + distance, pointers.layout) if type(pointers) is Pointers else pointers + distance


def _may_wrap(terms: tuple) -> bool:
    dtype = terms[0].dtype
    if dtype.itemsize == 8:
        return False
    lo = hi = 0
    for term in terms:
        lo += int(term.min())
        hi += int(term.max())
    limit = 1 << (dtype.itemsize * 8 - 1)
    return lo < -limit or hi >= limit


def _add(pointers, term, itemsize: int, linear: bool):
    if not isinstance(term, np.ndarray) or term.size == 1:
        shift = int(term if not isinstance(term, np.ndarray) else term.reshape(-1)[0]) * itemsize
        return shift_all(pointers, shift)
    axis = only_axis(term)
    if axis is None or isinstance(pointers, np.ndarray):
        return full(pointers) + term.astype(np.int64) * itemsize
    if not isinstance(pointers, Pointers):
        return Pointers(int(pointers), Layout({axis: Axis(term, itemsize, linear)}, term.ndim))
    axes = dict(pointers.layout.axes)
    if axis in axes:
        axes[axis] = Axis(axes[axis].offsets + term.astype(np.int64) * itemsize, 1, False)
    else:
        axes[axis] = Axis(term, itemsize, linear)
    return Pointers(pointers.base, Layout(axes, term.ndim))


def only_axis(array: np.ndarray) -> int | None:
    """The one dimension of size above 1, or None if there are several."""
    shape = array.shape
    if len(shape) == 1:
        return 0
    found = None
    for axis, size in enumerate(shape):
        if size > 1:
            if found is not None:
                return None
            found = axis
    return found
