"""Reductions and scans, with one op or any combine function, and the ops on shapes that are more than one numpy call."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from ...errors import OutOfBoundsError, UnsupportedOperationError
from .arith import quiet, unsigned

UFUNCS: dict[str, np.ufunc] = {
    "arith.addf": np.add,
    "arith.addi": np.add,
    "arith.mulf": np.multiply,
    "arith.muli": np.multiply,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}
"""Combine ops that numpy reduces by itself."""


def reduce_ufunc(ufunc: np.ufunc, x, shape: tuple[int, ...], axis: int):
    """Reduction by one ufunc. Float sums are pairwise, in fp32 where the element is narrower and rounded at the end of each pair."""
    x = x if getattr(x, "shape", None) == shape else np.broadcast_to(x, shape)
    dtype = x.dtype
    if ufunc is np.add and dtype.kind == "f" and dtype.itemsize >= 4 or dtype.kind in "ib":
        return ufunc.reduce(x, axis=axis, dtype=dtype)
    if ufunc in (np.fmax, np.fmin, np.maximum, np.minimum):
        wide = x.astype(np.float32) if dtype.itemsize < 4 else x
        result = ufunc.reduce(quiet(wide) if ufunc in (np.fmax, np.fmin) else wide, axis=axis).astype(dtype, copy=False)
        return _order_zeros(result, x, axis, ufunc in (np.fmax, np.maximum)) if (result == 0).any() else result
    return reduce_tree(lambda a, b: (ufunc(a, b),), [x], shape, axis)[0]


def _order_zeros(result, x, axis: int, largest: bool):
    """numpy takes either zero for the larger one; the GPU takes +0 for the larger."""
    wanted = ((x == 0) & (np.signbit(x) != largest)).any(axis=axis)
    zero = np.where(wanted == largest, x.dtype.type(0), x.dtype.type(-0.0))
    return np.where(result == 0, zero, result)[()]


def by_element(function: Callable, dtypes: tuple) -> Callable:
    """A combine function of arrays from a generator function of scalars, for regions whose path differs from element to element."""

    def combine(*arrays) -> tuple:
        arrays = np.broadcast_arrays(*arrays)
        columns = [x.ravel().tolist() if x.dtype.kind in "iub" else list(x.ravel()) for x in arrays]
        results = zip(*(_run(function(*values)) for values in zip(*columns, strict=True)), strict=True)
        return tuple(np.array(column, dtype).reshape(arrays[0].shape) for column, dtype in zip(results, dtypes, strict=True))

    return combine


def _run(generator: Generator) -> tuple:
    """The result of a generator that only yields at the end of a loop's round."""
    while True:
        try:
            request = next(generator)
        except StopIteration as end:
            return end.value
        if request is not None:
            raise UnsupportedOperationError("a function that maps or combines elements loops for ever or waits for memory; do it outside")


def reduce_tree(combine: Callable, inputs: list, shape: tuple[int, ...], axis: int) -> tuple:
    """Reduction by any associative function of ``2 n`` arrays giving ``n``, as a tree of neighbouring pairs."""
    parts = [np.moveaxis(np.broadcast_to(x, shape), axis, 0) for x in inputs]
    while parts[0].shape[0] > 1:
        half = parts[0].shape[0] // 2
        combined = combine(*[x[0::2] for x in parts], *[x[1::2] for x in parts])
        parts = [np.broadcast_to(y, (half, *x.shape[1:])) for x, y in zip(parts, combined, strict=True)]
    return tuple(x[0] for x in parts)


def scan(combine: Callable, inputs: list, shape: tuple[int, ...], axis: int, reverse: bool) -> tuple:
    """Inclusive scan by any associative function, in log2(n) vector steps."""
    parts = [np.moveaxis(np.broadcast_to(x, shape), axis, 0) for x in inputs]
    if reverse:
        parts = [x[::-1] for x in parts]
    step, count = 1, shape[axis]
    while step < count:
        combined = combine(*[x[:-step] for x in parts], *[x[step:] for x in parts])
        parts = [
            np.concatenate([x[:step], np.broadcast_to(y, x[step:].shape).astype(x.dtype, copy=False)])
            for x, y in zip(parts, combined, strict=True)
        ]
        step *= 2
    return tuple(np.moveaxis(x[::-1] if reverse else x, 0, axis) for x in parts)


def histogram(x, mask, shape: tuple[int, ...], bins: int, dtype: np.dtype):
    """Counts of the values 0 to ``bins - 1``; what lies outside is not counted."""
    values = np.broadcast_to(x, shape).ravel()
    if mask is not None:
        values = values[np.broadcast_to(mask, shape).ravel()]
    values = values[(values >= 0) & (values < bins)]
    return np.bincount(values, minlength=bins).astype(dtype)


def reshape(x, shape_in: tuple[int, ...], shape_out: tuple[int, ...]):
    """``tt.reshape`` of an array that may be smaller than its type says."""
    return np.broadcast_to(x, shape_in).reshape(shape_out)


def expand_dims(x, index: tuple):
    """Insert a dimension, by an index with None at its place; a value that is the same everywhere stays as it is."""
    return x[index] if getattr(x, "ndim", 0) else x


def transpose(x, order: list[int]):
    """Permute dimensions; a value that is the same everywhere stays as it is."""
    return x.transpose(order) if getattr(x, "ndim", 0) else x


def join(a, b, shape: tuple[int, ...]):
    """Stack two tiles along a new last dimension."""
    return np.stack([np.broadcast_to(a, shape), np.broadcast_to(b, shape)], axis=-1)


def split(x, shape: tuple[int, ...]) -> tuple:
    """Undo ``join``."""
    x = np.broadcast_to(x, shape)
    return x[..., 0], x[..., 1]


def concatenate(a, b, shape_a: tuple[int, ...], shape_b: tuple[int, ...]):
    """``tt.cat``."""
    return np.concatenate([np.broadcast_to(a, shape_a), np.broadcast_to(b, shape_b)])


def gather(x, index, shape: tuple[int, ...], index_shape: tuple[int, ...], axis: int):
    """``tt.gather``: pick along ``axis``. Raises OutOfBoundsError."""
    if np.any(unsigned(index) >= shape[axis]):
        bad = np.asarray(index)[unsigned(np.asarray(index)) >= shape[axis]].flat[0]
        raise OutOfBoundsError(f"tl.gather with the index {bad}, but the tile has {shape[axis]} elements along axis {axis}")
    return np.take_along_axis(np.broadcast_to(x, shape), np.broadcast_to(index, index_shape).astype(np.int64), axis)


def map_packed(function: Callable, inputs: list, shape: tuple[int, ...], pack: int, dtypes: tuple) -> tuple:
    """``tt.map_elementwise``: the function takes ``pack`` neighbouring elements of each input and gives as many of each output."""
    flat = [np.broadcast_to(x, shape).reshape(-1, pack) for x in inputs]
    pieces = function(*[x[:, lane] for x in flat for lane in range(pack)])
    count = flat[0].shape[0]
    results = []
    for number, dtype in enumerate(dtypes):
        lanes = pieces[number * pack : (number + 1) * pack]
        results.append(np.stack([np.broadcast_to(lane, (count,)) for lane in lanes], axis=-1).astype(dtype, copy=False).reshape(shape))
    return tuple(results)
