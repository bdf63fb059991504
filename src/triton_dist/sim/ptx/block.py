"""A block of assembly, translated once: what it takes and gives, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ...errors import UnsupportedOperationError
from . import arithmetic, atomics, barriers, bits, convert, mbarriers, memory, moves, multimem, order, warps  # noqa: F401  (they fill OPCODES)
from .constraints import Constraints, read_constraints
from .control import Line
from .form import MEETINGS, OPCODES, Form
from .parser import parse
from .special import SPECIAL
from .spin import find_poll
from .syntax import Instruction, Label, Listing, Special, Use, Vector
from .twins import find_twin

if TYPE_CHECKING:
    from ..ir import Operation


@dataclass(frozen=True)
class AsmBlock:
    """A translated block.

    constraints: its operands. registers: widths, operands first. lines: its instructions. per_thread: whether threads with the same
    operands may get different results. touches: whether it reads or writes memory, or threads meet in it. accesses: how many of its
    instructions do. orders: whether it may order memory. loops: whether it jumps back. meets: whether threads meet in it. waits: the
    instructions, by identity, with which loops poll that do nothing else. open_labels, uses: see ``Listing``.
    """

    text: str
    constraints: Constraints
    registers: tuple[int, ...]
    lines: list[Line]
    per_thread: bool
    touches: bool
    accesses: int
    orders: bool
    loops: bool
    meets: bool
    waits: frozenset[int]
    open_labels: tuple[str, ...]
    uses: tuple[Use, ...]


def _line(listing: Listing, number: int, instruction: Instruction) -> Line:
    guard = None if instruction.guard is None else (instruction.guard[0].slot, instruction.guard[1])
    if instruction.opcode == "bra":
        form = Form(instruction)
        form.flag("uni")
        form.done(1)
        (label,) = instruction.operands
        if not isinstance(label, Label):
            raise instruction.wrong("a branch needs a label")
        target = listing.target(instruction, label)
        poll = find_poll(listing.instructions[target:number], instruction.guard) if target <= number else None
        return Line(instruction, guard, target=target, poll=poll)
    if instruction.opcode in ("ret", "exit"):
        if instruction.opcode == "exit":
            raise instruction.unsupported("a thread that ends inside a block would leave its kernel; branch to the end of the block")
        form = Form(instruction)
        form.flag("uni")
        form.done(0)
        return Line(instruction, guard, ends=True)
    meets = MEETINGS.get(instruction.opcode)
    if meets is not None:
        met = meets(instruction, number)
        return Line(instruction, guard, step=met.step, meeting=met.meeting)
    translate = OPCODES.get(instruction.opcode)
    if translate is None:
        raise instruction.unsupported(f"the simulator does not have the instruction {instruction.opcode!r}")
    return Line(instruction, guard, step=translate(instruction))


def _specials(instruction: Instruction) -> list[str]:
    operands = [item for operand in instruction.operands for item in (operand.items if isinstance(operand, Vector) else (operand,))]
    return [operand.name for operand in operands if isinstance(operand, Special)]


@lru_cache(maxsize=1024)
def translate(text: str, constraints: str) -> AsmBlock:
    """The block for a text and its constraints, made once. Raises InlineAssemblyError, UnsupportedInstructionError."""
    operands = read_constraints(constraints)
    listing = parse(text, operands.widths)
    lines = [_line(listing, number, instruction) for number, instruction in enumerate(listing.instructions)]
    steps = [line.step for line in lines if line.step is not None]
    specials = [SPECIAL[name] for instruction in listing.instructions for name in _specials(instruction)]
    meets = any(line.meeting is not None for line in lines)
    return AsmBlock(
        text,
        operands,
        tuple(listing.registers),
        lines,
        per_thread=any(step.per_thread for step in steps) or any(special.per_thread for special in specials),
        touches=meets or any(step.touches for step in steps),
        accesses=sum(step.touches for step in steps),
        orders=meets or any(step.orders for step in steps),
        loops=any(0 <= line.target <= number for number, line in enumerate(lines)),
        meets=meets,
        waits=frozenset(id(line.poll.reader) for line in lines if line.poll is not None and line.poll.alone),
        open_labels=tuple(listing.open_labels),
        uses=tuple(listing.uses),
    )


def block_of(operation: Operation) -> AsmBlock | None:
    """The block of an op of inline assembly; None for another op, and for one that can't be run."""
    if operation.name != "tt.elementwise_inline_asm":
        return None
    try:
        return translate(str(operation.attributes["asm_string"]), str(operation.attributes["constraints"]))
    except UnsupportedOperationError:
        return None


def is_varying_block(operation: Operation) -> bool:
    """Whether an op is a block that gives threads different values."""
    block = None if find_twin(operation) is not None else block_of(operation)
    return block is not None and block.per_thread
