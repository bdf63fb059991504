"""Lowering for the simulator of vectors and of the shared memory of simt regions; what else threads do is one opaque operation each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import triton.language as tl

from triton_dist.primitives.call import Call, Lowering, constant
from triton_dist.primitives.hip_threads import ld_vector, st_vector
from triton_dist.primitives.table import PRIMITIVES
from triton_dist.primitives.vector import vector

_LIBRARY = "triton_dist"


def lowerings(emit_opaque: Lowering) -> dict[str, Lowering]:
    """The rows that are not one opaque operation. ``emit_opaque`` emits one."""

    def load(semantic: Any, call: Call) -> tl.tensor:
        return emit_opaque(semantic, replace(call, primitive=PRIMITIVES["ld"]))

    def store(semantic: Any, call: Call) -> tl.tensor:
        return emit_opaque(semantic, replace(call, primitive=PRIMITIVES["st"]))

    def vector_load(semantic: Any, call: Call) -> Any:
        _check_alignment(semantic, call, call.choice("vec_size"), call.result)
        return ld_vector(semantic, call, load)

    def vector_store(semantic: Any, call: Call) -> None:
        _check_alignment(semantic, call, len(call["vec"]), call["vec"].dtype)
        st_vector(semantic, call, store)

    return {
        "ld_vector": vector_load,
        "st_vector": vector_store,
        "multimem_st": multimem_st,
        "multimem_ld_reduce": multimem_ld_reduce,
        "atomic_min": ordered_update,
        "atomic_max": ordered_update,
        "shared_memory": shared_memory,
        "shared_load": shared_load,
        "shared_store": shared_store,
    }


def ordered_update(semantic: Any, call: Call) -> tl.tensor:
    """One opaque operation whose symbol says whether words are signed, since the IR's integers do not."""
    parameters = {"scope": call.choice("scope"), "sem": call.choice("semantic"), "sign": "s" if call.result.is_int_signed() else "u"}
    symbol = ";".join([f"td.{call.primitive.name}", *(f"{key}={value}" for key, value in parameters.items())])
    return _opaque(semantic, symbol, [call["ptr"], call["val"]], call.result)


def multimem_st(semantic: Any, call: Call) -> None:
    """One operation a word."""
    values = list(call["val"])
    _check_alignment(semantic, call, len(values), values[0].dtype)
    for number, value in enumerate(values):
        place = semantic.add(call["ptr"], constant(semantic, number, tl.int32), False)
        _opaque(semantic, f"td.multimem_st;type={call.choice('type')}", [place, value], tl.int32)


def multimem_ld_reduce(semantic: Any, call: Call) -> vector:
    """One operation a word."""
    count = call.choice("vec_size")
    _check_alignment(semantic, call, count, call.result)
    places = [semantic.add(call["ptr"], constant(semantic, number, tl.int32), False) for number in range(count)]
    symbol = f"td.multimem_ld_reduce;acc={call.choice('accumulator')};type={call.choice('type')}"
    return vector([_opaque(semantic, symbol, [place], call.result) for place in places])


def shared_memory(semantic: Any, call: Call) -> tl.tensor:
    """An offset into the memory of the program; regions of one function that need as many bytes have the same."""
    return _opaque(semantic, f"td.shared_memory;bytes={call.choice('bytes')};key={call.choice('key')}", [], tl.int32, pure=True)


def shared_load(semantic: Any, call: Call) -> tl.tensor:
    """Reads integers of the result's width."""
    address = call["address"]
    result = address.type.with_element_ty(call.result) if address.type.is_block() else call.result
    return _opaque(semantic, "td.shared_load", [address], result)


def shared_store(semantic: Any, call: Call) -> None:
    """Writes integers of the value's width."""
    address = call["address"]
    result = address.type.with_element_ty(tl.int32) if address.type.is_block() else tl.int32
    _opaque(semantic, "td.shared_store", [address, call["value"]], result)


def check_index(semantic: Any, indices: Sequence[tl.tensor], extents: Sequence[int]) -> None:
    """Names an index that is outside the tile; a GPU does not look."""
    _opaque(semantic, f"td.check_index;shape={'x'.join(map(str, extents))}", list(indices), tl.int32)


def _check_alignment(semantic: Any, call: Call, count: int, element: tl.dtype) -> None:
    """Names an address that the wide accesses of a GPU would fault on."""
    total = count * element.primitive_bitwidth // 8
    width = next((width for width in (16, 8) if total % width == 0), element.primitive_bitwidth // 8)
    _opaque(semantic, f"td.check_alignment;bytes={width};what={call.primitive.name}", [call["ptr"]], tl.int32)


def _opaque(semantic: Any, symbol: str, operands: list[tl.tensor], result: Any, pure: bool = False) -> tl.tensor:
    builder = semantic.builder
    handles = [operand.handle for operand in operands]
    handle = builder.create_extern_elementwise(_LIBRARY, "", symbol, handles, result.to_ir(builder), pure)
    return tl.tensor(handle, result)
