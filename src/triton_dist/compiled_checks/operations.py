"""What the ops of a kernel mean to the checks: waits, loads of global memory, signals; and what depends on what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..runtime.wait_layout import MARKER
from ..sim.ir import Operation
from .places import Chain, Frame, Key, user_frame

ACQUIRE, RELEASE, ACQ_REL = 2, 3, 4
"""Values of the attribute ``sem`` of an atomic."""

LOADS = frozenset(
    {
        "tt.load",
        "tt.descriptor_load",
        "tt.descriptor_gather",
        "ttg.async_copy_global_to_local",
        "ttng.async_tma_copy_global_to_local",
        "ttng.async_tma_gather",
    }
)
"""Ops that read global memory, in any stage."""

LOOPS = frozenset({"scf.for", "scf.while"})

_ASM = "tt.elementwise_inline_asm"
_ASM_LOAD = re.compile(r"\bld\.(?!shared|param|const|local|acquire)(?!\S*\.nc\b)")
_ASM_ACQUIRE = re.compile(r"\b(?:ld|atom)\.(?:\w+\.)*?(?:acquire|acq_rel)\b|\bld\.volatile\b")


@dataclass(frozen=True, slots=True)
class Wait:
    """A place that holds up the block until a word has a value: an op, or a loop that polls. op: the one that reads the word."""

    op: Operation
    whole: Operation

    @property
    def chain(self) -> Chain:
        """Where it comes from."""
        return chain_of(self.op)


def chain_of(op: Operation) -> Chain:
    """Where an op comes from."""
    location = op.location
    return location if isinstance(location, Chain) else Chain("", 0)


def key_of_op(op: Operation) -> Key:
    """Its key, see ``Key``."""
    return chain_of(op).key


def shown(chain: Chain) -> Frame:
    """The user's line of a chain; line 0 if there is none."""
    return user_frame(chain.frames) or Frame("", 0, 0)


def operations(tree: Operation) -> Iterator[Operation]:
    """All ops inside, in the order of the text, without ``tree`` itself."""
    for region in tree.regions:
        for block in region:
            for op in block.operations:
                yield op
                yield from operations(op)


def assembly(op: Operation) -> str:
    """Text of an inline assembly op, else an empty one."""
    return str(op.attributes.get("asm_string", "")) if op.name == _ASM else ""


def is_load(op: Operation) -> bool:
    """Whether it reads global memory that others may write."""
    return op.name in LOADS or op.name == _ASM and bool(_ASM_LOAD.search(assembly(op))) and not is_poll(op)


def is_poll(op: Operation) -> bool:
    """Whether it is assembly that loops until a word has a value: one of this package's waits, or one of the user's own."""
    text = assembly(op)
    return MARKER in text or bool(text and _ASM_ACQUIRE.search(text) and re.search(r"\bbra\b", text))


def reads_flag(op: Operation) -> bool:
    """Whether a loop around it may be a wait: an acquiring or volatile read of one word."""
    if op.name in ("tt.atomic_rmw", "tt.atomic_cas"):
        return op.attributes.get("sem") in (ACQUIRE, ACQ_REL) and "tensor<" not in str(op.result_types) and not op.result_types[0].dims
    if op.name == "tt.load":
        return op.attributes.get("isVolatile") is True and not op.result_types[0].dims
    return bool(_ASM_ACQUIRE.search(assembly(op)))


def waits_in(tree: Operation) -> list[Wait]:
    """All waits, in the order of the text. A poll in a ``while`` counts if the loop ends by what it read."""
    found: list[Wait] = []
    for op in tree_without_poll_loops(tree):
        if is_poll(op):
            found.append(Wait(op, op))
        elif op.name == "scf.while":
            flag = _flag_of_loop(op)
            if flag is not None:
                found.append(Wait(flag, op))
    return found


def tree_without_poll_loops(tree: Operation) -> Iterator[Operation]:
    """As ``operations``, but a loop that is itself a wait is one op."""
    for region in tree.regions:
        for block in region:
            for op in block.operations:
                yield op
                if not is_poll_loop(op):
                    yield from tree_without_poll_loops(op)


def is_poll_loop(op: Operation) -> bool:
    """Whether it is a ``while`` that is a wait."""
    return op.name == "scf.while" and _flag_of_loop(op) is not None


def _flag_of_loop(loop: Operation) -> Operation | None:
    inner = list(operations(loop))
    if any(op.name in LOOPS or is_poll(op) for op in inner):
        return None
    conditions = [op for op in inner if op.name == "scf.condition"]
    flow = Flow(loop)
    for op in inner:
        if reads_flag(op) and conditions and conditions[0].operands[0] in flow.reached(op.results):
            return op
    return None


class Flow:
    """Which values are computed from which, through loops and branches.

    through: names of the ops whose results are taken to follow from their operands; None for all.
    """

    def __init__(self, tree: Operation, through: frozenset[str] | None = None) -> None:
        self._uses: dict[str, list[str]] = {}
        self._through = through
        self._add_all(tree)

    def reached(self, values: Iterable[str]) -> set[str]:
        """``values`` and all that is computed from them, not through memory."""
        found = set(values)
        todo = list(found)
        while todo:
            for value in self._uses.get(todo.pop(), ()):
                if value not in found:
                    found.add(value)
                    todo.append(value)
        return found

    def _edge(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        for source, target in zip(sources, targets, strict=False):
            self._uses.setdefault(source, []).append(target)

    def _add_all(self, tree: Operation) -> None:
        self._add_regions(tree)
        for op in operations(tree):
            for operand in op.operands if self._through is None or op.name in self._through else ():
                self._uses.setdefault(operand, []).extend(op.results)
            self._add_regions(op)

    def _add_regions(self, op: Operation) -> None:
        if not op.regions:
            return
        arguments = [[name for name, _ in region[0].arguments] if region else [] for region in op.regions]
        ends = [region[-1].operations[-1].operands if region and region[-1].operations else [] for region in op.regions]
        if op.name == "scf.for":
            carried = arguments[0][1:]
            self._edge(op.operands[3:], carried)
            self._edge(ends[0], carried)
            self._edge(ends[0], op.results)
            for bound in op.operands[:3]:
                self._uses.setdefault(bound, []).append(arguments[0][0])
        elif op.name == "scf.while":
            self._edge(op.operands, arguments[0])
            self._edge(ends[0][1:], arguments[1])
            self._edge(ends[0][1:], op.results)
            self._edge(ends[1], arguments[0])
        elif op.name == "scf.if":
            for end in ends:
                self._edge(end, op.results)
