"""What is emitted besides, for a run with lints: which elements of a value are undefined (TD112), and which offsets overflow (TD115).

A value may have a companion, a Python local of its own:

- *undefined*: True for the elements that a load masked off with no ``other``, and for all that is computed from them. False if there are
  none.
- *exact*: of an integer that becomes part of an address, what it would be with unlimited width; None if that is the value itself. Of a
  pointer, True for the elements whose offset is not exact.

Where a value ends up (a store, an address, a branch, a signal), only the elements count that its mask lets through. A companion follows
arithmetic, changes of shape, reductions, products, loops and conditions; what else a value goes into is taken for defined and exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .analysis import FunctionFacts, walk
from .ir import Location, Operation

if TYPE_CHECKING:
    from .codegen import FunctionEmitter

_ELEMENTWISE = ("arith.", "math.", "tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.precise_", "tt.clampf", "tt.int_to_ptr", "tt.ptr_to_int")
_SHAPES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans")
_SUMS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.shli": "<<"}
_OFFSETS = (*_SUMS, *_SHAPES, "arith.extsi")
_POINTERS = ("tt.addptr", *_SHAPES)
_CALLS = ("td.notify", "td.wait", "td.st;", "td.atomic_", "td.shmem_signal")
"""Primitives whose operands become visible to others."""


def _symbol(operation: Operation) -> str:
    return str(operation.attributes.get("symbol", "")) if operation.name == "tt.extern_elementwise" else ""


def _passes_pointer(operation: Operation) -> bool:
    return operation.name in _POINTERS or _symbol(operation).startswith(("td.consume_token", "td.symm_at"))


def _is_maskless(operation: Operation) -> bool:
    """Whether an op is a load with a mask and nothing for what the mask leaves out."""
    return operation.name == "tt.load" and list(operation.attributes.get("operandSegmentSizes", [])) == [1, 1, 0]


class Lanes:
    """The companions of one function's values. Makes nothing deferred that has one."""

    def __init__(self, emitter: FunctionEmitter) -> None:
        self._emitter = emitter
        facts = emitter.facts
        operations = list(walk(emitter.function.regions[0]))
        self._offsets = _find_offsets(operations, facts)
        self._sources: dict[str, Location] = {}
        """For each value that may have undefined elements, the load that they come from."""
        self._inexact: set[str] = set()
        size = -1
        while size != len(self._sources) + len(self._inexact):
            size = len(self._sources) + len(self._inexact)
            for operation in operations:
                self._find(operation)
        _compute(self._offsets | set(self._sources), facts)
        self._undefined: dict[str, str] = {}
        self._exact: dict[str, str] = {}

    # Which values may have a companion

    def _find(self, operation: Operation) -> None:
        name = operation.name
        if _is_maskless(operation) and not self._emitter.facts.varying.intersection(operation.operands):
            self._sources.setdefault(operation.results[0], operation.location)
        elif (
            name.startswith(_ELEMENTWISE)
            or name in ("tt.reduce", "tt.dot")
            or name in _SHAPES
            or _symbol(operation).startswith("td.consume")
        ):
            for result in operation.results:
                self._spread(result, operation.operands)
        elif name in ("scf.for", "scf.if"):
            for target, source in _carried(operation):
                self._spread(target, [source])
        if name in ("scf.for", "scf.if"):
            self._inexact.update(target for target, source in _carried(operation) if source in self._inexact and self._is_pointer(target))
        elif operation.results and operation.results[0] in self._offsets and name in _OFFSETS:
            if (name in _SUMS and operation.result_types[0].element == "i32") or self._inexact.intersection(operation.operands):
                self._inexact.add(operation.results[0])
        elif _passes_pointer(operation) and self._is_pointer(operation.results[0]) and self._inexact.intersection(operation.operands):
            self._inexact.add(operation.results[0])

    def _is_pointer(self, name: str) -> bool:
        return self._emitter.facts.types[name].is_pointer

    def _spread(self, target: str, operands: list[str]) -> None:
        source = next((self._sources[operand] for operand in operands if operand in self._sources), None)
        if source is not None and target not in self._emitter.facts.varying:
            self._sources.setdefault(target, source)

    # What is emitted

    def _new(self, companions: dict[str, str], name: str, expression: str) -> None:
        companions[name] = self._emitter.module.fresh("u" if companions is self._undefined else "e")
        self._emitter.line(f"{companions[name]} = {expression}")

    def _has_undefined(self, name: str) -> str:
        return self._undefined.get(name, "False")

    def _has_exact(self, name: str) -> str:
        return self._exact.get(name, "False" if self._is_pointer(name) else "None")

    def before(self, operation: Operation) -> None:
        """Check what an op makes visible, before it does."""
        emitter, name = self._emitter, operation.name
        if emitter.vector or emitter.mask is not None:
            return
        if name in ("tt.load", "tt.store", "tt.atomic_rmw"):
            self._check_access(operation)
        elif name in ("scf.if", "cf.cond_br", "scf.condition"):
            self._check_used(operation.operands[:1], "()", "branches on")
        elif name == "scf.for":
            self._check_used(operation.operands[:3], "()", "takes as a bound of a loop")
        elif _symbol(operation).startswith(_CALLS):
            self._check_used(operation.operands, "()", "signals by or waits for")

    def _check_access(self, operation: Operation) -> None:
        emitter = self._emitter
        sizes = operation.attributes.get("operandSegmentSizes")
        parts: list[str | None] = [*operation.operands, None, None]
        if sizes is not None:
            operands = iter(operation.operands)
            parts = [next(operands) if size else None for size in sizes]
        pointer, second, third = parts[0], parts[1], parts[2]
        assert pointer is not None
        mask = second if operation.name == "tt.load" else third
        if emitter.facts.varying.intersection(operation.operands):
            return
        interesting = [part for part in (pointer, second, third) if part is not None and (part in self._undefined or part in self._exact)]
        if not interesting:
            return
        is_tile = emitter.facts.types[pointer].shape is not None
        masks = emitter.masks(mask) if is_tile else f"({emitter.value(mask)},)" if mask is not None else "()"
        if pointer in self._exact:
            emitter.line(f"lanes.check_address(C, {self._exact[pointer]}, {masks}, {emitter.location_number()})")
        self._check_used([pointer], masks, "uses as an address")
        if mask is not None:
            self._check_used([mask], "()", "uses as a mask")
        if operation.name != "tt.load" and second is not None:
            self._check_used([second], masks, "stores" if operation.name == "tt.store" else "combines into memory")

    def _check_used(self, names: list[str], masks: str, verb: str) -> None:
        emitter = self._emitter
        for name in names:
            if name in self._undefined:
                source = emitter.module.location_id(self._sources[name])
                arguments = f"{self._undefined[name]}, {masks}, {emitter.location_number()}, {source}, {verb!r}"
                emitter.line(f"lanes.check_used(C, {arguments})")

    def after(self, operation: Operation) -> None:
        """Emit the companions of an op's results."""
        if self._emitter.vector or not operation.results:
            return
        name = operation.name
        if name in ("scf.for", "scf.if") or operation.results[0] in self._emitter.facts.deferred:
            return
        for result in operation.results:
            if result in self._sources:
                self._new(self._undefined, result, self._undefined_of(operation))
            if result in self._inexact:
                self._new(self._exact, result, self._exact_of(operation))

    def _undefined_of(self, operation: Operation) -> str:
        emitter, name = self._emitter, operation.name
        if _is_maskless(operation):
            mask = operation.operands[1]
            if operation.result_types[0].shape is None:
                return f"not {emitter.value(mask)}"
            return f"lanes.masked_off({emitter.masks(mask)})"
        operands = [self._has_undefined(operand) for operand in operation.operands]
        if name == "arith.select":
            return f"lanes.select({emitter.array(operation.operands[0])}, {', '.join(operands)})"
        if name in ("arith.andi", "arith.ori") and operation.result_types[0].element == "i1":
            a, b = emitter.arrays(operation)
            return f"lanes.{'conjunction' if name == 'arith.andi' else 'disjunction'}({a}, {operands[0]}, {b}, {operands[1]})"
        if name == "tt.dot":
            shapes = ", ".join(str(kind.shape) for kind in operation.operand_types[:2])
            return f"lanes.product({', '.join(operands)}, {shapes})"
        if name == "tt.reduce":
            return f"lanes.reduced(({', '.join(operands)},), {operation.operand_types[0].shape}, {operation.attributes['axis']})"
        if name in _SHAPES:
            return self._reshaped(operation, operands[0])
        if _symbol(operation):
            return operands[0]
        return " | ".join(operand for operand in operands if operand != "False") or "False"

    def _reshaped(self, operation: Operation, companion: str) -> str:
        name, attributes = operation.name, operation.attributes
        if companion in ("False", "None") or name in ("tt.splat", "tt.broadcast"):
            return companion
        if name == "tt.expand_dims":
            return f"lanes.expand({companion}, {attributes['axis']})"
        if name == "tt.trans":
            return f"lanes.transpose({companion}, {attributes['order']}, {operation.operand_types[0].shape})"
        return f"lanes.reshape({companion}, {operation.operand_types[0].shape}, {operation.result_types[0].shape})"

    def _exact_of(self, operation: Operation) -> str:
        emitter, name = self._emitter, operation.name
        companions = [self._has_exact(operand) for operand in operation.operands]
        if name == "tt.addptr":
            offset = operation.operands[1]
            moved = f"lanes.differs({emitter.array(offset)}, {companions[1]})" if offset in self._exact else "False"
            return moved if companions[0] == "False" else f"{companions[0]} | {moved}"
        if name in _SUMS:
            values = emitter.values(operation)
            bits = operation.result_types[0].bits
            return f"lanes.exact({_SUMS[name]!r}, {values[0]}, {companions[0]}, {values[1]}, {companions[1]}, {bits})"
        if name in _SHAPES:
            return self._reshaped(operation, companions[0])
        return companions[0]

    def carry(self, targets: list[str], sources: list[str], new: bool) -> None:
        """Hand companions on where a loop or a condition hands values on. new: whether the targets are defined here."""
        assigned: list[tuple[str, str]] = []
        for companions, tainted in ((self._undefined, self._sources), (self._exact, self._inexact)):
            has = self._has_undefined if companions is self._undefined else self._has_exact
            for target, source in zip(targets, sources, strict=True):
                if target in tainted and (companions is self._undefined or self._is_pointer(target)):
                    value = has(source)
                    if new:
                        companions[target] = self._emitter.module.fresh("u" if companions is self._undefined else "e")
                    assigned.append((companions[target], value))
        if assigned:
            self._emitter.line(f"{', '.join(pair[0] for pair in assigned)} = {', '.join(pair[1] for pair in assigned)}")


