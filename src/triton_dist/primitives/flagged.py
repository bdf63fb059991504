"""Data that carries its own signal: units of 16 bytes, two words of 8, each 4 bytes of data and behind them a flag of 4 bytes.

A word is written and read as one (PTX: a b64 element of a vector access that is aligned to it), so whoever sees the flag has the data: one
way over the link, and no order between accesses is needed. The two operations are internal: they are parts of operators that say in
which call which rank writes which word. A flag is the number of a call; a word that carries another one is not there yet.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.primitives import hip_functions
from triton_dist.primitives.call import constant
from triton_dist.primitives.cuda_wait import flagged_wait_assembly
from triton_dist.primitives.kernel_hash import kernel_hash
from triton_dist.primitives.lowering import target_of
from triton_dist.primitives.values import unwrap

_LIBRARY = "triton_dist"
_AT_ONCE = 8
"""Ranks whose units one thread loads together; more would take too many registers."""

_PUSH = """{{
.reg .pred %on; .reg .b32 %low; .reg .b32 %high; .reg .b64 %first; .reg .b64 %second;
setp.ne.s32 %on, $4, 0;
mov.b64 {{%low, %high}}, $2;
mov.b64 %first, {{%low, $3}}; mov.b64 %second, {{%high, $3}};
@%on st.relaxed.sys.global.v2.b64 [$1], {{%first, %second}};
mov.u32 $0, 0;
}}""".format()


@tl.core.builtin
def push(unit, data, flag, mask, stamp=None, _semantic=None, _generator=None):
    """Stores units, each thread its own, relaxed at system scope.

    unit: tile of pointers to int64, multiples of 16 bytes, in memory of any rank. data: tile of int64, 8 bytes a unit.
    flag: int32, a scalar or a tile of one value. mask: tile of int1. stamp: as for ``lowering.emit``.
    """
    target, flag = target_of(_semantic.builder.options), _integer(_semantic, flag)
    if target == "hip":
        _generator.call_JitFunction(hip_functions.push_flagged, [unit, data, flag, mask], {})
        return
    shape = unit.type.get_block_shapes()
    operands = [unit, data, _tile(_semantic, flag, shape), mask]
    if target == "sim":
        _opaque(_semantic, "td.push_flagged;scope=sys;sem=relaxed", operands, tl.int32)
        return
    operands[3] = _semantic.cast(mask, tl.int32)
    _assembly(_semantic, _PUSH, "=r,l,l,r,r", operands, [tl.int32])


@tl.core.builtin
def take(unit, distance, flag, own, mask, size, stamp=None, _semantic=None, _generator=None):
    """Waits, each thread for itself, until the units of all ranks but ``own`` carry ``flag``; gives their data, a tuple of ``size`` tiles.

    unit: tile of pointers to int64 in this rank's memory, multiples of 16 bytes: the units of rank 0. distance: bytes from a rank's unit to
    the next rank's, constexpr. flag: int32, a scalar or a tile of one value. own: int32 scalar. mask: tile of int1: where it is off
    nothing is waited for. The data of ``own`` and where the mask is off mean nothing. size: ranks, constexpr. On NVIDIA GPUs it ends
    as a ``wait`` ends that takes too long.
    """
    distance, size = unwrap(distance), unwrap(size)
    flag, own = _integer(_semantic, flag), _integer(_semantic, own)
    target, results = target_of(_semantic.builder.options), []
    shape = unit.type.get_block_shapes()
    if target in ("sim", "hip"):
        for rank in range(size):
            place = _semantic.add(unit, constant(_semantic, rank * distance // 8, tl.int32), False)
            waits = _semantic.and_(mask, _semantic.splat(_semantic.not_equal(own, constant(_semantic, rank, tl.int32)), shape))
            if target == "hip":
                results.append(_generator.call_JitFunction(hip_functions.take_flagged, [place, flag, waits], {}))
            else:
                operands = [place, _tile(_semantic, flag, shape), waits]
                results.append(_opaque(_semantic, "td.take_flagged;scope=sys;sem=relaxed", operands, tl.int64))
        return tl.tuple(results)
    operands = [unit, _tile(_semantic, flag, shape), _semantic.splat(own, shape), _semantic.cast(mask, tl.int32)]
    kernel = kernel_hash(_generator, _semantic.builder.options)
    for first in range(0, size, _AT_ONCE):
        ranks = range(first, min(first + _AT_ONCE, size))
        text = flagged_wait_assembly(ranks=ranks, distance=distance, kernel=kernel)
        constraints = ",".join([*["=l"] * len(ranks), "l", "r", "r", "r"])
        results += _assembly(_semantic, text, constraints, operands, [tl.int64] * len(ranks))
    return tl.tuple(results)


def _integer(semantic: Any, value: Any) -> tl.tensor:
    """int32 of an integer, which Triton makes a constant of where it is 1."""
    return semantic.cast(semantic.to_tensor(unwrap(value)), tl.int32)


def _tile(semantic: Any, value: tl.tensor, shape: list[int]) -> tl.tensor:
    return value if value.type.is_block() else semantic.splat(value, shape)


def _assembly(semantic: Any, text: str, constraints: str, operands: list[tl.tensor], results: list[tl.dtype]) -> list[tl.tensor]:
    """Assembly for each element of tiles of one shape."""
    builder, block = semantic.builder, operands[0].type
    types = [block.with_element_ty(result) for result in results]
    handles = [operand.handle for operand in operands]
    operation = builder.create_inline_asm(text, constraints, handles, [kind.to_ir(builder) for kind in types], False, 1)
    return [tl.tensor(operation.get_result(number), kind) for number, kind in enumerate(types)]


def _opaque(semantic: Any, symbol: str, operands: list[tl.tensor], result: tl.dtype) -> tl.tensor:
    builder, kind = semantic.builder, operands[0].type.with_element_ty(result)
    handles = [operand.handle for operand in operands]
    return tl.tensor(builder.create_extern_elementwise(_LIBRARY, "", symbol, handles, kind.to_ir(builder), False), kind)
