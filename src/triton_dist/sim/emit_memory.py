"""Handlers of loads, stores, atomics, descriptors, prints and assertions."""

from __future__ import annotations

from typing import Any

from .codegen import FunctionEmitter, handles
from .ir import Operation
from .types import Type, element_dtype

_RELEASES = (3, 4)
"""``sem`` of atomics that release, as the IR numbers them: release, acq_rel."""


def _segments(operation: Operation, count: int) -> list[Any]:
    """Operands by position, None for those that are left out."""
    sizes = operation.attributes.get("operandSegmentSizes")
    operands = iter(operation.operands)
    if sizes is None:
        return (list(operation.operands) + [None] * count)[:count]
    return [next(operands) if size else None for size in sizes]


@handles("tt.load")
def _load(emitter: FunctionEmitter, operation: Operation) -> None:
    pointer, mask, other = _segments(operation, 3)
    kind = operation.result_types[0]
    dtype = emitter.module.dtype(kind.dtype)
    origin = emitter.origin(pointer)
    if kind.shape is not None:
        fallback = emitter.array(other) if other else "None"
        call = f"memory.load(C, {emitter.value(pointer)}, {emitter.masks(mask)}, {fallback}, {dtype}, {kind.shape}, {origin}"
        emitter.assign(operation, f"{call}, {operation.results[0] in emitter.facts.borrowed})")
        return
    if any(operand in emitter.facts.varying for operand in operation.operands):
        arguments = ", ".join([emitter.array(pointer), emitter.array(mask) if mask else "True", dtype, emitter.mask or "None"])
        fallback = f", {emitter.array(other)}" if other else ""
        emitter.assign(operation, f"primitives.load_each(C, {arguments}{fallback})")
        return
    call = f"memory.load_scalar(C, {emitter.value(pointer)}, {dtype}, {origin})"
    plain = "" if kind.is_float else ".item()"
    if mask is None:
        emitter.assign(operation, call + plain)
    else:
        fallback = emitter.value(other) if other else f"{dtype}.type(0)" if kind.is_float else "0"
        emitter.assign(operation, f"{call}{plain} if {emitter.value(mask)} else {fallback}")


def _access(emitter: FunctionEmitter, kind: Type, pointer: str) -> tuple[str, str, int]:
    """Python names of an element's dtype and of the allocation that a pointer is from, and the number of the source line."""
    return emitter.module.dtype(kind.dtype), emitter.origin(pointer), emitter.location_number()


@handles("tt.store")
def _store(emitter: FunctionEmitter, operation: Operation) -> None:
    pointer, value, mask = _segments(operation, 3)
    kind = operation.operand_types[1]
    dtype, origin, where = _access(emitter, kind, pointer)
    if kind.shape is not None:
        emitter.forbid_divergence(operation)
        arguments = f"{emitter.value(pointer)}, {emitter.array(value)}, {emitter.masks(mask)}, {dtype}, {kind.shape}, {origin}"
        emitter.line(f"memory.store(C, {arguments})")
        return
    if emitter.mask is not None or any(operand in emitter.facts.varying for operand in operation.operands):
        on = emitter.array(mask) if mask else "True"
        arguments = f"{emitter.array(pointer)}, {emitter.array(value)}, {on}, {dtype}, {emitter.mask or 'None'}, {where}"
        emitter.line(f"primitives.store_first(C, {arguments})")
        return
    guard = f"if {emitter.value(mask)}: " if mask else ""
    emitter.line(f"{guard}memory.store_scalar(C, {emitter.value(pointer)}, {emitter.value(value)}, {dtype}, {origin}, {where})")