def _compute(names: set[str], facts: FunctionFacts) -> None:
    """Let values be computed that would be deferred, and what they are computed from."""
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in facts.deferred:
            facts.deferred.discard(name)
            waiting += facts.defined_by[name].operands


def _carried(operation: Operation) -> list[tuple[str, str]]:
    """(target, source) of what a loop or a condition hands on."""
    yields = [region[0].operations[-1].operands for region in operation.regions if region and region[0].operations]
    if operation.name == "scf.if":
        return [(result, source) for side in yields for result, source in zip(operation.results, side, strict=False)]
    arguments = [name for name, _ in operation.regions[0][0].arguments[1:]]
    return [
        pair
        for argument, first, again, result in zip(arguments, operation.operands[3:], yields[0], operation.results, strict=True)
        for pair in ((argument, first), (argument, again), (result, argument))
    ]


def _find_offsets(operations: list[Operation], facts: FunctionFacts) -> set[str]:
    """The integers that become part of an address by sums, products and changes of shape alone: elsewhere a wrap-around may be meant."""
    found: set[str] = set()
    waiting = [operation.operands[1] for operation in operations if operation.name == "tt.addptr"]
    while waiting:
        name = waiting.pop()
        operation = facts.defined_by.get(name)
        if name not in found and name not in facts.varying and operation is not None and operation.name in _OFFSETS:
            found.add(name)
            waiting += operation.operands
    return found
