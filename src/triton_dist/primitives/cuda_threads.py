"""Lowering for NVIDIA GPUs of what single threads do: vectors, the warp's exchanges, and the shared memory of simt regions.

Shared memory is a variable of fixed size that the assembly itself declares, beside the memory that Triton lays out. The assembly that gives
its address is pure: equal ones merge, so that a region in a loop and the regions of one function that need as many bytes have one variable;
a copy that the compiler makes of one has its own, which all that uses its address then uses.
"""

from __future__ import annotations

import re
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import shared_ledger
from triton_dist.primitives.call import Call, Lowering, as_carrier, carrier_type, constant, from_carrier, inline_asm, with_type
from triton_dist.primitives.vector import vector

_ACCESS_BITS = (128, 64)
"""Widths of an access of several words."""

_FIRST_WITH_MULTICAST = 90
_WHOLE_WARP = "0x1f"
_CLAMP = {"idx": _WHOLE_WARP, "down": _WHOLE_WARP, "bfly": _WHOLE_WARP, "up": "0x0"}
"""The operand of shfl that bounds the source thread by the ends of the warp."""


def qualifiers(call: Call) -> str:
    """The memory order of a vector access: nothing if it is weak; at GPU scope if no scope is given."""
    order = call.choice("semantic")
    return "" if order == "weak" else f".{order}.{call.choice('scope') or 'gpu'}"


