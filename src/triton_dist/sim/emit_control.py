"""Handlers of control flow: loops, conditions, calls, and the same under a condition that differs from thread to thread."""

from __future__ import annotations

from .codegen import FunctionEmitter, handles
from .emit_timing import begin_loop, end_loop, end_round
from .ir import Block, Operation
from .parting import operations_behind
from .requests import SPIN


def _assign_all(emitter: FunctionEmitter, targets: list[str], sources: list[str]) -> None:
    if targets:
        emitter.line(f"{', '.join(targets)} = {', '.join(sources)}")


def _carried(emitter: FunctionEmitter, targets: list[str], sources: list[str]) -> list[str]:
    """Sources as the targets represent them: a uniform value becomes a numpy scalar where the target varies from thread to thread."""
    return [
        emitter.array(source) if emitter.kind(target).shape is not None and emitter.kind(source).shape is None else emitter.value(source)
        for target, source in zip(targets, sources, strict=True)
    ]


def _yields(block: Block) -> list[str]:
    return block.operations[-1].operands


@handles("scf.yield", "scf.condition")
def _terminator(emitter: FunctionEmitter, operation: Operation) -> None:
    """The enclosing op reads the operands."""


@handles("tt.return")
def _return(emitter: FunctionEmitter, operation: Operation) -> None:
    values = emitter.values(operation)
    emitter.line(f"return {values[0] if len(values) == 1 else '(' + ', '.join(values) + ')' if values else ''}".rstrip())


@handles("tt.call")
def _call(emitter: FunctionEmitter, operation: Operation) -> None:
    callee = str(operation.attributes["callee"]).removeprefix("@").strip('"')
    if any(name in emitter.facts.varying for name in operation.operands):
        raise emitter.fail("a value that differs from thread to thread is passed to a function that is not inlined; drop noinline")
    arguments = "".join(f", {value}" for value in emitter.values(operation))
    results = ", ".join(emitter.define(name) for name in operation.results)
    emitter.line(f"{results + ' = ' if results else ''}yield from {emitter.module.names[callee]}(C{arguments})")


@handles("cf.cond_br")
def _conditional_branch(emitter: FunctionEmitter, operation: Operation) -> None:
    if operation.operands[0] in emitter.facts.varying:
        raise emitter.fail("a return that only some threads take; use if/else around the rest instead")
    _, first, _ = operation.attributes["operandSegmentSizes"]
    passed = operation.operands[1:]
    for head, label, arguments in (
        (f"if {emitter.value(operation.operands[0])}:", operation.successors[0], passed[:first]),
        ("else:", operation.successors[1], passed[first:]),
    ):
        emitter.line(head)
        emitter.indent += 1
        _jump(emitter, label, arguments)
        emitter.indent -= 1


@handles("cf.br")
def _branch(emitter: FunctionEmitter, operation: Operation) -> None:
    _jump(emitter, operation.successors[0], operation.operands)


def _jump(emitter: FunctionEmitter, label: str, arguments: list[str]) -> None:
    """Go to a block; ``FunctionEmitter.emit_blocks`` has a loop around all of them that picks the next one."""
    if any(name in emitter.facts.varying for name in arguments):
        raise emitter.fail("an early return passes on a value that differs from thread to thread; use if/else around the rest instead")
    label = label.partition("(")[0]
    targets = [emitter.value(name) for name, _ in emitter.blocks[label].arguments]
    _assign_all(emitter, targets, [emitter.value(name) for name in arguments])
    emitter.line(f"{emitter.next_block} = {list(emitter.blocks).index(label)}")
    emitter.line("continue")


