"""Taking an instruction apart: its modifiers one by one, and its operands as functions of the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .frame import Frame, Mask
from .special import SPECIAL
from .syntax import Discard, Immediate, Instruction, Negated, Operand, Register, Special, Variable
from .types import B128, TYPES, PtxType, constants_of_bits, extended

if TYPE_CHECKING:
    from .meeting import Meeting

Run = Callable[[Frame, Mask], None]
"""What an instruction does in some lanes."""

Read = Callable[[Frame], np.ndarray]
"""An operand, as numbers or as contents."""

Write = Callable[[Frame, np.ndarray, Mask], None]
"""Takes what an instruction gives."""


class Step(NamedTuple):
    """A translated instruction.

    run: what it does. per_thread: whether it gives different values to threads that have the same operands. touches: whether it reads or
    writes memory or meets other threads. yields_before, yields_after: whether other programs may run there.
    """

    run: Run
    per_thread: bool = False
    touches: bool = False
    yields_before: bool = False
    yields_after: bool = False
    orders: bool = False


class Form:
    """The modifiers of an instruction that have not been looked at yet."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.left = list(instruction.modifiers)

    def one_of(self, choices: Iterable[str], default: str | None = None) -> str:
        """The one of ``choices`` that the instruction has. Raises UnsupportedInstructionError if it has none and there is no default."""
        for modifier in self.left:
            if modifier in choices:
                self.left.remove(modifier)
                return modifier
        if default is None:
            raise self.instruction.unsupported(f"it has none of {', '.join('.' + choice for choice in choices)}")
        return default

    def flag(self, name: str) -> bool:
        """Whether the instruction has a modifier."""
        if name in self.left:
            self.left.remove(name)
            return True
        return False

    def drop(self, prefixes: tuple[str, ...]) -> None:
        """Leave out modifiers that mean nothing here: hints."""
        self.left = [modifier for modifier in self.left if not modifier.startswith(prefixes)]

    def type(self, allowed: Iterable[str] = ()) -> PtxType:
        """The next type. Raises UnsupportedInstructionError."""
        for modifier in self.left:
            kind = B128 if modifier == "b128" else TYPES.get(modifier)
            if kind is not None:
                if allowed and modifier not in allowed:
                    raise self.instruction.unsupported(f".{modifier} is not taken here")
                self.left.remove(modifier)
                return kind
        raise self.instruction.unsupported("it has no type that the simulator knows")

    def done(self, operands: int | tuple[int, ...] | None = None) -> None:
        """Nothing may be left. operands: how many there have to be."""
        if self.left:
            raise self.instruction.unsupported(f"the simulator does not know .{self.left[0]} here")
        if operands is not None:
            counts = (operands,) if isinstance(operands, int) else operands
            if len(self.instruction.operands) not in counts:
                raise self.instruction.wrong(f"it takes {' or '.join(map(str, counts))} operands, not {len(self.instruction.operands)}")


def contents(instruction: Instruction, operand: Operand, width: int, constants: str | None = None, *, wider: bool = False) -> Read:
    """The bits of an operand as an instruction of ``width`` bits takes them.

    constants: the kinds that it may be, see ``PtxType.constants``; by default those of the type without a kind. wider: whether a wider
    register may give its lower bits.
    """
    if isinstance(operand, Register):
        slot = operand.slot
        if operand.width == width:
            return lambda frame: frame.registers[slot]
        if wider and operand.width > width > 1:
            dtype = np.dtype(f"u{width // 8}")
            return lambda frame: frame.registers[slot].astype(dtype)
        raise instruction.wrong(f"{operand.name} has {_bits(operand.width)}, but {_bits(width)} are taken")
    if isinstance(operand, Negated):
        slot = operand.register.slot
        return lambda frame: ~frame.registers[slot]
    if isinstance(operand, Immediate):
        _check_constant(instruction, operand, constants_of_bits(width) if constants is None else constants, width)
        if width == 1:
            constant = np.array([bool(operand.value)])
        elif width == B128.bits:
            value = operand.bits(128)
            constant = np.array([[value & (1 << 64) - 1, value >> 64]], np.uint64)
        else:
            constant = np.array([operand.bits(width)], np.dtype(f"u{width // 8}"))
        return lambda frame: constant
    if isinstance(operand, Variable):
        if instruction.opcode not in ("mov", "mapa", "getctarank") or width not in (32, 64):
            raise instruction.wrong(f"mov takes the address of {operand.name}, into a register of 32 or 64 bits")
        return _address_of(operand, np.dtype(f"u{width // 8}"))
    if isinstance(operand, Special):
        if instruction.opcode not in ("mov", "cvt"):
            raise instruction.wrong(f"a special register is read by mov and cvt only; move {operand.name} into a register first")
        register = SPECIAL[operand.name]
        if width == B128.bits or (register.width != width and not (wider or width > register.width)):
            raise instruction.wrong(f"{operand.name} has {register.width} bits, but {width} are taken")
        dtype = np.dtype(f"u{width // 8}")
        return lambda frame: np.atleast_1d(np.asarray(register.read(frame))).astype(dtype)
    raise instruction.wrong("a register or a number is taken here")


