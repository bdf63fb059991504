"""What is known about a function's values before code is generated: who uses them, along which axes they vary, where pointers come from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .ir import Block, Operation
from .ptx.block import is_varying_block
from .ptx.twins import gives_each_thread_its_own
from .types import Type

_ELEMENTWISE = ("arith.", "math.", "tt.addptr", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int", "tt.fp_to_fp", "tt.precise_", "tt.clampf")
_MASK_OPERAND = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}
_SAME_POINTER = ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.bitcast", "tt.reshape", "tt.trans")
_CLOCK = re.compile(r"%(globaltimer|clock)")
_VARYING_SOURCES = ("td.tid", "td.atomic_", "td.shfl", "td.ballot", "td.extern_call")


@dataclass(frozen=True)
class Bound:
    """``vector < limit + add`` where ``is_upper``, else ``vector >= limit + add``.

    axis, rank: where the vector lies in a mask of that many dimensions; None if the vector has the shape of the mask itself.
    """

    vector: str
    limit: str
    is_upper: bool
    add: int
    axis: int | None = None
    rank: int = 0


@dataclass
class FunctionFacts:
    """Facts about the values of one function, by their names.

    defined_by: the op that makes a value.
    types: a value's type.
    axes: dimensions along which a tensor may vary; along the others its array has size 1.
    origin: the function argument that a pointer was computed from, where that is one only.
    deferred: sums and conjunctions that are never computed, since all users take their terms.
    linear: integer tensors with a constant step along each axis, but for a wrap-around.
    uniform: integer tensors that are a splat of one scalar.
    bounds: comparisons of a linear vector with a uniform tensor.
    borrowed: loaded tiles that are used up before memory may change: they need not be copied out of it.
    reads_clock: whether the function reads a clock, so that a loop may end though memory does not change.
    varying: scalars that differ from thread to thread.
    uses_block_memory: whether elements of tiles or shared memory are used, so that block barriers order them.
    """

    defined_by: dict[str, Operation] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    users: dict[str, list[tuple[Operation, int]]] = field(default_factory=lambda: defaultdict(list))
    axes: dict[str, frozenset[int]] = field(default_factory=dict)
    origin: dict[str, str | None] = field(default_factory=dict)
    deferred: set[str] = field(default_factory=set)
    linear: set[str] = field(default_factory=set)
    uniform: set[str] = field(default_factory=set)
    bounds: dict[str, Bound] = field(default_factory=dict)
    borrowed: set[str] = field(default_factory=set)
    reads_clock: bool = False
    varying: set[str] = field(default_factory=set)
    uses_block_memory: bool = False


def walk(blocks: list[Block]) -> Iterator[Operation]:
    """All ops of a region, outer before inner."""
    for block in blocks:
        for operation in block.operations:
            yield operation
            for region in operation.regions:
                yield from walk(region)


def in_order_of_dominance(blocks: list[Block]) -> dict[str, Block]:
    """The blocks by label, each after those that define values for it: in reverse post-order. What can't be reached is left out."""
    by_label = {block.label: block for block in blocks}
    done: dict[str, Block] = {}
    stack = [(blocks[0], iter(blocks[0].operations[-1].successors))]
    seen = {blocks[0].label}
    while stack:
        block, successors = stack[-1]
        label = next((name for name in (text.partition("(")[0] for text in successors) if name not in seen), None)
        if label is None:
            done[block.label] = block
            stack.pop()
        else:
            seen.add(label)
            stack.append((by_label[label], iter(by_label[label].operations[-1].successors)))
    return dict(reversed(done.items()))


