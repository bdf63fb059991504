"""Adding up what the ranks have staged, in rank order: the same bits on every rank and in every run."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError

OPERATIONS = ("sum", "avg", "max", "min")
UNROLLED = tl.constexpr(8)
_ACCUMULATORS = {
    torch.float64: tl.float64,
    **dict.fromkeys((torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2), tl.float32),
    torch.int64: tl.int64,
    **dict.fromkeys((torch.int32, torch.int16, torch.int8, torch.uint8), tl.int32),
}
"""In what the elements of a dtype are added up. Sums of small integers keep their low bits, as torch's do."""


def accumulator_of(what: str, dtype: torch.dtype, op: str) -> tl.dtype:
    """The type of the sums. Raises InvalidArgumentError for a dtype or an operation that there is not."""
    if dtype not in _ACCUMULATORS:
        raise InvalidArgumentError(f"{what}: {dtype} can't be reduced; use one of {', '.join(map(str, _ACCUMULATORS))}")
    if op not in OPERATIONS:
        raise InvalidArgumentError(f"{what}: op={op!r}; it has to be one of {OPERATIONS}")
    if op == "avg" and not dtype.is_floating_point:
        raise InvalidArgumentError(f"{what}: op='avg' of {dtype}; take the sum and divide as you want it rounded")
    return _ACCUMULATORS[dtype]


@triton.jit
def staging_at(peer_staging, rank, ELEMENT: tl.constexpr):
    """A pointer to a rank's staging memory, from the addresses of all."""
    # The alignment is of the pointer: of the integer that it was made from it would be forgotten.
    return tl.multiple_of(tl.load(peer_staging + rank).to(tl.pointer_type(ELEMENT)), 16)


@triton.jit
def _staged(peer_staging, rank, offset, mask, ELEMENT: tl.constexpr, SUM: tl.constexpr):
    return tl.load(staging_at(peer_staging, rank, ELEMENT) + offset, mask=mask).to(SUM)


@triton.jit
def combine(total, more, OP: tl.constexpr):
    """One step of the reduction."""
    if OP == "max":
        total = tl.maximum(total, more, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "min":
        total = tl.minimum(total, more, propagate_nan=tl.PropagateNan.ALL)
    else:
        total += more
    return total


@triton.jit
def averaged(total, OP: tl.constexpr, SIZE: tl.constexpr):
    """What has been added up, divided by the number of ranks if that is asked for."""
    if OP == "avg":
        # A GPU's fp32 "/" is only nearly right.
        total = total / SIZE if total.dtype == tl.float64 else tl.div_rn(total, SIZE * 1.0)
    return total


@triton.jit
def rounded(total, ELEMENT: tl.constexpr):
    """What has been added up as an element, rounded once, as torch rounds: to the nearest, of two the even one.

    What is too large for e5m2 is infinity, and for e4m3fn, which has none, the largest number; a GPU's own conversion makes that of both.
    """
    if tl.float8e5 == ELEMENT:
        word = total.to(tl.uint32, bitcast=True)
        size = word & 0x7FFFFFFF
        normal = (size + 0xFFFFF + (size >> 21 & 1) >> 21) - (112 << 2)
        # An fp32 sum with 192 is a multiple of 2**-16, the distance between numbers below the normal ones.
        below = (size.to(tl.float32, bitcast=True) + 192.0).to(tl.uint32, bitcast=True) - 0x43400000
        bits = tl.minimum(tl.where(size < 0x38800000, below, normal), 0x7C)
        bits = tl.where(size > 0x7F800000, 0x7F, bits) | (word >> 24 & 0x80)
        result = bits.to(tl.uint8).to(tl.float8e5, bitcast=True)
    else:
        result = total.to(ELEMENT)
    return result


@triton.jit
def reduce_staged(
    peer_staging, offset, mask, ELEMENT: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """The elements at ``offset`` of all ranks' staging memory, added up (or whatever ``OP`` says) from rank 0 to the last.

    peer_staging: int64 addresses (SIZE,), multiples of 16 bytes. ELEMENT: what is staged. SUM: the type of the result.
    """
    total = _staged(peer_staging, 0, offset, mask, ELEMENT, SUM)
    if SIZE <= UNROLLED:  # all loads are under way together
        for rank in tl.static_range(1, SIZE):
            total = combine(total, _staged(peer_staging, rank, offset, mask, ELEMENT, SUM), OP)
    else:
        for rank in range(1, SIZE):
            total = combine(total, _staged(peer_staging, rank, offset, mask, ELEMENT, SUM), OP)
    return averaged(total, OP, SIZE)


@triton.jit
def reduce_at(sources, offset, mask, SUM: tl.constexpr, OP: tl.constexpr, SIZE: tl.constexpr):
    """As ``reduce_staged``, at ``offset`` of ``sources``: pointers, a tuple of at most ``UNROLLED`` ranks."""
    total = tl.load(sources[0] + offset, mask=mask).to(SUM)
    for rank in tl.static_range(1, SIZE):
        total = combine(total, tl.load(sources[rank] + offset, mask=mask).to(SUM), OP)
    return averaged(total, OP, SIZE)
