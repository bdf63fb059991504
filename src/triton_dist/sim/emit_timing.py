"""What is emitted for a run for its time instead of what computes: charges for tiles, and one round of a loop for all of them.

Floating-point tiles have no value: whatever gives one is left out, and its name stands for a zero. What decides where a program goes
(integers, pointers, masks, scalars, signals) stays. A loop in which all rounds cost the same runs once.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .analysis import walk
from .ir import Block, Operation
from .ptx.block import block_of
from .types import Type

if TYPE_CHECKING:
    from .codegen import FunctionEmitter, Handler

_PURE = (
    "arith.",
    "math.",
    "tt.splat",
    "tt.unsplat",
    "tt.expand_dims",
    "tt.broadcast",
    "tt.make_range",
    "tt.trans",
    "tt.reshape",
    "tt.join",
    "tt.split",
    "tt.cat",
    "tt.gather",
    "tt.addptr",
    "tt.bitcast",
    "tt.int_to_ptr",
    "tt.ptr_to_int",
    "tt.fp_to_fp",
    "tt.reduce",
    "tt.scan",
    "tt.map_elementwise",
    "tt.clampf",
    "tt.precise_",
    "tt.approx_",
    "tt.mulhiui",
    "tt.histogram",
    "tt.get_program_id",
    "tt.get_num_programs",
    "ub.poison",
    "llvm.intr.assume",
    "tt.assert",
)
"""Ops without an effect on others."""

_TILES = ("tt.load", "tt.store", "tt.descriptor_load", "tt.descriptor_store", "tt.dot", "tt.dot_scaled", "scf.for", "scf.yield")
_QUIET_PRIMITIVES = ("td.rank", "td.num_ranks", "td.consume_token", "td.fence")
_FEW_BYTES = 64 << 10
"""Integers up to this many bytes that a program copies in a loop are copied for real."""

_SLOW = ("math.", "arith.divf", "arith.remf", "tt.precise_")
_SLOW_WEIGHT = 8
"""Lanes' time of a function that a GPU computes in units of a quarter of the lanes, in two steps."""


def _is_data(kind: Type) -> bool:
    return kind.is_float and kind.shape is not None


def _zero(emitter: FunctionEmitter, operation: Operation) -> None:
    """Let every result be a zero that stands for unknown values."""
    for name, kind in zip(operation.results, operation.result_types, strict=True):
        value = 0 if kind.shape is None and not kind.is_float else kind.dtype.type(0)
        emitter.alias(name, emitter.module.constant(value))


def handler(emitter: FunctionEmitter, operation: Operation, otherwise: Handler | None) -> Handler | None:
    """What emits an op in a run for its time. otherwise: what emits it in a run that computes."""
    if emitter.vector:
        return otherwise
    special = _TIMED.get(operation.name)
    if special is not None:
        return special if special is not _atomic or _is_data(operation.result_types[0]) else otherwise
    if not operation.name.startswith(_PURE) and not _is_library_call(operation):
        return otherwise
    if operation.name in ("tt.reduce", "tt.scan", "tt.map_elementwise"):
        return _zero if any(_is_data(kind) for kind in operation.operand_types) else otherwise
    return _zero if operation.results and all(_is_data(kind) for kind in operation.result_types) else otherwise


def _is_library_call(operation: Operation) -> bool:
    if operation.name == "tt.extern_elementwise":
        return not str(operation.attributes["symbol"]).startswith("td.")
    return operation.name == "tt.elementwise_inline_asm" and not _touches_memory(operation)


def _touches_memory(operation: Operation) -> bool:
    """Whether a block of inline assembly does more than compute."""
    block = block_of(operation)
    return block is None or block.touches


def charge_block(emitter: FunctionEmitter, block: Block) -> None:
    """Emit the time of the elementwise work of a block."""
    lanes = sum(_lanes(emitter, operation) for operation in block.operations)
    if lanes:
        emitter.line(f"C.matrix_ns += C.scale * {lanes} * C.rates.lane_ns")


def _lanes(emitter: FunctionEmitter, operation: Operation) -> int:
    """Elements that the lanes of an SM compute for an op; an index vector counts once, however wide it is broadcast."""
    name = operation.name
    if name in ("tt.reduce", "tt.scan"):
        return 2 * prod(operation.operand_types[0].dims)
    if not operation.results or operation.result_types[0].shape is None or name == "arith.constant":
        return 0
    if not name.startswith(("arith.", "math.", "tt.fp_to_fp", "tt.precise_", "tt.clampf")) and not _is_library_call(operation):
        return 0
    kind = operation.result_types[0]
    axes = emitter.facts.axes.get(operation.results[0], frozenset(range(len(kind.dims))))
    size = prod(kind.dims) if kind.is_float else prod(kind.dims[axis] for axis in axes)
    return size * (_SLOW_WEIGHT if name.startswith(_SLOW) or _is_library_call(operation) else 1)