def analyse(function: Operation) -> FunctionFacts:
    """Facts about a ``tt.func``."""
    facts = FunctionFacts()
    body = function.regions[0]
    _collect_types(body, facts)
    operations = list(walk(body))
    for operation in operations:
        for name, kind in zip(operation.results, operation.result_types, strict=True):
            facts.types[name] = kind
            facts.defined_by[name] = operation
        for position, name in enumerate(operation.operands):
            facts.users[name].append((operation, position))
    for operation in operations:
        for name, kind in zip(operation.results, operation.result_types, strict=True):
            if kind.shape is not None:
                facts.axes[name] = _axes(operation, kind, facts)
                if _is_linear(operation, facts):
                    facts.linear.add(name)
                if _is_uniform(operation):
                    facts.uniform.add(name)
                bound = _bound(operation, facts)
                if bound is not None:
                    facts.bounds[name] = bound
    facts.reads_clock = any(_CLOCK.search(str(operation.attributes.get("asm_string", ""))) for operation in operations)
    facts.uses_block_memory = any(_uses_block_memory(operation) for operation in operations)
    _find_origins(function, operations, facts)
    _find_borrowed(body, facts)
    for operation in operations:
        if operation.name == "arith.addi":
            deferrable = len(facts.axes.get(operation.results[0], ())) > 1 and _can_defer(operation, facts, _used_as_offset, _is_sum)
        elif operation.results and _is_mask_term(operation, facts):
            deferrable = _can_defer(operation, facts, _used_as_mask, _is_mask_term)
        else:
            continue
        if deferrable:
            facts.deferred.add(operation.results[0])
    return facts


def _uses_block_memory(operation: Operation) -> bool:
    attributes = operation.attributes
    return str(attributes.get("symbol", "")).startswith("td.shared_") or ".shared" in str(attributes.get("asm_string", ""))


def _collect_types(blocks: list[Block], facts: FunctionFacts) -> None:
    for block in blocks:
        for name, kind in block.arguments:
            facts.types[name] = kind
            if kind.shape is not None:
                facts.axes[name] = frozenset(range(len(kind.shape)))
        for operation in block.operations:
            for region in operation.regions:
                _collect_types(region, facts)


def _axes(operation: Operation, kind: Type, facts: FunctionFacts) -> frozenset[int]:
    name = operation.name
    every = frozenset(axis for axis, size in enumerate(kind.shape or ()) if size > 1)
    if name == "tt.splat" or name == "arith.constant":
        return every if "[" in str(operation.attributes.get("value", "")) else frozenset()
    operands = [facts.axes.get(operand, frozenset()) for operand in operation.operands]
    if name == "tt.expand_dims":
        inserted = int(operation.attributes["axis"])
        return frozenset(axis + (axis >= inserted) for axis in operands[0])
    if name == "tt.broadcast" or name.startswith(_ELEMENTWISE):
        return frozenset().union(*operands)
    return every


def _is_linear(operation: Operation, facts: FunctionFacts) -> bool:
    name = operation.name
    if name in ("tt.make_range", "tt.splat"):
        return True
    if name == "arith.constant":
        return "[" not in str(operation.attributes.get("value", ""))
    if not all(operand in facts.linear for operand in operation.operands):
        return False
    if name == "arith.muli":
        return any(not facts.axes[operand] for operand in operation.operands)
    return name in ("arith.addi", "arith.subi", "arith.extsi", "tt.expand_dims", "tt.broadcast")


def _is_uniform(operation: Operation) -> bool:
    if not operation.result_types[0].element.startswith("i") or operation.result_types[0].element == "i1":
        return False
    if operation.name == "tt.splat":
        return True
    return operation.name == "arith.constant" and re.match(r"dense<-?\d+>", str(operation.attributes["value"])) is not None


_BOUNDS = {2: (True, 0), 3: (True, 1), 4: (False, 1), 5: (False, 0)}
"""For the signed predicates <, <=, > and >=: whether the right side is an upper limit, and what to add to it."""


def _bound(operation: Operation, facts: FunctionFacts) -> Bound | None:
    if operation.name == "tt.expand_dims":
        return _expanded(facts.bounds.get(operation.operands[0]), operation, facts)
    if operation.name != "arith.cmpi" or operation.attributes["predicate"] not in _BOUNDS:
        return None
    vector, limit = operation.operands
    is_upper, add = _BOUNDS[operation.attributes["predicate"]]
    if vector in facts.uniform:
        # The same with the sides exchanged: limit < vector is vector >= limit + 1.
        vector, limit = limit, vector
        is_upper, add = not is_upper, 1 - add
    if limit not in facts.uniform or vector not in facts.linear or len(facts.axes[vector]) != 1:
        return None
    return Bound(vector, limit, is_upper, add)


