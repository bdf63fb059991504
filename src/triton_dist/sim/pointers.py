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
    """Byte offsets along one axis. ``step`` is None where the offsets have no constant step."""

    __slots__ = ("offsets", "first", "step", "count")

    def __init__(self, offsets: np.ndarray) -> None:
        flat = offsets.ravel()
        self.offsets = offsets
        self.first = first = int(flat[0])
        self.count = count = flat.size
        step = int(flat[1]) - first
        regular = first + step * (count - 1) == int(flat[-1]) and (count == 2 or bool((flat == _arange(count) * step + first).all()))
        self.step = step if regular else None

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Smallest and largest offset of the elements ``begin`` to ``end``."""
        if self.step is None:
            part = self.offsets.ravel()[begin:end]
            return int(part.min()), int(part.max())
        one, other = self.first + self.step * begin, self.first + self.step * (end - 1)
        return (one, other) if one <= other else (other, one)


class Pointers:
    """A tensor of pointers: ``base`` plus, for each entry of ``axes``, the offsets along that axis."""

    __slots__ = ("base", "axes", "ndim")

    def __init__(self, base: int, axes: dict[int, Axis], ndim: int) -> None:
        self.base = base
        self.axes = axes
        self.ndim = ndim

    def full(self) -> np.ndarray:
        """The addresses as an array; dimensions along which nothing varies have size 1."""
        total: np.ndarray | int = self.base
        for axis in self.axes.values():
            total = total + axis.offsets
        return total if isinstance(total, np.ndarray) else np.full((1,) * self.ndim, total, np.int64)


def full(pointers) -> np.ndarray | np.int64:
    """Any tensor of pointers as an array of addresses (or one address for all)."""
    if isinstance(pointers, Pointers):
        return pointers.full()
    return pointers if isinstance(pointers, np.ndarray) else np.int64(pointers)


def add_offsets(pointers, terms: tuple, itemsize: int):
    """``pointers`` plus the sum of ``terms`` elements of ``itemsize`` bytes.

    pointers: an int (the same address everywhere), an int64 array, or Pointers.
    terms: integer arrays or scalars of one dtype; their sum wraps around in that dtype, as it does on the GPU.
    """
    if len(terms) > 1 and _may_wrap(terms):
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        terms = (total,)
    for term in terms:
        pointers = _add(pointers, term, itemsize)
    return pointers


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


def _add(pointers, term, itemsize: int):
    if not isinstance(term, np.ndarray) or term.size == 1:
        shift = int(term if not isinstance(term, np.ndarray) else term.ravel()[0]) * itemsize
        if isinstance(pointers, Pointers):
            return Pointers(pointers.base + shift, pointers.axes, pointers.ndim)
        return pointers + shift
    offsets = term.astype(np.int64) * itemsize
    if isinstance(pointers, np.ndarray):
        return pointers + offsets
    axis = _only_axis(offsets)
    if axis is None:
        return full(pointers) + offsets
    if not isinstance(pointers, Pointers):
        return Pointers(int(pointers), {axis: Axis(offsets)}, offsets.ndim)
    axes = dict(pointers.axes)
    axes[axis] = Axis(axes[axis].offsets + offsets if axis in axes else offsets)
    return Pointers(pointers.base, axes, offsets.ndim)


def _only_axis(array: np.ndarray) -> int | None:
    """The one dimension of size above 1, or None if there are several."""
    found = None
    for axis, size in enumerate(array.shape):
        if size > 1:
            if found is not None:
                return None
            found = axis
    return found