@handles("scf.for")
def _for(emitter: FunctionEmitter, operation: Operation) -> None:
    lower, upper, step, *initial = operation.operands
    body = operation.regions[0][0]
    names = [name for name, _ in body.arguments]
    if any(name in emitter.facts.varying for name in (lower, upper, step)):
        _divergent_for(emitter, operation)
        return
    index = emitter.define(names[0])
    carried = [emitter.define(name) for name in names[1:]]
    _assign_all(emitter, carried, _carried(emitter, names[1:], initial))
    _carry_lanes(emitter, names[1:], initial)
    bounds = ", ".join(emitter.value(name) for name in (lower, upper, step))
    if operation.attributes.get("unsignedCmp"):
        bits = (1 << emitter.facts.types[lower].bits) - 1
        bounds = ", ".join(f"{emitter.value(name)} & {bits}" for name in (lower, upper, step))
    cut, rounds = begin_loop(emitter, operation, bounds)
    emitter.line(f"for {index} in range({bounds}){cut}:")
    emitter.indent += 1
    emitter.emit_block(body)
    _assign_all(emitter, carried, _carried(emitter, names[1:], _yields(body)))
    _carry_lanes(emitter, names[1:], _yields(body), new=False)
    end_round(emitter, operation, cut)
    emitter.line("pass")
    emitter.indent -= 1
    end_loop(emitter, cut, rounds)
    _assign_all(emitter, [emitter.define(name) for name in operation.results], carried)
    _carry_lanes(emitter, operation.results, names[1:])


def _carry_lanes(emitter: FunctionEmitter, targets: list[str], sources: list[str], new: bool = True) -> None:
    """For lints, what is known of the elements goes with the values. new: whether the targets are defined here."""
    if emitter.lanes is not None and not emitter.vector:
        emitter.lanes.carry(targets, sources, new)


@handles("scf.while")
def _while(emitter: FunctionEmitter, operation: Operation) -> None:
    before, after = operation.regions[0][0], operation.regions[1][0]
    condition, *forwarded = _yields(before)
    if condition in emitter.facts.varying:
        _divergent_while(emitter, operation)
        return
    names = [name for name, _ in before.arguments]
    carried = [emitter.define(name) for name in names]
    _assign_all(emitter, carried, _carried(emitter, names, operation.operands))
    emitter.line("while True:")
    emitter.indent += 1
    emitter.emit_block(before)
    results = [emitter.define(name) for name in operation.results]
    emitter.line(f"if not {emitter.value(condition)}:")
    emitter.indent += 1
    _assign_all(emitter, results, _carried(emitter, operation.results, forwarded))
    emitter.line("break")
    emitter.indent -= 1
    inner = [name for name, _ in after.arguments]
    _assign_all(emitter, [emitter.define(name) for name in inner], _carried(emitter, inner, forwarded))
    emitter.emit_block(after)
    again = _carried(emitter, names, _yields(after))
    _yield_back_edge(emitter, names, carried, again)
    _assign_all(emitter, carried, again)
    emitter.indent -= 1


def _yield_back_edge(emitter: FunctionEmitter, names: list[str], carried: list[str], again: list[str]) -> None:
    """A loop that comes round with the same values spins: it is run again only when memory has changed."""
    if emitter.facts.reads_clock:
        emitter.line("yield")
        return
    emitter.module.namespace.setdefault("SPIN", SPIN)
    tests = [
        f"{old} is {new}" if emitter.kind(name).shape is not None else f"{old} == {new}"
        for name, old, new in zip(names, carried, again, strict=True)
    ]
    emitter.line(f"yield {'SPIN if ' + ' and '.join(tests) + ' else None' if tests else 'SPIN'}")


@handles("scf.if")
def _if(emitter: FunctionEmitter, operation: Operation) -> None:
    condition = operation.operands[0]
    if emitter.vector:
        _vector_if(emitter, operation)
        return
    if condition in emitter.facts.varying:
        _divergent_if(emitter, operation)
        return
    results = [emitter.define(name) for name in operation.results]
    location, first = emitter.location, True
    for head, region in zip((f"if {emitter.value(condition)}:", "else:"), operation.regions, strict=False):
        if not region or not region[0].operations:
            continue
        emitter.location = location
        emitter.line(head)
        emitter.indent += 1
        emitter.emit_block(region[0])
        _assign_all(emitter, results, _carried(emitter, operation.results, _yields(region[0])))
        if operation.results:
            _carry_lanes(emitter, operation.results, _yields(region[0]), new=first)
            first = False
        emitter.line("pass")
        emitter.indent -= 1


