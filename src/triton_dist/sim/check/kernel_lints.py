"""What the IR of a kernel says before it runs: waits in loops that are software-pipelined, loads that depend on the token of a wait, and
inline assembly whose registers may be others than it seems.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import triton

from ..analysis import walk
from ..asm_layouts import ATTRIBUTE, times_laid_out
from ..ir import Block, Location, Operation
from ..ptx.block import block_of
from ..ptx.mistakes import Mistake, find_mistakes

_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")


@dataclass
class KernelFacts:
    """pipelined_waits: (line of the wait, stages the loop asks for or None for the kernel's own number).

    tokens: for each line with loads, the lines of the waits whose tokens these loads depend on. assembly: mistakes in blocks of inline PTX.
    """

    pipelined_waits: list[tuple[Location, int | None]] = field(default_factory=list)
    tokens: dict[Location, set[Location]] = field(default_factory=dict)
    assembly: list[tuple[Location, Mistake]] = field(default_factory=list)


def find_kernel_facts(module: Operation) -> KernelFacts:
    """Look at all functions of a module."""
    facts = KernelFacts()
    for function in module.regions[0][0].operations:
        if function.name == "tt.func":
            operations = list(walk(function.regions[0]))
            for operation in operations:
                if operation.name == "scf.for":
                    _look_at_loop(operation, facts)
            _look_at_tokens(operations, facts)
            _look_at_assembly(function.regions[0], facts, False)
            _look_at_layouts(operations, module.attributes.get(ATTRIBUTE), facts)
    return facts


def _look_at_layouts(operations: list[Operation], layouts: object, facts: KernelFacts) -> None:
    """Blocks with an effect that the compiler runs in several layouts. layouts: see ``asm_layouts``."""
    effects = [one for one in operations if one.name == "tt.elementwise_inline_asm" and not one.attributes.get("pure")]
    texts = [str(one.attributes["asm_string"]) for one in effects]
    for operation, text in zip(effects, texts, strict=True):
        shape = operation.result_types[0].shape
        times = 0 if shape is None or texts.count(text) > 1 else times_laid_out(layouts, text, shape)
        if times > 1:
            message = (
                f"Triton {triton.__version__} lays this block's tile out in {times} ways and runs it once in each, though it is not pure: "
                "what it stores, adds or signals it does again; leave its result unused, or use it where no other layout is wanted"
            )
            facts.assembly.append((operation.location, Mistake("TD121", message)))


def _look_at_assembly(blocks: list[Block], facts: KernelFacts, repeated: bool) -> None:
    """repeated: whether these ops are in a loop or a branch."""
    for operation in (operation for block in blocks for operation in block.operations):
        block = block_of(operation)
        if block is not None:
            facts.assembly += [(operation.location, mistake) for mistake in find_mistakes(block, repeated)]
        for region in operation.regions:
            _look_at_assembly(region, facts, repeated or operation.name.startswith("scf."))


def _is_wait(operation: Operation) -> bool:
    return str(operation.attributes.get("symbol", "")).startswith("td.wait")


def _look_at_loop(loop: Operation, facts: KernelFacts) -> None:
    """The pipeliner takes innermost loops with loads: those for a dot, and any where the loop itself asks for stages."""
    inside = list(walk(loop.regions[0]))
    direct = [operation.name for operation in loop.regions[0][0].operations]
    if any(operation.name in ("scf.for", "scf.while") for operation in inside) or not any(name in _LOADS for name in direct):
        return
    stages = loop.attributes.get("tt.num_stages")
    if stages is None and "tt.dot" not in direct:
        return
    facts.pipelined_waits += [(operation.location, stages) for operation in inside if _is_wait(operation)]


def _look_at_tokens(operations: list[Operation], facts: KernelFacts) -> None:
    sources: dict[str, list[str]] = {}
    waits = {operation.results[0]: operation.location for operation in operations if _is_wait(operation) and operation.results}
    for operation in operations:
        for result in operation.results:
            sources.setdefault(result, []).extend(operation.operands)
        for target, names in _handed_on(operation):
            sources.setdefault(target, []).extend(names)
    for operation in operations:
        if operation.name in _LOADS:
            facts.tokens.setdefault(operation.location, set()).update(_waits_behind(operation.operands, sources, waits))


def _handed_on(operation: Operation) -> list[tuple[str, list[str]]]:
    """What values of loops and conditions come from, besides operands."""
    regions = [region[0] for region in operation.regions if region and region[0].operations]
    if operation.name == "scf.for":
        yields = _yields(regions[0])
        arguments = [name for name, _ in regions[0].arguments[1:]]
        return [(name, [first, again]) for name, first, again in zip(arguments, operation.operands[3:], yields, strict=True)] + [
            (result, [again]) for result, again in zip(operation.results, yields, strict=True)
        ]
    if operation.name == "scf.if":
        return [(result, [_yields(block)[number] for block in regions]) for number, result in enumerate(operation.results)]
    return []


def _yields(block: Block) -> list[str]:
    return block.operations[-1].operands


def _waits_behind(names: list[str], sources: dict[str, list[str]], waits: dict[str, Location]) -> set[Location]:
    found: set[Location] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in waits:
            found.add(waits[name])
        waiting += sources.get(name, ())
    return found