def _expanded(bound: Bound | None, operation: Operation, facts: FunctionFacts) -> Bound | None:
    """The bound of a mask with one dimension more."""
    if bound is None or (bound.axis is None and len(facts.types[bound.vector].dims) != 1):
        return None
    inserted = operation.attributes["axis"]
    axis = bound.axis or 0
    return replace(bound, axis=axis + (inserted <= axis), rank=len(operation.result_types[0].dims))


def _is_mask_term(operation: Operation, facts: FunctionFacts) -> bool:
    """A comparison with one bound, a conjunction, or a broadcast of such."""
    if operation.name == "tt.broadcast":
        source = facts.defined_by.get(operation.operands[0])
        return source is not None and _is_mask_term(source, facts)
    return operation.results[0] in facts.bounds or (operation.name == "arith.andi" and operation.result_types[0].element == "i1")


def _used_as_offset(operation: Operation, position: int) -> bool:
    return operation.name == "tt.addptr" and position == 1


def _used_as_mask(operation: Operation, position: int) -> bool:
    return _MASK_OPERAND.get(operation.name) == position and bool(operation.operand_types[0].shape)


def _is_sum(operation: Operation, facts: FunctionFacts) -> bool:
    return operation.name == "arith.addi"


def _can_defer(operation: Operation, facts: FunctionFacts, final_use, passes_on) -> bool:
    """Whether every user of a sum (a mask) takes it as terms, directly or through another one that is deferred, too."""
    result = operation.results[0]
    if result in facts.deferred:
        return True
    if operation.result_types[0].shape is None or not facts.users[result]:
        return False
    for user, position in facts.users[result]:
        if final_use(user, position):
            continue
        if not user.results or not passes_on(user, facts) or not _can_defer(user, facts, final_use, passes_on):
            return False
    return True


def _find_origins(function: Operation, operations: list[Operation], facts: FunctionFacts) -> None:
    """Optimistic fixed point: a loop-carried pointer keeps the origin of its initial value unless the loop gives it another one."""
    origin = facts.origin
    for name, kind in function.regions[0][0].arguments:
        if kind.is_pointer and kind.shape is None:
            origin[name] = name
    for block in function.regions[0][1:]:
        origin.update((name, None) for name, kind in block.arguments if kind.is_pointer)
    for _ in range(8):
        before = dict(origin)
        for operation in operations:
            _origin_of(operation, facts)
        if before == origin:
            return
    origin.clear()


_FRESH = ("arith.", "math.", "tt.dot", "tt.reduce", "tt.fp_to_fp", "tt.precise_", "tt.clampf", "tt.mulhiui", "tt.histogram", "tt.store")
"""Ops whose result is a new array, so that an operand is not needed after them."""
_QUIET = (
    *_FRESH,
    "tt.load",
    "tt.addptr",
    "tt.splat",
    "tt.broadcast",
    "tt.expand_dims",
    "tt.make_range",
    "tt.trans",
    "tt.reshape",
    "tt.get_program_id",
)
"""Ops that neither write memory nor let another program run; a store does, and ends the time for which a tile may be borrowed."""


def _makes_new_array(operation: Operation) -> bool:
    """Whether no result of an op can be an operand or a view of one: a choice by a scalar hands on one of the two."""
    if operation.name == "arith.select":
        return operation.operand_types[0].shape is not None
    if operation.name == "tt.reduce":
        return operation.operand_types[0].dims[operation.attributes["axis"]] > 1
    return operation.name.startswith(_FRESH) and operation.name != "arith.bitcast"


def _find_borrowed(blocks: list[Block], facts: FunctionFacts) -> None:
    """A tile may stay in memory if all its users stand behind it in its own block, before anything that writes or yields."""
    for block in blocks:
        place = {id(operation): number for number, operation in enumerate(block.operations)}
        for number, operation in enumerate(block.operations):
            for region in operation.regions:
                _find_borrowed(region, facts)
            if operation.name != "tt.load" or operation.result_types[0].shape is None:
                continue
            users = [user for user, _ in facts.users[operation.results[0]]]
            if not users or any(id(user) not in place or not _makes_new_array(user) for user in users):
                continue
            last = max(place[id(user)] for user in users)
            between = block.operations[number + 1 : last]
            if all(other.name.startswith(_QUIET) and other.name != "tt.store" for other in between):
                facts.borrowed.add(operation.results[0])