def ld_vector(semantic: Any, call: Call, after: str) -> vector:
    """Accesses of 16, 8 or fewer bytes, each as wide as the number of bytes allows."""
    element, size = call.result, call.choice("vec_size")
    bits = element.primitive_bitwidth
    words = _word_bits(bits * size)
    if words is None:
        pointers = [semantic.add(call["ptr"], constant(semantic, number, tl.int32), False) for number in range(size)]
        texts = f"ld{qualifiers(call)}.global.b{bits} $0, [$1]; {after}"
        loaded = [inline_asm(semantic, texts, f"={_register(bits)},l", [one], carrier_type(bits), pure=False) for one in pointers]
        return vector([from_carrier(semantic, one, element) for one in loaded])
    piece = _piece(bits)
    width = piece.primitive_bitwidth
    ptr, count = with_type(semantic, call["ptr"], piece), words // width
    results: list[tl.tensor] = []
    for start in range(0, bits * size // width, count):
        outputs = ", ".join(f"${number}" for number in range(count))
        text = f"ld{qualifiers(call)}.global{_vector_size(count)}.b{width} {_braced(outputs, count)}, [${count}]; {after}"
        place = semantic.add(ptr, constant(semantic, start, tl.int32), False)
        results += _several(semantic, text, ",".join([f"={_register(width)}"] * count + ["l"]), [place], count, piece)
    return vector(results).recast(element, _semantic=semantic)


def st_vector(semantic: Any, call: Call, before: str) -> None:
    """The stores that match ``ld_vector``'s loads."""
    values = call["vec"]
    bits = values.dtype.primitive_bitwidth
    words = _word_bits(bits * len(values))
    if words is None:
        for number, value in enumerate(values):
            place = semantic.add(call["ptr"], constant(semantic, number, tl.int32), False)
            text = f"{before} st{qualifiers(call)}.global.b{bits} [$1], $2; mov.u32 $0, 0;"
            inline_asm(semantic, text, f"=r,l,{_register(bits)}", [place, as_carrier(semantic, value)], tl.int32, pure=False)
        return
    piece = _piece(bits)
    width = piece.primitive_bitwidth
    ptr, count = with_type(semantic, call["ptr"], piece), words // width
    pieces = list(values.recast(piece, _semantic=semantic))
    inputs = ", ".join(f"${number + 2}" for number in range(count))
    for start in range(0, len(pieces), count):
        place = semantic.add(ptr, constant(semantic, start, tl.int32), False)
        text = f"{before} st{qualifiers(call)}.global{_vector_size(count)}.b{width} [$1], {_braced(inputs, count)}; mov.u32 $0, 0;"
        constraints = ",".join(["=r", "l", *[_register(width)] * count])
        inline_asm(semantic, text, constraints, [place, *pieces[start : start + count]], tl.int32, pure=False)


def multimem_st(semantic: Any, call: Call) -> None:
    """``multimem.st`` of one word or a vector of them."""
    _require_multicast(semantic, "multimem_st")
    values = list(call["val"])
    register = _register(values[0].dtype.primitive_bitwidth)
    inputs = ", ".join(f"${number + 2}" for number in range(len(values)))
    text = f"multimem.st.weak.global{_multicast_kind(call, len(values))} [$1], {_braced(inputs, len(values))}; mov.u32 $0, 0;"
    constraints = ",".join(["=r", "l", *[register] * len(values)])
    inline_asm(semantic, text, constraints, [call["ptr"], *values], tl.int32, pure=False)


def multimem_ld_reduce(semantic: Any, call: Call) -> vector:
    """``multimem.ld_reduce`` with add, accumulated in fp32 where the elements are narrower and that is asked for."""
    _require_multicast(semantic, "multimem_ld_reduce")
    count, kind = call.choice("vec_size"), call.choice("type")
    accumulator = ".acc::f32" if kind in ("f16x2", "bf16x2") and call.choice("accumulator") == "f32" else ""
    outputs = ", ".join(f"${number}" for number in range(count))
    text = f"multimem.ld_reduce.weak.global.add{accumulator}{_multicast_kind(call, count)} {_braced(outputs, count)}, [${count}];"
    return vector(_several(semantic, text, ",".join(["=r"] * count + ["l"]), [call["ptr"]], count))


def _multicast_kind(call: Call, count: int) -> str:
    return f"{_vector_size(count)}.{call.choice('type')}"


def _vector_size(count: int) -> str:
    return "" if count == 1 else f".v{count}"


def _braced(names: str, count: int) -> str:
    return names if count == 1 else f"{{{names}}}"


def _require_multicast(semantic: Any, what: str) -> None:
    capability = int(re.sub(r"\D", "", semantic.builder.options.arch))
    if capability < _FIRST_WITH_MULTICAST:
        raise PrimitiveArgumentError(
            f"{what} needs a GPU of compute capability 9.0 or above with NVLink multicast, not sm_{capability}; "
            "store to each rank, or load from each, through symm_at"
        )


def shfl(semantic: Any, call: Call) -> tl.tensor:
    """``shfl.sync`` of 32 bits, twice for 64."""
    mode, dtype = call.choice("mode"), call.result
    text = f"shfl.sync.{mode}.b32 $0, $1, $2, {_CLAMP[mode]}, $3;"
    halves = [_half(semantic, call["value"], number) for number in range(2 if dtype.primitive_bitwidth == 64 else 1)]
    moved = [inline_asm(semantic, text, "=r,r,r,r", [half, call["lane"], call["mask"]], tl.int32, pure=False) for half in halves]
    if len(moved) == 1:
        return from_carrier(semantic, moved[0], dtype)
    return next(iter(vector(moved).recast(dtype, _semantic=semantic)))


def ballot(semantic: Any, call: Call) -> tl.tensor:
    """``vote.sync.ballot``."""
    text = "{ .reg .pred %holds; setp.ne.b32 %holds, $1, 0; vote.sync.ballot.b32 $0, %holds, $2; }"
    holds = semantic.cast(call["predicate"], tl.int32)
    return inline_asm(semantic, text, "=r,r,r", [holds, call["mask"]], tl.int32, pure=False)


def syncwarp(semantic: Any, call: Call) -> None:
    """``bar.warp.sync``."""
    inline_asm(semantic, "bar.warp.sync $1; mov.u32 $0, 0;", "=r,r", [call["mask"]], tl.int32, pure=False)


def shared_memory(semantic: Any, call: Call) -> tl.tensor:
    """Declares a variable and gives its address in shared memory, or finds the place before the end of the launch's memory.

    The launch's memory begins behind the variables of fixed size, of which one shows here where those are.
    """
    end, unit = call.choice("end"), shared_ledger.UNIT
    name = f"{shared_ledger.TAIL_NAME}{end}" if end else f"{shared_ledger.STATIC_NAME}{call.choice('key')}"
    declared = f".shared .align {unit} .b8 {name}[{unit if end else call.choice('bytes')}];"
    text = f"{declared} mov.u32 $0, {name};"
    if end:
        text += f" .reg .b32 %size; mov.u32 %size, %dynamic_smem_size; add.s32 $0, $0, %size; add.s32 $0, $0, {unit - end};"
    return inline_asm(semantic, f"{{ {text} }}", "=r", [], tl.int32, pure=True)


def shared_load(semantic: Any, call: Call) -> tl.tensor:
    """Each thread loads the elements whose addresses it holds."""
    address, dtype = call["address"], call.result
    bits = dtype.primitive_bitwidth
    text = f"ld.shared.b{bits} $0, [$1];"
    loaded = inline_asm(semantic, text, f"={_register(bits)},r", [address], _like(address, carrier_type(bits)), pure=False)
    return semantic.cast(loaded, dtype)


def shared_store(semantic: Any, call: Call) -> None:
    """Each thread stores the elements that it holds; several that hold copies of one store the same."""
    address, value = call["address"], call["value"]
    bits = value.dtype.primitive_bitwidth
    text = f"st.shared.b{bits} [$1], $2; mov.u32 $0, 0;"
    inline_asm(semantic, text, f"=r,r,{_register(bits)}", [address, as_carrier(semantic, value)], _like(address, tl.int32), pure=False)


def _like(value: tl.tensor, dtype: tl.dtype) -> Any:
    """``dtype``, or a tile of it with the shape of ``value``."""
    return value.type.with_element_ty(dtype) if value.type.is_block() else dtype


def _half(semantic: Any, value: tl.tensor, number: int) -> tl.tensor:
    """32 bits of a scalar, the lower ones first."""
    if value.dtype.primitive_bitwidth < 64:
        return as_carrier(semantic, value)
    return list(vector([value]).recast(tl.int32, _semantic=semantic))[number]


def _piece(bits: int) -> tl.dtype:
    """The unit of a vector access: as wide as an element of 64 bits, so that each of them is accessed as one."""
    return tl.int64 if bits == 64 else tl.int32


def _several(
    semantic: Any, text: str, constraints: str, operands: list[tl.tensor], count: int, piece: tl.dtype = tl.int32
) -> list[tl.tensor]:
    """Assembly with several results of one type."""
    builder = semantic.builder
    types = [piece.to_ir(builder)] * count
    operation = builder.create_inline_asm(text, constraints, [operand.handle for operand in operands], types, False, 1)
    return [tl.tensor(operation.get_result(number), piece) for number in range(count)]


def _word_bits(total: int) -> int | None:
    """Bits of one access of several words, None where the elements are accessed one by one."""
    return next((bits for bits in _ACCESS_BITS if total % bits == 0), None)


def _register(bits: int) -> str:
    return "l" if bits == 64 else "r"


LOWERINGS: dict[str, Lowering] = {
    "multimem_st": multimem_st,
    "multimem_ld_reduce": multimem_ld_reduce,
    "shfl": shfl,
    "ballot": ballot,
    "syncwarp": syncwarp,
    "shared_memory": shared_memory,
    "shared_load": shared_load,
    "shared_store": shared_store,
}