def _vector_if(emitter: FunctionEmitter, operation: Operation) -> None:
    """Inside a combine function both sides are computed and the results picked element by element."""
    for region in operation.regions:
        if region and region[0].operations:
            emitter.emit_block(region[0])
    condition = emitter.value(operation.operands[0])
    for position, name in enumerate(operation.results):
        sides = [emitter.array(_yields(region[0])[position]) for region in operation.regions]
        emitter.line(f"{emitter.define(name)} = np.where({condition}, {sides[0]}, {sides[1]})")


def _side(emitter: FunctionEmitter, blocks: list[Block], parameters: list[str]) -> str:
    """Emit a region as a generator function ``(mask, *parameters)`` that returns what the region yields, as arrays."""
    name = emitter.module.fresh("side")
    outer = emitter.mask
    mask = emitter.mask = emitter.module.fresh("m")
    emitter.line(f"def {name}({', '.join([mask, *(emitter.define(parameter) for parameter in parameters)])}):")
    emitter.indent += 1
    results = ""
    if blocks and blocks[0].operations:
        emitter.emit_block(blocks[0])
        results = "".join(f"{emitter.array(operand)}, " for operand in _yields(blocks[0]))
    emitter.line(f"return ({results})")
    emitter.line("if 0: yield")
    emitter.indent -= 1
    emitter.mask = outer
    return name


def _divergent_if(emitter: FunctionEmitter, operation: Operation) -> None:
    sides = [_side(emitter, region, []) for region in operation.regions]
    sides += [_side(emitter, [], [])] * (2 - len(sides))
    condition = emitter.value(operation.operands[0])
    call = f"yield from divergence.divergent_if(C, {emitter.mask or 'None'}, {condition}, {sides[0]}, {sides[1]})"
    results = "".join(f"{emitter.define(name)}, " for name in operation.results)
    emitter.line(f"{results}= {call}" if results else call)


def _behind(emitter: FunctionEmitter, operation: Operation, block: Block, start: int, end: int, used: list[str]) -> str:
    """Emit the ops behind a loop as a generator function ``(mask, *results of the loop)`` that returns what is used of them."""
    name = emitter.module.fresh("behind")
    outer = emitter.mask
    mask = emitter.mask = emitter.module.fresh("m")
    emitter.line(f"def {name}({', '.join([mask, *(emitter.define(result) for result in operation.results)])}):")
    emitter.indent += 1
    emitter.emit_operations(block, start, end)
    emitter.line(f"return ({''.join(f'{emitter.array(value)}, ' for value in used)})")
    emitter.line("if 0: yield")
    emitter.indent -= 1
    emitter.mask = outer
    return name


def _divergent_while(emitter: FunctionEmitter, operation: Operation) -> None:
    """The loop, and with it what each thread does for itself behind it."""
    block, start = emitter.rest
    end, used = operations_behind(block, start, emitter.limit, emitter.facts)
    before, after = operation.regions[0], operation.regions[1]
    test = _side(emitter, before, [name for name, _ in before[0].arguments])
    body = _side(emitter, after, [name for name, _ in after[0].arguments])
    initial = "".join(f"{emitter.array(name)}, " for name in operation.operands)
    behind = _behind(emitter, operation, block, start, end, used) if end > start else "None"
    call = f"yield from divergence.divergent_while(C, {emitter.mask or 'None'}, ({initial}), {test}, {body}, {behind})"
    targets = [emitter.define(name) for name in (*operation.results, *used)]
    emitter.line(f"{''.join(f'{target}, ' for target in targets)}= {call}" if targets else call)
    for name, target in zip(used, targets[len(operation.results) :], strict=True):
        kind = emitter.kind(name)
        if kind.shape is None:
            emitter.line(f"{target} = divergence.of_all_threads({target}, {kind.is_float})")
    emitter.taken = end - start


def _divergent_for(emitter: FunctionEmitter, operation: Operation) -> None:
    lower, upper, step, *initial = operation.operands
    body = _side(emitter, operation.regions[0], [name for name, _ in operation.regions[0][0].arguments])
    bounds = ", ".join(emitter.array(name) for name in (lower, upper, step))
    values = "".join(f"{emitter.array(name)}, " for name in initial)
    call = f"yield from divergence.divergent_for(C, {emitter.mask or 'None'}, {bounds}, ({values}), {body})"
    results = "".join(f"{emitter.define(name)}, " for name in operation.results)
    emitter.line(f"{results}= {call}" if results else call)
