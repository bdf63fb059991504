"""Handlers of ops on shapes, pointers, reductions, scans and matrix products."""

from __future__ import annotations

import numpy as np

from .analysis import walk
from .codegen import FunctionEmitter, handles
from .ir import Block, Operation
from .ops.reduce import UFUNCS


@handles("tt.get_program_id")
def _program_id(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.assign(operation, f"C.pid[{operation.attributes['axis']}]")


@handles("tt.get_num_programs")
def _num_programs(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.assign(operation, f"C.num_programs[{operation.attributes['axis']}]")


@handles("tt.make_range")
def _make_range(emitter: FunctionEmitter, operation: Operation) -> None:
    start, end = operation.attributes["start"], operation.attributes["end"]
    emitter.alias(operation.results[0], emitter.module.constant(np.arange(start, end, dtype=np.int32)))


@handles("tt.splat")
def _splat(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.forbid_varying(operation)
    kind = operation.operand_types[0]
    python = emitter.value(operation.operands[0])
    if kind.is_pointer or kind.is_float:
        emitter.alias(operation.results[0], python)
    else:
        emitter.assign(operation, emitter.array(operation.operands[0]))


@handles("tt.unsplat")
def _unsplat(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.assign_scalar(operation, f"np.asarray({emitter.value(operation.operands[0])}).reshape(-1)[0]")


@handles("tt.broadcast")
def _broadcast(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.alias(operation.results[0], emitter.value(operation.operands[0]))


@handles("tt.expand_dims")
def _expand_dims(emitter: FunctionEmitter, operation: Operation) -> None:
    index = emitter.module.constant((slice(None),) * operation.attributes["axis"] + (None,), "index")
    emitter.assign(operation, f"reduce.expand_dims({emitter.array(operation.operands[0])}, {index})")


@handles("tt.reshape")
def _reshape(emitter: FunctionEmitter, operation: Operation) -> None:
    source, kind = operation.operand_types[0], operation.result_types[0]
    emitter.assign(operation, f"reduce.reshape({emitter.array(operation.operands[0])}, {source.shape}, {kind.shape})")


@handles("tt.trans")
def _transpose(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.assign(operation, f"reduce.transpose({emitter.array(operation.operands[0])}, {operation.attributes['order']})")


@handles("tt.join")
def _join(emitter: FunctionEmitter, operation: Operation) -> None:
    a, b = emitter.arrays(operation)
    emitter.assign(operation, f"reduce.join({a}, {b}, {operation.operand_types[0].shape})")


@handles("tt.split")
def _split(emitter: FunctionEmitter, operation: Operation) -> None:
    first, second = (emitter.define(name) for name in operation.results)
    emitter.line(f"{first}, {second} = reduce.split({emitter.array(operation.operands[0])}, {operation.operand_types[0].shape})")


@handles("tt.cat")
def _concatenate(emitter: FunctionEmitter, operation: Operation) -> None:
    a, b = emitter.arrays(operation)
    shapes = ", ".join(str(kind.shape) for kind in operation.operand_types)
    emitter.assign(operation, f"reduce.concatenate({a}, {b}, {shapes})")


@handles("tt.gather")
def _gather(emitter: FunctionEmitter, operation: Operation) -> None:
    x, index = emitter.arrays(operation)
    shapes = ", ".join(str(kind.shape) for kind in operation.operand_types)
    emitter.assign(operation, f"reduce.gather({x}, {index}, {shapes}, {operation.attributes['axis']})")


@handles("tt.histogram")
def _histogram(emitter: FunctionEmitter, operation: Operation) -> None:
    operands = emitter.arrays(operation)
    mask = operands[1] if len(operands) > 1 else "None"
    kind = operation.result_types[0]
    shape = operation.operand_types[0].shape
    bins = kind.dims[0]
    emitter.assign(operation, f"reduce.histogram({operands[0]}, {mask}, {shape}, {bins}, {emitter.module.dtype(kind.dtype)})")


@handles("tt.addptr")
def _add_pointer(emitter: FunctionEmitter, operation: Operation) -> None:
    pointer, offset = operation.operands
    size = operation.result_types[0].pointee_size
    if operation.result_types[0].shape is None:
        if emitter.is_tensor(operation):  # pointers that vary from thread to thread
            emitter.assign(operation, f"{emitter.array(pointer)} + {emitter.array(offset)}.astype(np.int64) * {size}")
        else:
            emitter.assign(operation, f"{emitter.value(pointer)} + {emitter.value(offset)} * {size}")
        return
    if offset in emitter.facts.uniform:
        emitter.assign(operation, f"shift_all({emitter.value(pointer)}, ({emitter.uniform(offset)}) * {size})")
        return
    names = emitter.terms(offset, "arith.addi")
    terms = "".join(f"{emitter.array(name)}, " for name in names)
    linear = emitter.module.constant(tuple(name in emitter.facts.linear for name in names), "linear")
    emitter.assign(operation, f"add_offsets({emitter.value(pointer)}, ({terms}), {size}, {linear})")


@handles("tt.ptr_to_int", "tt.int_to_ptr")
def _pointer_cast(emitter: FunctionEmitter, operation: Operation) -> None:
    if operation.name == "tt.int_to_ptr":
        emitter.alias(operation.results[0], emitter.value(operation.operands[0]))
    elif emitter.is_tensor(operation):
        emitter.assign(operation, emitter.array(operation.operands[0]))
    else:
        emitter.alias(operation.results[0], emitter.value(operation.operands[0]))


@handles("tt.dot")
def _dot(emitter: FunctionEmitter, operation: Operation) -> None:
    a, b, accumulator = emitter.arrays(operation)
    left, right = operation.operand_types[:2]
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    precision = operation.attributes.get("inputPrecision", 2)
    emitter.assign(operation, f"matrix.dot(C, {a}, {b}, {accumulator}, {dtype}, {left.shape}, {right.shape}, {precision})")


@handles("tt.dot_scaled")
def _dot_scaled(emitter: FunctionEmitter, operation: Operation) -> None:
    attributes = operation.attributes
    present = list(attributes["operandSegmentSizes"])
    arrays = iter(zip(emitter.arrays(operation), operation.operand_types, strict=True))
    a, b, accumulator, scale_a, scale_b = (next(arrays) if there else None for there in present)
    shapes = tuple(item[1].shape if item else None for item in (a, b, scale_a, scale_b))
    kinds = (attributes["a_elem_type"], attributes["b_elem_type"])
    packed = (attributes.get("lhs_k_pack", True), attributes.get("rhs_k_pack", True))
    names = ", ".join(item[0] if item else "None" for item in (a, b, accumulator, scale_a, scale_b))
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    emitter.assign(operation, f"matrix.dot_scaled(C, {names}, {kinds}, {packed}, {shapes}, {dtype})")


def _single_op(block: Block) -> str | None:
    """The name of the one op that a combine region consists of, applied to its two arguments."""
    if len(block.operations) != 2 or len(block.arguments) != 2:
        return None
    operation, end = block.operations
    arguments = {name for name, _ in block.arguments}
    whole = end.name.endswith(".return") and end.operands == operation.results
    return operation.name if whole and set(operation.operands) == arguments else None


_ON_ARRAYS = (
    *("arith.", "math.", "scf.if", "scf.yield", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.mulhiui", "tt.precise_", "tt.approx_"),
    *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return", "tt.extern_elementwise", "ub.poison"),
)
"""Ops, or their first letters, that mean the same for an array of scalars as for each of them."""


def _combine_function(emitter: FunctionEmitter, blocks: list[Block]) -> str:
    """Emit a region as a Python function of arrays, and return its name."""
    if len(blocks) > 1 or not all(operation.name.startswith(_ON_ARRAYS) for operation in walk(blocks)):
        return _scalar_function(emitter, blocks)
    block = blocks[0]
    name = emitter.module.fresh("combine")
    outer_vector, outer_names, outer_types = emitter.vector, dict(emitter.names), dict(emitter.types)
    emitter.vector = True
    parameters = ", ".join(emitter.define(argument) for argument, _ in block.arguments)
    emitter.line(f"def {name}({parameters}):")
    emitter.indent += 1
    for operation in block.operations[:-1]:
        emitter.emit_operation(operation)
    results = ", ".join(emitter.array(operand) for operand in block.operations[-1].operands)
    emitter.line(f"return ({results},)")
    emitter.indent -= 1
    emitter.vector, emitter.names, emitter.types = outer_vector, outer_names, outer_types
    return name


def _scalar_function(emitter: FunctionEmitter, blocks: list[Block]) -> str:
    """Emit a region with loops, calls or early returns as a generator function of scalars that is called for each element."""
    name = emitter.module.fresh("scalar")
    outer_names, outer_types = dict(emitter.names), dict(emitter.types)
    parameters = ", ".join(emitter.define(argument) for argument, _ in blocks[0].arguments)
    emitter.line(f"def {name}({parameters}):")
    emitter.indent += 1
    emitter.emit_blocks(blocks)
    emitter.line("if 0: yield")
    emitter.indent -= 1
    emitter.names, emitter.types = outer_names, outer_types
    end = next(block.operations[-1] for block in blocks if block.operations[-1].name.endswith(".return"))
    dtypes = "".join(f"{emitter.module.dtype(kind.dtype)}, " for kind in end.operand_types)
    combine = emitter.module.fresh("combine")
    emitter.line(f"{combine} = reduce.by_element({name}, ({dtypes}))")
    return combine


@handles("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")
def _region_return(emitter: FunctionEmitter, operation: Operation) -> None:
    emitter.line(f"return ({''.join(f'{value}, ' for value in emitter.values(operation))})")


def _unpack(emitter: FunctionEmitter, operation: Operation, expression: str) -> None:
    """Assign a tuple of arrays; scalars of the IR become Python scalars."""
    results = [emitter.define(name) for name in operation.results]
    emitter.line(f"{', '.join(results)}, = {expression}")
    for python, kind in zip(results, operation.result_types, strict=True):
        if kind.shape is None and not kind.is_float and not emitter.vector:
            emitter.line(f"{python} = {python}.item()")


@handles("tt.reduce")
def _reduce(emitter: FunctionEmitter, operation: Operation) -> None:
    shape = operation.operand_types[0].shape
    axis = operation.attributes["axis"]
    block = operation.regions[0][0]
    single = _single_op(block)
    if single in UFUNCS and operation.result_types[0].element != "i1":
        ufunc = emitter.module.constant(UFUNCS[single], "ufunc")
        emitter.assign_scalar(operation, f"reduce.reduce_ufunc({ufunc}, {emitter.array(operation.operands[0])}, {shape}, {axis})")
        return
    combine = _combine_function(emitter, operation.regions[0])
    inputs = ", ".join(emitter.arrays(operation))
    _unpack(emitter, operation, f"reduce.reduce_tree({combine}, [{inputs}], {shape}, {axis})")


@handles("tt.scan")
def _scan(emitter: FunctionEmitter, operation: Operation) -> None:
    shape = operation.operand_types[0].shape
    combine = _combine_function(emitter, operation.regions[0])
    inputs = ", ".join(emitter.arrays(operation))
    attributes = operation.attributes
    _unpack(emitter, operation, f"reduce.scan({combine}, [{inputs}], {shape}, {attributes['axis']}, {attributes['reverse']})")


@handles("tt.map_elementwise")
def _map_elementwise(emitter: FunctionEmitter, operation: Operation) -> None:
    combine = _combine_function(emitter, operation.regions[0])
    inputs = ", ".join(emitter.arrays(operation))
    shape = operation.operand_types[0].shape
    pack = operation.attributes.get("pack", 1)
    dtypes = "".join(f"{emitter.module.dtype(kind.dtype)}, " for kind in operation.result_types)
    _unpack(emitter, operation, f"reduce.map_packed({combine}, [{inputs}], {shape}, {pack}, ({dtypes}))")