@handles("tt.atomic_rmw")
def _atomic(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.forbid_divergence(operation)
    pointer, value, mask = _segments(operation, 3)
    kind = operation.result_types[0]
    dtype, origin, where = _access(emitter, kind, pointer)
    what = operation.attributes["atomic_rmw_op"]
    used = bool(emitter.facts.users[operation.results[0]])
    emitter.line("yield")
    if kind.shape is not None:
        arguments = f"{what}, {emitter.value(pointer)}, {emitter.array(value)}, {emitter.masks(mask)}, {dtype}, {kind.shape}"
        emitter.assign(operation, f"memory.atomic(C, {arguments}, {origin}, {used}, {where})")
        return
    emitter.forbid_varying(operation)
    arguments = f"{what}, {emitter.value(pointer)}, {emitter.value(value)}, {emitter.value(mask) if mask else True}, {dtype}"
    emitter.assign_scalar(operation, f"memory.atomic_scalar(C, {arguments}, {origin}, {where})")
    if not used and operation.attributes["sem"] in _RELEASES:
        emitter.yield_after_release()


@handles("tt.atomic_cas")
def _compare_and_swap(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.forbid_divergence(operation)
    pointer, expected, value = operation.operands
    kind = operation.result_types[0]
    dtype, origin, where = _access(emitter, kind, pointer)
    emitter.line("yield")
    if kind.shape is not None:
        arguments = f"{emitter.value(pointer)}, {emitter.array(expected)}, {emitter.array(value)}, {dtype}, {kind.shape}, {origin}, {where}"
        emitter.assign(operation, f"memory.compare_and_swap(C, {arguments})")
        return
    emitter.forbid_varying(operation)
    arguments = f"{emitter.value(pointer)}, {emitter.value(expected)}, {emitter.value(value)}, {dtype}, {origin}, {where}"
    emitter.assign_scalar(operation, f"memory.compare_and_swap_scalar(C, {arguments})")


@handles("tt.atomic_load")
def _atomic_load(emitter: FunctionEmitter, operation: Operation) -> None:
    """Triton 3.9: a load of words that another program may be writing."""
    pointer, mask = operation.operands
    kind = operation.result_types[0]
    dtype = emitter.module.dtype(kind.dtype)
    origin = emitter.origin(pointer)
    emitter.line("yield")
    if kind.shape is not None:
        emitter.assign(operation, f"memory.load(C, {emitter.value(pointer)}, {emitter.masks(mask)}, None, {dtype}, {kind.shape}, {origin})")
        return
    emitter.forbid_varying(operation)
    call = f"primitives.load_word(C, {emitter.value(pointer)}, {dtype}, {origin})"
    emitter.assign_scalar(operation, f"({call} if {emitter.value(mask)} else {dtype}.type(0))")


@handles("tt.atomic_store")
def _atomic_store(emitter: FunctionEmitter, operation: Operation) -> None:
    """Triton 3.9: a store of words that another program may be reading."""
    emitter.line("yield")
    _store(emitter, operation)


@handles("tt.atomic_poll")
def _atomic_poll(emitter: FunctionEmitter, operation: Operation) -> None:
    """Triton 3.9: wait until a word has a value, or until a time-out; gives whether it had."""
    pointer, expected, *rest = operation.operands
    kind = operation.operand_types[1]
    dtype = emitter.module.dtype(kind.dtype)
    timeout = emitter.value(rest[0]) if rest else "None"
    if kind.shape is not None:
        arguments = f"{emitter.array(pointer)}, {emitter.array(expected)}, {timeout}, {dtype}, {kind.shape}"
        emitter.assign(operation, f"yield from primitives.atomic_poll_tile(C, {arguments})")
        return
    arguments = f"{emitter.value(pointer)}, {emitter.value(expected)}, {timeout}, {dtype}"
    emitter.assign_scalar(operation, f"(yield from primitives.atomic_poll(C, {arguments}))")


@handles("tt.make_tensor_descriptor")
def _make_descriptor(emitter: FunctionEmitter, operation: Operation) -> None:
    kind = operation.result_types[0]
    rank = len(kind.dims)
    base, *sizes = operation.operands
    shape = "".join(f"{emitter.value(name)}, " for name in sizes[:rank])
    strides = "".join(f"{emitter.value(name)}, " for name in sizes[rank : 2 * rank])
    dtype = emitter.module.dtype(element_dtype(kind.pointee))
    nan = operation.attributes.get("padding") == 2
    is_unsigned = kind.pointee.startswith("ui")
    arguments = f"{emitter.value(base)}, ({shape}), ({strides}), {kind.shape}, {dtype}, {nan}, {emitter.origin(base)}, {is_unsigned}"
    emitter.assign(operation, f"descriptor.Descriptor({arguments})")


def _index(emitter: FunctionEmitter, names: list[str]) -> str:
    return "(" + "".join(f"{emitter.value(name)}, " for name in names) + ")"


@handles("tt.descriptor_load")
def _descriptor_load(emitter: FunctionEmitter, operation: Operation) -> None:
    source, *index = operation.operands
    shape = operation.result_types[0].shape
    emitter.assign(operation, f"descriptor.load(C, {emitter.value(source)}, {_index(emitter, index)}, {shape})")


@handles("tt.descriptor_store")
def _descriptor_store(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.forbid_divergence(operation)
    target, value, *index = operation.operands
    emitter.line(f"descriptor.store(C, {emitter.value(target)}, {_index(emitter, index)}, {emitter.array(value)})")


@handles("tt.descriptor_reduce")
def _descriptor_reduce(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.forbid_divergence(operation)
    target, value, *index = operation.operands
    kind = operation.attributes["kind"]
    emitter.line("yield")
    emitter.line(f"descriptor.reduce(C, {emitter.value(target)}, {_index(emitter, index)}, {emitter.array(value)}, {kind})")


@handles("tt.descriptor_gather")
def _descriptor_gather(emitter: FunctionEmitter, operation: Operation) -> None:
    source, rows, column = operation.operands
    shape = operation.result_types[0].shape
    emitter.assign(operation, f"descriptor.gather(C, {emitter.value(source)}, {emitter.array(rows)}, {emitter.value(column)}, {shape})")


@handles("tt.descriptor_scatter")
def _descriptor_scatter(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.forbid_divergence(operation)
    target, rows, column, value = operation.operands
    position = next(i for i, kind in enumerate(operation.operand_types) if kind.shape is not None and len(kind.shape) == 2 and i > 0)
    value = operation.operands[position]
    rows, column = (name for i, name in enumerate(operation.operands) if i not in (0, position))
    shape = operation.operand_types[position].shape
    arguments = f"{emitter.value(target)}, {emitter.array(rows)}, {emitter.value(column)}, {emitter.array(value)}, {shape}"
    emitter.line(f"descriptor.scatter(C, {arguments})")


@handles("tt.assert")
def _assert(emitter: FunctionEmitter, operation: Operation) -> None:
    message = operation.attributes.get("message", "")
    emitter.line(f"debug.check(C, {emitter.value(operation.operands[0])}, {message!r})")


@handles("llvm.intr.assume")
def _assume(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.line(f"debug.check(C, {emitter.value(operation.operands[0])}, 'tl.assume does not hold')")


@handles("tt.print")
def _print(emitter: FunctionEmitter, operation: Operation) -> None:
    attributes = operation.attributes
    values = "".join(f"{emitter.array(name)}, " for name in operation.operands)
    shapes = "".join(f"{kind.shape}, " for kind in operation.operand_types)
    signed = attributes.get("isSigned", [])
    emitter.line(f"debug.show(C, {attributes.get('prefix', '')!r}, {bool(attributes.get('hex'))}, ({values}), ({shapes}), {signed})")
