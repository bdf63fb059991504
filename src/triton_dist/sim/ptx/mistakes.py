"""Blocks whose operands may not be in the registers that they seem to be in: what a GPU computes is then another thing.

The compiler writes the names of its own registers, ``%r1``, ``%rd1``, ..., in place of ``$0``, ``$1``, ...; and it takes a result that is
not marked ``=&`` as written after all operands have been read, so that the two may share a register.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .block import AsmBlock
from .control import Line
from .syntax import Address, Instruction, Negated, Operand, Pair, Register, Vector

_COMPILER_NAMES = {1: "%p", 16: "%rs", 32: "%r", 64: "%rd", 128: "%rq"}
"""How the compiler's registers are called, by width; numbers from 1 on follow."""

_WITHOUT_RESULT = ("nanosleep", "bra", "ret", "setmaxnreg", "trap")
"""Instructions whose first operand may be a register and is only read."""


class Mistake(NamedTuple):
    """code: of the lint. message: what is wrong with the block."""

    code: str
    message: str


def find_mistakes(block: AsmBlock, repeated: bool) -> list[Mistake]:
    """What a block does wrong. repeated: whether it stands in a loop or a branch, where the compiler has registers that meet."""
    found = [Mistake("TD119", message) for message in _hidden(block)]
    if repeated:
        found += [Mistake("TD120", message) for message in _overwritten(block)]
    return found


def _hidden(block: AsmBlock) -> Iterator[str]:
    for use in block.uses:
        width = block.registers[use.slot]
        pattern = re.compile(re.escape(_COMPILER_NAMES[width]) + r"[1-9]\d*")
        name = next((name for name in use.visible if pattern.fullmatch(name)), None)
        if name is not None:
            yield (
                f"line {use.line} of the assembly: the block declares {name}, a name of the compiler's own registers; ${use.slot} may "
                f"stand for that one, and then names the block's; give the block's register another name, such as %my_{name[1:]}"
            )
            return


def _overwritten(block: AsmBlock) -> Iterator[str]:
    constraints, lines = block.constraints, block.lines
    tied = {slot for slot, _ in constraints.tied}
    for result in range(constraints.outputs):
        if result in constraints.early:
            continue
        shared = {
            slot
            for slot in range(constraints.outputs, len(constraints.widths))
            if slot not in tied and constraints.widths[slot] == constraints.widths[result]
        }
        message = shared and _read_behind(lines, result, shared)
        if message:
            yield message
            return


def _read_behind(lines: list[Line], result: int, shared: set[int]) -> str:
    """The report of an operand that is read behind the first write of a result; "" if there is none."""
    for place, line in enumerate(lines):
        if result not in _written(line.instruction):
            continue
        for other in _reached(lines, place):
            late = shared & set(_read(lines[other].instruction))
            if late and not _excluded(line.instruction, lines[other].instruction):
                slot = min(late)
                return (
                    f"{line.instruction.place}, writes ${result} before ${slot} is read in line {lines[other].instruction.line}; the "
                    f"compiler may give both the same register, as it does where a loop hands the result to the operand: "
                    f"the constraint of ${result} has to begin with '=&'"
                )
    return ""


def _reached(lines: list[Line], place: int) -> list[int]:
    """The lines that may run after one, in order."""
    seen: set[int] = set()
    waiting = _next(lines, place)
    while waiting:
        one = waiting.pop()
        if one < len(lines) and one not in seen:
            seen.add(one)
            waiting += _next(lines, one)
    return sorted(seen)


def _next(lines: list[Line], place: int) -> list[int]:
    line = lines[place]
    goes_on = [place + 1] if line.guard is not None or (line.target < 0 and not line.ends) else []
    return goes_on + ([line.target] if line.target >= 0 else [])


def _excluded(first: Instruction, second: Instruction) -> bool:
    """Whether two instructions are under a predicate and its opposite."""
    return first.guard is not None and second.guard is not None and first.guard == (second.guard[0], not second.guard[1])


def _written(instruction: Instruction) -> list[int]:
    if not instruction.operands or instruction.opcode in _WITHOUT_RESULT or isinstance(instruction.operands[0], Address):
        return []
    if instruction.opcode in ("bar", "barrier") and "red" not in instruction.modifiers:
        return []
    return list(_slots(instruction.operands[0]))


def _read(instruction: Instruction) -> list[int]:
    first = 1 if _written(instruction) else 0
    return [slot for operand in instruction.operands[first:] for slot in _slots(operand)] + (
        [instruction.guard[0].slot] if instruction.guard is not None else []
    )


def _slots(operand: Operand) -> Iterator[int]:
    if isinstance(operand, Register):
        yield operand.slot
    elif isinstance(operand, Negated):
        yield operand.register.slot
    elif isinstance(operand, Address) and isinstance(operand.base, Register):
        yield operand.base.slot
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _slots(item)
    elif isinstance(operand, Pair):
        yield from _slots(operand.first)
        yield from _slots(operand.second)