def begin_loop(emitter: FunctionEmitter, loop: Operation, bounds: str) -> tuple[str, str]:
    """Emit what stands before a ``range`` loop. Returns what to cut its range by ("" for a loop that runs in full), and the name of the
    number of rounds that one stands for; ``end_round`` and ``end_loop`` take them."""
    if not emitter.module.timing or not _rounds_are_equal(emitter, loop):
        return "", ""
    rounds = emitter.module.fresh("n")
    emitter.line(f"{rounds} = len(range({bounds})) or 1")
    copied = sum(_integer_bytes(operation) for operation in walk(loop.regions[0]))
    if copied:
        # Integers may say where programs go later, so few of them are copied in full.
        emitter.line(f"if {rounds} * {copied} <= {_FEW_BYTES}: {rounds} = 1; a{rounds} = None")
        emitter.line(f"else: a{rounds} = 1")
    emitter.line(f"C.scale *= {rounds}")
    emitter.once += 1
    return (f"[:a{rounds}]" if copied else "[:1]"), rounds


def end_round(emitter: FunctionEmitter, loop: Operation, cut: str) -> None:
    """Emit what stands at the end of the loop's body: without products, the compiler does not load ahead."""
    if cut and not any(operation.name in ("tt.dot", "tt.dot_scaled", "scf.for") for operation in loop.regions[0][0].operations):
        emitter.line("C.end_round()")


def end_loop(emitter: FunctionEmitter, cut: str, rounds: str) -> None:
    """Emit what stands behind the loop."""
    if not cut:
        return
    emitter.once -= 1
    emitter.line(f"C.scale //= {rounds}")
    if not emitter.once:
        # Whoever is further behind goes on now, so that all meet at what they share in the order of the clock.
        emitter.line("C.settle()")
        emitter.line("yield")


def _integer_bytes(operation: Operation) -> int:
    """Bytes of the integers that an op stores."""
    if operation.name not in ("tt.store", "tt.descriptor_store") or _is_data(operation.operand_types[1]):
        return 0
    return prod(operation.operand_types[1].dims) * operation.operand_types[1].dtype.itemsize


def _rounds_are_equal(emitter: FunctionEmitter, loop: Operation) -> bool:
    """Whether one round of a loop tells the time of all: nothing in it communicates or branches, and only tiles come out of it.

    A loop around a loop of products runs in full, so that programs meet at the caches tile by tile.
    """
    if emitter.facts.reads_clock or emitter.vector or emitter.mask is not None:
        return False
    if any(emitter.facts.users[name] and not kind.is_float for name, kind in zip(loop.results, loop.result_types, strict=True)):
        return False
    inside = list(walk(loop.regions[0]))
    if any(operation.name == "scf.for" and any(_is_product(inner) for inner in walk(operation.regions[0])) for operation in inside):
        return False
    changing = _changing(loop, inside)
    return all(_is_quiet(emitter, operation, changing) for operation in inside)


def _changing(loop: Operation, inside: list[Operation]) -> set[str]:
    """The values inside a loop that may differ from round to round."""
    changing = {name for name, _ in loop.regions[0][0].arguments}
    for operation in inside:
        for region in operation.regions:
            changing.update(name for block in region for name, _ in block.arguments)
        if not operation.name.startswith(_PURE) or changing.intersection(operation.operands):
            changing.update(operation.results)
    return changing


def _is_product(operation: Operation) -> bool:
    return operation.name in ("tt.dot", "tt.dot_scaled")


_HANDS_ON = ("tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.bitcast", "arith.bitcast")


def _is_copy(emitter: FunctionEmitter, name: str) -> bool:
    """Whether an integer tile is what a load gave, and is only stored."""
    operation = emitter.facts.defined_by.get(name)
    while operation is not None and operation.name in _HANDS_ON:
        operation = emitter.facts.defined_by.get(operation.operands[0])
    return operation is not None and operation.name == "tt.load" and _is_only_stored(emitter, operation.results[0])


def _is_only_stored(emitter: FunctionEmitter, name: str) -> bool:
    return all(
        (user.name == "tt.store" and position == 1) or (user.name in _HANDS_ON and _is_only_stored(emitter, user.results[0]))
        for user, position in emitter.facts.users[name]
    )


def _is_quiet(emitter: FunctionEmitter, operation: Operation, changing: set[str]) -> bool:
    name = operation.name
    if name == "tt.extern_elementwise":
        return _is_library_call(operation) or str(operation.attributes["symbol"]).startswith(_QUIET_PRIMITIVES)
    if name == "tt.elementwise_inline_asm":
        return not _touches_memory(operation)
    if name.startswith(_PURE):
        return True
    if name == "scf.for":
        return not changing.intersection(operation.operands[:3])
    if name in ("tt.load", "tt.store"):
        kind = operation.result_types[0] if name == "tt.load" else operation.operand_types[1]
        if name == "tt.store":
            return _is_data(kind) or (kind.shape is not None and _is_copy(emitter, operation.operands[1]))
        return kind.is_float or kind.shape is not None
    return name in _TILES