def _check_constant(instruction: Instruction, operand: Immediate, constants: str, width: int) -> None:
    if operand.kind in constants:
        return
    if not constants:
        raise instruction.wrong(f"no constant is taken here; move {operand.written} into a register first")
    if operand.kind in "su":
        raise instruction.wrong(f"{operand.written} is an integer; a float is written with a point, or as its bits (0f3F800000)")
    if "s" not in constants or (operand.kind == "d" and "f" in constants):
        other = "its bits, 0f and 8 digits" if width == 32 else "a number with a point, or as its bits, 0d and 16 digits"
        raise instruction.wrong(f"{operand.written} is a float of {64 if operand.kind == 'd' else 32} bits; write it as {other}")
    raise instruction.wrong(f"{operand.written} is a float, and an integer is taken here")


def _address_of(variable: Variable, dtype: np.dtype) -> Read:
    from .shared import place_of

    return lambda frame: np.array([place_of(frame, variable) + variable.offset], dtype)


def _bits(width: int) -> str:
    return "1 bit (it is a predicate)" if width == 1 else f"{width} bits"


def numbers(instruction: Instruction, operand: Operand, kind: PtxType, *, wider: bool = False) -> Read:
    """An operand as numbers of a type."""
    read = contents(instruction, operand, kind.bits, kind.constants, wider=wider)
    return lambda frame: kind.numbers(read(frame))


def predicate(instruction: Instruction, operand: Operand) -> Read:
    """An operand that is a predicate."""
    return contents(instruction, operand, 1)


def writer(instruction: Instruction, operand: Operand, kind: PtxType, *, wider: bool = False) -> Write:
    """Where an instruction puts contents of a type. wider: whether a wider register takes them, extended."""
    if isinstance(operand, Discard):
        return lambda frame, bits, mask: None
    if not isinstance(operand, Register):
        raise instruction.wrong("its result needs a register")
    slot, width = operand.slot, operand.width
    if width == kind.bits:
        return lambda frame, bits, mask: frame.write(slot, bits, mask)
    if wider and width > kind.bits > 1:
        return lambda frame, bits, mask: frame.write(slot, extended(bits, kind, width), mask)
    raise instruction.wrong(f"{operand.name} has {_bits(width)}, but the result has {_bits(kind.bits)}")


Translate = Callable[[Instruction], Step]

OPCODES: dict[str, Translate] = {}
"""How to translate an instruction, by its first word; filled by the modules of the families."""


def opcode(*names: str) -> Callable[[Translate], Translate]:
    """Register the decorated function for instructions."""

    def register(function: Translate) -> Translate:
        for name in names:
            OPCODES[name] = function
        return function

    return register


class Met(NamedTuple):
    """A translated instruction at which threads meet. meeting: None where they only tell others that they came. step: what it does then."""

    meeting: Meeting | None
    step: Step | None


TranslateMeeting = Callable[[Instruction, int], Met]

MEETINGS: dict[str, TranslateMeeting] = {}
"""As ``OPCODES``, for instructions at which threads meet; the second argument is the instruction's number."""


def meeting_opcode(*names: str) -> Callable[[TranslateMeeting], TranslateMeeting]:
    """Register the decorated function for instructions at which threads meet."""

    def register(function: TranslateMeeting) -> TranslateMeeting:
        for name in names:
            MEETINGS[name] = function
        return function

    return register


def pure(function: Callable[[Instruction], Run]) -> Translate:
    """A translator of instructions that only compute."""

    def translate(instruction: Instruction) -> Step:
        return Step(function(instruction), per_thread=_reads_thread(instruction))

    return translate


def _reads_thread(instruction: Instruction) -> bool:
    return any(isinstance(operand, Special) and SPECIAL[operand.name].per_thread for operand in instruction.operands)