def _merge(facts: FunctionFacts, target: str, sources: list[str]) -> None:
    if not facts.types[target].is_pointer:
        return
    known = {facts.origin[source] for source in sources if source in facts.origin}
    if known:
        facts.origin[target] = known.pop() if len(known) == 1 else None


def _origin_of(operation: Operation, facts: FunctionFacts) -> None:
    name = operation.name
    if name in _SAME_POINTER or (name == "tt.extern_elementwise" and operation.attributes.get("symbol") == "td.consume_token"):
        _merge(facts, operation.results[0], operation.operands[:1])
    elif name == "arith.select":
        _merge(facts, operation.results[0], operation.operands[1:])
    elif name == "scf.for":
        body = operation.regions[0][0]
        _merge_loop(facts, operation.results, [argument for argument, _ in body.arguments[1:]], operation.operands[3:], _yielded(body))
    elif name == "scf.while":
        before, after = operation.regions[0][0], operation.regions[1][0]
        forwarded = before.operations[-1].operands[1:]
        for argument, first, again in zip(before.arguments, operation.operands, _yielded(after), strict=True):
            _merge(facts, argument[0], [first, again])
        for argument, source in zip(after.arguments, forwarded, strict=True):
            _merge(facts, argument[0], [source])
        for result, source in zip(operation.results, forwarded, strict=True):
            _merge(facts, result, [source])
    elif name == "scf.if" and operation.results:
        for position, result in enumerate(operation.results):
            _merge(facts, result, [_yielded(region[0])[position] for region in operation.regions])
    else:
        for result in operation.results:
            if facts.types[result].is_pointer:
                facts.origin[result] = None


def _merge_loop(facts: FunctionFacts, results: list[str], arguments: list[str], initial: list[str], yielded: list[str]) -> None:
    for result, argument, first, again in zip(results, arguments, initial, yielded, strict=True):
        _merge(facts, argument, [first, again])
        _merge(facts, result, [argument])


def _yielded(block: Block) -> list[str]:
    return block.operations[-1].operands


def find_varying(function: Operation, facts: FunctionFacts) -> None:
    """Mark the scalars that differ from thread to thread: what comes from ``tid`` and from per-thread atomics, and what that reaches."""
    changed = True
    while changed:
        size = len(facts.varying)
        _spread(function.regions[0], facts)
        changed = len(facts.varying) != size


def _spread(blocks: list[Block], facts: FunctionFacts) -> None:
    varying = facts.varying
    for block in blocks:
        for operation in block.operations:
            name = operation.name
            symbol = str(operation.attributes.get("symbol", "")).partition(";")[0]
            tainted = any(operand in varying for operand in operation.operands)
            if name == "scf.for":
                body = operation.regions[0][0]
                arguments = [argument for argument, _ in body.arguments]
                if any(operand in varying for operand in operation.operands[:3]):
                    varying.update(arguments + operation.results)
                for argument, *sources in zip(arguments[1:], operation.operands[3:], _yielded(body), operation.results, strict=True):
                    if varying.intersection([argument, *sources]):
                        varying.update([argument, sources[2]])
            elif name == "scf.while":
                _spread_while(operation, varying)
            elif name == "scf.if":
                for position, result in enumerate(operation.results):
                    if operation.operands[0] in varying or any(_yielded(region[0])[position] in varying for region in operation.regions):
                        varying.add(result)
            elif (
                symbol.startswith(_VARYING_SOURCES)
                or is_varying_block(operation)
                or gives_each_thread_its_own(operation)
                or (tainted and name not in ("tt.atomic_rmw", "tt.atomic_cas"))
            ):
                varying.update(result for result in operation.results if facts.types[result].shape is None)
            for region in operation.regions:
                _spread(region, facts)


def _spread_while(operation: Operation, varying: set[str]) -> None:
    before, after = operation.regions[0][0], operation.regions[1][0]
    condition, *forwarded = before.operations[-1].operands
    if condition in varying:
        varying.update([name for name, _ in before.arguments + after.arguments] + operation.results)
    for (argument, _), first, again in zip(before.arguments, operation.operands, _yielded(after), strict=True):
        if first in varying or again in varying:
            varying.add(argument)
    for (argument, _), result, source in zip(after.arguments, operation.results, forwarded, strict=True):
        if source in varying:
            varying.update([argument, result])
