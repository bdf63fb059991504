"""``symm_all_reduce`` as a device function: over the heap's direct pointers, or by torch's own library where a launch links it.

Rank r reduces part r of all ranks' buffers and writes it to all of them, between two barriers of all ranks: nobody else touches that
part, so it works in place. The page calls its own implementation a demonstration; this one moves every element twice over the links
and is run by one program, so for large buffers ``triton_dist.ops.all_reduce`` is the one to take.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.primitives.extern_call import extern_call
from triton_dist.primitives.lowering import target_of

from .constants import (
    BACKEND_DEFAULT,
    BACKEND_NCCL,
    BACKEND_NVSHMEM,
    DTYPE_BFLOAT16,
    DTYPE_FLOAT16,
    DTYPE_FLOAT32,
    DTYPE_FLOAT64,
    DTYPE_INT32,
    DTYPE_INT64,
    REDUCE_OP_MAX,
    REDUCE_OP_MIN,
    REDUCE_OP_PROD,
    REDUCE_OP_SUM,
)

LIBRARY = "torch_symm"
"""The name under which launches link torch's library."""

_TYPE_NVSHMEM = tl.constexpr(1)
_BLOCK = tl.constexpr(1024)
_SYMBOLS = {(tl.int64, tl.int64, tl.int32, tl.int32, tl.int32, tl.int32): ("symm_all_reduce", tl.int32)}


@triton.jit
def symm_all_reduce(ctx_ptr, local_ptr, byte_offset, num_elements, reduce_op, dtype, backend_hint=BACKEND_DEFAULT):
    """Reduces the ranks' buffers in place, on all of them; called by one program of every rank, the whole block.

    ctx_ptr: a context (``make_context``), as a pointer or an int64. local_ptr: this rank's symmetric buffer, a pointer or an int64.
    byte_offset: where in it the elements begin. num_elements: how many; with 0 or less the ranks meet and nothing is reduced.
    reduce_op: REDUCE_OP_SUM; beyond the page MAX, MIN and PROD. dtype: DTYPE_FLOAT32; beyond the page FLOAT16, BFLOAT16, FLOAT64, INT32
    and INT64. backend_hint: a constant, BACKEND_DEFAULT to go by the context. Halves are added up as float32; from rank 0 to the last, so
    all ranks have the same bits.

    Returns int32, the same in the whole block: 0; -1 for a null context; -2 for a context of an unknown type, or of NCCL, or of another
    world; -3 for an unknown reduce_op; -4 for an unknown dtype. The buffers are untouched where it is not 0.
    """
    if _by_library() and backend_hint != BACKEND_NCCL:
        status = _call_library(
            tl.cast(ctx_ptr, tl.int64), tl.cast(local_ptr, tl.int64), tl.cast(byte_offset, tl.int32), tl.cast(num_elements, tl.int32),
            tl.cast(reduce_op, tl.int32), tl.cast(dtype, tl.int32),
        )  # fmt: skip
    else:
        status = _status(tl.cast(ctx_ptr, tl.int64), reduce_op, dtype, backend_hint)
        if status == 0:
            _all_reduce(tl.cast(local_ptr, tl.int64) + tl.cast(byte_offset, tl.int64), tl.cast(num_elements, tl.int64), reduce_op, dtype)
    return status


@triton.jit
def _status(context, reduce_op, dtype, backend_hint):
    words = tl.cast(context, tl.pointer_type(tl.int32))
    there = context != 0
    kind = tl.load(words, mask=there, other=-1)
    size = tl.load(words + 2, mask=there, other=-1)
    known = (kind == _TYPE_NVSHMEM) & (size == dl.num_ranks())
    if backend_hint != BACKEND_DEFAULT and backend_hint != BACKEND_NVSHMEM:
        known = known & (kind < 0)
    status = tl.where((dtype < DTYPE_FLOAT32) | (dtype > DTYPE_INT64), -4, 0)
    status = tl.where((reduce_op < REDUCE_OP_SUM) | (reduce_op > REDUCE_OP_PROD), -3, status)
    status = tl.where(known, status, -2)
    return tl.where(there, status, -1)


@triton.jit
def _all_reduce(address, count, reduce_op, dtype):
    # All ranks have written their buffers before anybody reads them.
    libshmem_device.barrier_all_block()
    if dtype == DTYPE_FLOAT32:
        _reduce_part(address, count, reduce_op, tl.float32, tl.float32)
    if dtype == DTYPE_FLOAT16:
        _reduce_part(address, count, reduce_op, tl.float16, tl.float32)
    if dtype == DTYPE_BFLOAT16:
        _reduce_part(address, count, reduce_op, tl.bfloat16, tl.float32)
    if dtype == DTYPE_FLOAT64:
        _reduce_part(address, count, reduce_op, tl.float64, tl.float64)
    if dtype == DTYPE_INT32:
        _reduce_part(address, count, reduce_op, tl.int32, tl.int32)
    if dtype == DTYPE_INT64:
        _reduce_part(address, count, reduce_op, tl.int64, tl.int64)
    # All parts have been written to all ranks before anybody goes on.
    libshmem_device.barrier_all_block()


@triton.jit
def _reduce_part(address, count, reduce_op, TYPE: tl.constexpr, SUM: tl.constexpr):
    buffer = tl.cast(address, tl.pointer_type(TYPE))
    size = dl.num_ranks()
    part = tl.cdiv(count, size)
    begin = part * dl.rank()
    end = tl.minimum(begin + part, count)
    for first in range(begin, end, _BLOCK):
        offset = first + tl.arange(0, _BLOCK)
        inside = offset < end
        total = tl.load(dl.symm_at(buffer, 0) + offset, mask=inside, other=0).to(SUM)
        for peer in range(1, size):
            total = _combine(total, tl.load(dl.symm_at(buffer, peer) + offset, mask=inside, other=0).to(SUM), reduce_op)
        for peer in range(size):
            tl.store(dl.symm_at(buffer, peer) + offset, total.to(TYPE), mask=inside)


@triton.jit
def _combine(total, value, reduce_op):
    """reduce_op may be a constant, or a number that is known when the kernel runs."""
    result = total + value
    if reduce_op == REDUCE_OP_MAX:
        result = tl.maximum(total, value, propagate_nan=tl.PropagateNan.ALL)
    if reduce_op == REDUCE_OP_MIN:
        result = tl.minimum(total, value, propagate_nan=tl.PropagateNan.ALL)
    if reduce_op == REDUCE_OP_PROD:
        result = total * value
    return result


@tl.core.builtin
def _by_library(_semantic: Any = None) -> tl.constexpr:
    """Whether the launch links torch's library; the simulator never does."""
    options = _semantic.builder.options
    return tl.constexpr(target_of(options) != "sim" and LIBRARY in dict(options.extern_libs))


@tl.core.extern
def _call_library(context, local, byte_offset, num_elements, reduce_op, dtype, _semantic=None):
    arguments = (context, local, byte_offset, num_elements, reduce_op, dtype)
    return extern_call(LIBRARY, "", arguments, _SYMBOLS, False, _semantic=_semantic)
