"""Lowerings in plain Triton IR, the same on every GPU: address arithmetic, data dependence, block barriers, notify."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.primitives.call import Call, Lowering, constant, with_type
from triton_dist.runtime.address_map import FIRST_SLOT, STRIDE_BITS

_SLOT_MASK = 255
"""Slots are bits 39 to 46 of an address."""

_TOKEN_SHIFT = 20
"""A token is 0, so shifting it changes nothing, and tells Triton that adding it keeps any alignment."""

SCOPE_OF_COMM_SCOPE = {"gpu": "gpu", "intra_node": "sys", "inter_node": "sys"}


def symm_at(semantic: Any, call: Call, own_rank: Lowering) -> tl.tensor:
    """``ptr + distance``, with the distance in elements so that Triton keeps what it knows of the pointer's alignment.

    The slot of a scalar pointer is read off its address. For a tensor of pointers the distance comes from this process's
    rank, once, instead of once an element.
    """
    ptr, rank = call["ptr"], call["rank"]
    rank = semantic.cast(rank, tl.int64)
    if ptr.type.is_block():
        here = semantic.cast(own_rank(semantic, call), tl.int64)
        slots = semantic.sub(rank, here, False)
    else:
        address = semantic.cast(ptr, tl.int64)
        slot = semantic.and_(semantic.ashr(address, constant(semantic, STRIDE_BITS, tl.int64)), constant(semantic, _SLOT_MASK, tl.int64))
        slots = semantic.sub(semantic.add(rank, constant(semantic, FIRST_SLOT + 1, tl.int64), False), slot, False)
    distance = semantic.shl(slots, constant(semantic, STRIDE_BITS - _log2_bytes(ptr.type.scalar.element_ty), tl.int64))
    return semantic.add(ptr, distance, False)


def consume_token(semantic: Any, call: Call) -> tl.tensor:
    """Adds the token, an opaque zero, so that the value can't be computed before the wait has returned."""
    value, token = call["value"], call["token"]
    scalar = value.type.scalar
    if scalar.is_ptr():
        return semantic.add(value, _shifted(semantic, token), False)
    if scalar.is_int() and scalar.primitive_bitwidth == 1:
        never = semantic.not_equal(token, constant(semantic, 0, tl.int32))
        return semantic.xor_(value, never)
    if scalar.is_int():
        zero = semantic.cast(_shifted(semantic, token), scalar)
        return semantic.add(value, zero, False)
    bits = tl.core.get_int_dtype(scalar.primitive_bitwidth, signed=True)
    zero = semantic.cast(token, bits)
    return semantic.bitcast(semantic.add(semantic.bitcast(value, bits), zero, False), scalar)


def notify(semantic: Any, call: Call, own_rank: Lowering, mask: tl.tensor | None = None) -> None:
    """A block barrier, then one release by one thread, if ``mask`` (an int1, default true) holds there.

    The barrier makes the block's earlier stores happen before the release. Triton's own scalar atomic picks a thread of
    the partition that executes it, which a test of the thread index against 0 does not under warp specialisation.
    """
    semantic.debug_barrier()
    ptr, value = call["ptr"], call["signal"]
    if call.choice("comm_scope") != "gpu":
        ptr = symm_at(semantic, Call(call.primitive, {"ptr": ptr, "rank": call["rank"]}, {}, ptr.type), own_rank)
    word = tl.core.get_int_dtype(value.dtype.primitive_bitwidth, signed=True)
    ptr, value = with_type(semantic, ptr, word), semantic.cast(value, word)
    scope = SCOPE_OF_COMM_SCOPE[call.choice("comm_scope")]
    update = semantic.atomic_add if call.choice("sig_op") == "add" else semantic.atomic_xchg
    update(ptr, value, mask, "release", scope)


def syncthreads(semantic: Any, call: Call) -> None:
    """Triton's block barrier."""
    semantic.debug_barrier()


def _shifted(semantic: Any, token: tl.tensor) -> tl.tensor:
    return semantic.shl(token, constant(semantic, _TOKEN_SHIFT, tl.int32))


def _log2_bytes(element: tl.dtype) -> int:
    if element.is_ptr():
        return 3
    return max(element.primitive_bitwidth // 8, 1).bit_length() - 1


LOWERINGS: dict[str, Lowering] = {"consume_token": consume_token, "syncthreads": syncthreads}
"""Primitives that need nothing of the target."""
