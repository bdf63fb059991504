"""Handler of inline assembly: blocks of PTX, by ``ptx``, or a Python twin in their place."""

from __future__ import annotations

from ..errors import UnsupportedOperationError
from .codegen import FunctionEmitter, handles
from .ir import Operation
from .ptx.binding import bind
from .ptx.block import translate


@handles("tt.elementwise_inline_asm")
def _inline_asm(emitter: FunctionEmitter, operation: Operation) -> None:
    attributes = operation.attributes
    text, pack = str(attributes["asm_string"]), int(attributes["packed_element"])
    try:
        block = translate(text, str(attributes["constraints"]))
        binding = bind(block, pack, operation.operand_types, operation.result_types)
    except UnsupportedOperationError as error:
        raise type(error)(f"{emitter.location}: inline assembly, {error}") from None
    name = emitter.module.constant(binding, "asm")
    operands = "(" + "".join(f"{operand}, " for operand in emitter.arrays(operation)) + ")"
    tile = next((kind.shape for kind in operation.result_types if kind.shape is not None), None)
    where = emitter.location_number()
    results = operation.results
    targets = [emitter.define(result) for result in results]
    if emitter.vector and (block.touches or block.per_thread):
        raise emitter.fail("inline assembly that accesses memory or asks for its thread stands in a combine function")
    assigned = "".join(f"{target}, " for target in targets)
    if not block.touches and not block.per_thread:
        kinds = tuple("" if emitter.kind(result).shape is not None else _kind(emitter, result) for result in results)
        emitter.line(f"{assigned}= inline_asm.compute(C, {name}, {operands}, {kinds}, {where})")
        return
    if block.touches:
        emitter.line("yield")
    if tile is not None:
        call = f"inline_asm.run_tile(C, {name}, {operands}, {tile}, {emitter.mask}, {where})"
    else:
        kinds = tuple("varying" if emitter.kind(result).shape is not None else _kind(emitter, result) for result in results)
        call = f"inline_asm.run_scalar(C, {name}, {operands}, {kinds}, {emitter.mask}, {where})"
    emitter.line(f"{assigned}= yield from {call}")


def _kind(emitter: FunctionEmitter, name: str) -> str:
    kind = emitter.kind(name)
    return "float" if kind.is_float else "bool" if kind.element == "i1" else "int"
