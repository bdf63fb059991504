"""Handler of inline assembly: blocks of PTX, by ``ptx``, or a Python twin in their place."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..errors import InlineAssemblyError, UnsupportedOperationError
from .asm_layouts import ATTRIBUTE, Layout, elements_by_layout, layout_of
from .codegen import FunctionEmitter, handles
from .ir import Operation
from .ptx.binding import Binding, bind
from .ptx.block import translate
from .ptx.special import RECORD_CLOCK
from .ptx.twins import Call, find_twin


@handles("tt.elementwise_inline_asm")
def _inline_asm(emitter: FunctionEmitter, operation: Operation) -> None:
    if str(operation.attributes["asm_string"]) == RECORD_CLOCK:
        emitter.line(f"{emitter.define(operation.results[0])} = C.look_at_clock()")
        return
    twin = find_twin(operation)
    if twin is not None:
        _emit_twin(emitter, operation, twin)
        return
    attributes = operation.attributes
    try:
        block = translate(str(attributes["asm_string"]), str(attributes["constraints"]))
        binding = bind(block, int(attributes["packed_element"]), operation.operand_types, operation.result_types)
    except UnsupportedOperationError as error:
        raise type(error)(f"{emitter.location}: inline assembly, {error}") from None
    shape = _shape(operation)
    layout = layout_of(emitter.module.attributes.get(ATTRIBUTE), str(attributes["asm_string"]), shape or ())
    _check_labels(emitter, operation, binding, shape, layout)
    name, operands = emitter.module.constant(binding, "asm"), _tuple(emitter.arrays(operation))
    if emitter.vector and (block.touches or block.per_thread):
        raise emitter.fail("inline assembly that accesses memory or asks for its thread stands in a combine function")
    targets, where = _targets(emitter, operation), emitter.location_number()
    if not block.touches and not block.per_thread:
        emitter.line(f"{targets}inline_asm.compute(C, {name}, {operands}, {_kinds(emitter, operation, '')}, {where})")
        return
    if block.touches:
        emitter.line("yield")
    if shape is None:
        call = f"run_scalar(C, {name}, {operands}, {_kinds(emitter, operation, 'varying')}, {emitter.mask}, {where})"
    else:
        laid_out = "None" if layout is None else emitter.module.constant(layout, "layout")
        call = f"run_tile(C, {name}, {operands}, {shape}, {laid_out}, {emitter.mask}, {where})"
    emitter.line(f"{targets}yield from inline_asm.{call}")


def _check_labels(
    emitter: FunctionEmitter, operation: Operation, binding: Binding, shape: tuple[int, ...] | None, layout: Layout | None
) -> None:
    """A label that stands outside of braces may be in the function once. Raises InlineAssemblyError."""
    labels = binding.block.open_labels
    if not labels:
        return
    why = ""
    copies = 1 if shape is None else _copies(shape, layout, emitter.module.threads, binding.pack)
    if copies > 1:
        why = f"the compiler makes {copies} copies of the block, one for each of the elements that a thread has"
    for label in labels:
        other = emitter.labels.setdefault(label, operation)
        if other is not operation:
            why = f"the block at {other.location} has the same label"
    if why:
        raise InlineAssemblyError(
            f"{emitter.location}: inline assembly, the label {labels[0]!r} stands outside of braces and would be there again: {why}; "
            "put the block in '{ }', which keeps its labels to itself"
        )


def _copies(shape: tuple[int, ...], layout: Layout | None, threads: int, pack: int) -> int:
    laid_out = None if layout is None else elements_by_layout(layout, shape, threads, pack)
    return -(-prod(shape) // (threads * pack)) if laid_out is None else len(laid_out)


def _emit_twin(emitter: FunctionEmitter, operation: Operation, twin: Callable[..., Any]) -> None:
    call = Call(twin, str(operation.attributes["asm_string"]), operation.operand_types, operation.result_types)
    name, operands, where = emitter.module.constant(call, "twin"), _tuple(emitter.arrays(operation)), emitter.location_number()
    targets = _targets(emitter, operation)
    if operation.attributes.get("pure"):
        emitter.line(f"{targets}inline_asm.call_once(C, {name}, {operands}, {_kinds(emitter, operation, '')}, {where})")
        return
    if emitter.vector:
        raise emitter.fail("inline assembly that is not pure stands in a combine function")
    emitter.line("yield")
    emitter.line(f"{targets}inline_asm.call_each(C, {name}, {operands}, {_shape(operation)}, {emitter.mask}, {where})")
    emitter.line("yield")


def _tuple(items: list[str]) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"


def _targets(emitter: FunctionEmitter, operation: Operation) -> str:
    """``results =``, or nothing; names come into being here, so that operands have to be looked up before."""
    names = "".join(f"{emitter.define(result)}, " for result in operation.results)
    return f"{names}= " if names else ""


def _shape(operation: Operation) -> tuple[int, ...] | None:
    return next((kind.shape for kind in operation.result_types if kind.shape is not None), None)


def _kinds(emitter: FunctionEmitter, operation: Operation, array: str) -> tuple[str, ...]:
    """For each result what the run time makes of it: ``array`` where it is one, else the kind of scalar."""
    return tuple(array if emitter.kind(name).shape is not None else _kind(emitter, name) for name in operation.results)


def _kind(emitter: FunctionEmitter, name: str) -> str:
    kind = emitter.kind(name)
    return "float" if kind.is_float else "bool" if kind.element == "i1" else "int"
