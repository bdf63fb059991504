"""Matrix products: ``tt.dot`` in each input precision and ``tt.dot_scaled``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from ...errors import UnsupportedOperationError
from ..types import BFLOAT16

if TYPE_CHECKING:
    from ..program import Program

TF32, TF32X3, IEEE, BF16X3, BF16X6 = range(5)
"""Input precisions of an fp32 product, numbered as in the IR."""


def _to_bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(BFLOAT16).astype(np.float32)


def _to_tf32(x: np.ndarray) -> np.ndarray:
    """Tensor cores read the upper 19 bits of an fp32 operand."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _nearest_tf32(x: np.ndarray) -> np.ndarray:
    """To nearest, ties away from zero: the upper part of an operand under TF32X3."""
    return np.where(np.isnan(x), x, _to_tf32((x.view(np.uint32) + np.uint32(0x1000)).view(np.float32)))


def _split(x: np.ndarray, narrow: tuple) -> list[np.ndarray]:
    """One piece for each function of ``narrow``, of what the pieces before it leave."""
    pieces = []
    for function in narrow:
        piece = function(x)
        pieces.append(piece)
        x = x - piece
    return pieces


def _emulated(a: np.ndarray, b: np.ndarray, narrow: tuple, order: int) -> np.ndarray:
    """The sum of the products of pieces of ``a`` and ``b`` whose indices add up to at most ``order``, smallest first.

    The smaller pieces of an infinity are NaN; they count as nothing, so that the product of the upper pieces decides.
    """
    left, right = _split(a, narrow), _split(b, narrow)
    parts = range(len(narrow))
    pairs = sorted(((i, j) for i in parts for j in parts if i + j <= order), key=lambda pair: -sum(pair))
    total = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), np.float32)
    for i, j in pairs:
        if i + j == 0:
            total = np.where(np.isnan(total), np.float32(0), total)
        total += left[i] @ right[j]
    return total


def _float32_product(a: np.ndarray, b: np.ndarray, precision: int) -> np.ndarray:
    if precision == TF32:
        return _to_tf32(a) @ _to_tf32(b)
    if precision == TF32X3:
        return _emulated(a, b, (_nearest_tf32, _to_tf32), 1)
    if precision == BF16X3:
        return _emulated(a, b, (_to_bf16,) * 2, 1)
    if precision == BF16X6:
        return _emulated(a, b, (_to_bf16,) * 3, 2)
    raise UnsupportedOperationError(f"tl.dot with input precision number {precision}, which the simulator does not know; use 'ieee'")


def dot(context: Program, a, b, accumulator, dtype: np.dtype, shape_a: tuple, shape_b: tuple, precision: int):
    """``a @ b + accumulator``, with products and sums in fp32 (fp64 for fp64 and integers) and one rounding to ``dtype``.

    a, b: arrays that broadcast to ``shape_a`` and ``shape_b``, (M, K) and (K, N), or with a batch dimension before.
    """
    if getattr(a, "shape", None) != shape_a:
        a = np.broadcast_to(a, shape_a)
    if getattr(b, "shape", None) != shape_b:
        b = np.broadcast_to(b, shape_b)
    element = a.dtype
    rates = context.rates
    size = element.itemsize
    rate = rates.fp32_flop_ns if size == 4 and precision == IEEE else rates.flop_ns[size]
    context.matrix_ns += 2 * a.size * shape_b[-1] * rate
    if element.kind in "ib":
        # fp64 holds every sum of int8 products that a tile can have, and numpy has no fast integer product.
        return (np.matmul(a.astype(np.float64), b.astype(np.float64)) + accumulator).astype(dtype)
    if element == np.float64:
        return np.matmul(a, b) + accumulator
    if element == np.float32:
        product = a @ b if precision == IEEE else _float32_product(np.ascontiguousarray(a), np.ascontiguousarray(b), precision)
    else:
        product = a.astype(np.float32) @ b.astype(np.float32)
    if dtype == np.float32:
        product += accumulator
        return product
    return (product + np.asarray(accumulator).astype(np.float32)).astype(dtype)


_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""The values of e2m1, by code."""

E4M3, E5M2, E2M3, E3M2, E2M1, BF16, FP16 = range(7)
"""Operand formats of ``tt.dot_scaled``, numbered as in the IR."""


def _decode(x: np.ndarray, element: int, axis: int) -> np.ndarray:
    """An operand as fp32. e2m1 has two values a byte, the first in the low half, packed along ``axis``."""
    if element == E2M1:
        codes = x.view(np.uint8)
        pair = np.stack([_FP4[codes & 15], _FP4[codes >> 4]], axis=axis + 1)
        shape = list(x.shape)
        shape[axis] *= 2
        return pair.reshape(shape)
    narrow = {E4M3: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2}.get(element)
    return (x.view(narrow) if narrow is not None and x.dtype.kind in "iu" else x).astype(np.float32)


def _scale_factor(scale: np.ndarray, repeat: int) -> np.ndarray:
    """Block scales as fp32, one for each element along the last axis. e8m0 code 255 is NaN; an fp8 scale (nvfp4) is its value."""
    if scale.dtype.kind in "iu":
        code = scale.view(np.uint8).astype(np.int32)
        factor = np.where(code == 255, np.float32(np.nan), np.ldexp(np.float32(1), code - 127))
    else:
        factor = scale.astype(np.float32)
    return np.repeat(factor, repeat, axis=-1)


def dot_scaled(
    context: Program, a, b, accumulator, scale_a, scale_b, kinds: tuple[int, int], k_packed: tuple[bool, bool], shapes: tuple, dtype
):
    """``(a * scale_a) @ (b * scale_b) + accumulator`` for microscaled formats.

    a: (M, K), b: (K, N), with K halved for e2m1; scale_a: (M, K / 16 or 32), scale_b: (N, K / 16 or 32), each may be None.
    k_packed: whether e2m1 is packed along K (else along M or N).
    """
    a, b = np.broadcast_to(a, shapes[0]), np.broadcast_to(b, shapes[1])
    rank = a.ndim
    left = _decode(a, kinds[0], rank - 1 if k_packed[0] else rank - 2)
    right = _decode(b, kinds[1], rank - 2 if k_packed[1] else rank - 1)
    depth = left.shape[-1]
    context.matrix_ns += 2 * left.size * right.shape[-1] * context.rates.flop_ns[1]
    if scale_a is not None:
        scale = np.broadcast_to(scale_a, shapes[2])
        left = left * _scale_factor(scale, depth // scale.shape[-1])
    if scale_b is not None:
        scale = np.broadcast_to(scale_b, shapes[3])
        right = right * np.swapaxes(_scale_factor(scale, depth // scale.shape[-1]), -1, -2)
    return (np.matmul(left, right) + np.asarray(accumulator).astype(np.float32)).astype(dtype)