def _load(emitter: FunctionEmitter, operation: Operation) -> None:
    from .emit_memory import _load as load
    from .emit_memory import _segments

    pointer, mask, other = _segments(operation, 3)
    kind = operation.result_types[0]
    dtype, origin = emitter.module.dtype(kind.dtype), emitter.origin(pointer)
    if kind.shape is None:
        if mask is not None or pointer in emitter.facts.varying:
            load(emitter, operation)
        else:
            plain = "" if kind.is_float else ".item()"
            emitter.assign(operation, f"timing.load_scalar(C, {emitter.value(pointer)}, {dtype}, {origin}){plain}")
        return
    where = f"C, {emitter.value(pointer)}, {emitter.masks(mask)}"
    if kind.is_float:
        emitter.line(f"timing.load({where}, {dtype}, {kind.shape}, {origin})")
        _zero(emitter, operation)
    else:
        fallback = emitter.array(other) if other else "None"
        emitter.assign(operation, f"timing.load_values({where}, {fallback}, {dtype}, {kind.shape}, {origin})")


def _store(emitter: FunctionEmitter, operation: Operation) -> None:
    from .emit_memory import _segments
    from .emit_memory import _store as store

    pointer, value, mask = _segments(operation, 3)
    kind = operation.operand_types[1]
    if kind.shape is None:
        store(emitter, operation)
        return
    emitter.forbid_divergence(operation)
    rest = f"{emitter.masks(mask)}, {emitter.module.dtype(kind.dtype)}, {kind.shape}, {emitter.origin(pointer)}"
    if kind.is_float:
        emitter.line(f"timing.store(C, {emitter.value(pointer)}, {rest})")
    else:
        emitter.line(f"timing.store_values(C, {emitter.value(pointer)}, {emitter.array(value)}, {rest})")


def _atomic(emitter: FunctionEmitter, operation: Operation) -> None:
    from .emit_memory import _segments

    emitter.forbid_divergence(operation)
    pointer, _, mask = _segments(operation, 3)
    kind = operation.result_types[0]
    rest = f"{emitter.masks(mask)}, {emitter.module.dtype(kind.dtype)}, {kind.shape}, {emitter.origin(pointer)}"
    emitter.line("yield")
    emitter.line(f"timing.store(C, {emitter.value(pointer)}, {rest})")
    _zero(emitter, operation)


def _descriptor_load(emitter: FunctionEmitter, operation: Operation) -> None:
    from .emit_memory import _index

    source, *index = operation.operands
    emitter.line(f"timing.descriptor_load(C, {emitter.value(source)}, {_index(emitter, index)})")
    kind = operation.result_types[0]
    if kind.is_float:
        _zero(emitter, operation)
        return
    before = emitter.module.fresh("ns")
    emitter.line(f"{before} = C.memory_ns")
    emitter.assign(operation, f"descriptor.load(C, {emitter.value(source)}, {_index(emitter, index)}, {kind.shape})")
    emitter.line(f"C.memory_ns = {before}")


def _descriptor_store(emitter: FunctionEmitter, operation: Operation) -> None:
    from .emit_memory import _index

    emitter.forbid_divergence(operation)
    target, value, *index = operation.operands
    emitter.line(f"timing.descriptor_store(C, {emitter.value(target)}, {_index(emitter, index)})")
    if operation.operand_types[1].is_float:
        return
    before = emitter.module.fresh("ns")
    emitter.line(f"{before} = C.memory_ns")
    if operation.name == "tt.descriptor_reduce":
        kind = operation.attributes["kind"]
        emitter.line(f"descriptor.reduce(C, {emitter.value(target)}, {_index(emitter, index)}, {emitter.array(value)}, {kind})")
    else:
        emitter.line(f"descriptor.store(C, {emitter.value(target)}, {_index(emitter, index)}, {emitter.array(value)})")
    emitter.line(f"C.memory_ns = {before}")


_SMALLEST_M = 64
"""Rows of the smallest matrix instruction of Hopper: fewer take as long."""

_IEEE = 2


def _dot(emitter: FunctionEmitter, operation: Operation) -> None:
    left, right = operation.operand_types[0], operation.result_types[0]
    *batch, m, n = right.dims
    depth = left.dims[-1] * (2 if operation.name == "tt.dot_scaled" and left.dtype.kind in "iu" else 1)
    flop = 2 * prod(batch) * max(m, _SMALLEST_M) * n * depth
    size = 1 if operation.name == "tt.dot_scaled" else left.dtype.itemsize
    ieee = size == 4 and operation.name == "tt.dot" and operation.attributes.get("inputPrecision", _IEEE) == _IEEE
    emitter.line(f"C.matrix_ns += C.scale * {flop} * C.rates.{'fp32_flop_ns' if ieee else f'flop_ns[{size}]'}")
    _zero(emitter, operation)


_TIMED: dict[str, Handler] = {
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": _descriptor_store,
    "tt.descriptor_reduce": _descriptor_store,
    "tt.dot": _dot,
    "tt.dot_scaled": _dot,
}
