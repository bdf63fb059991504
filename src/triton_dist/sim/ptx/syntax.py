"""What a parsed block consists of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...errors import InlineAssemblyError, UnsupportedInstructionError
from .cursor import INSTEAD


@dataclass(frozen=True)
class Register:
    """A register by its number in the block. width: bits, 1 for a predicate."""

    slot: int
    width: int
    name: str


@dataclass(frozen=True)
class Immediate:
    """A constant. value: an integer or a float.

    kind: "s" and "u" are integers of 64 bits, "d" is a float of 64 bits, and "f" one of 32 that was written as its bits (``0f3F800000``).
    pattern: the bits of a float.
    """

    value: int | float
    kind: str = "s"
    pattern: int = 0

    @property
    def written(self) -> str:
        """As it may be written."""
        return f"0f{self.pattern:08X}" if self.kind == "f" else str(self.value)

    def bits(self, width: int) -> int:
        """The constant as a register of ``width`` bits holds it."""
        if self.kind in "su":
            return int(self.value) & ((1 << width) - 1)
        if self.kind == "f" or width == 64:
            return self.pattern
        with np.errstate(all="ignore"):
            return int(np.array([self.pattern], np.uint64).view(np.float64).astype(np.float32).view(np.uint32)[0])


@dataclass(frozen=True)
class Special:
    """A special register, such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Variable:
    """A variable in shared memory, by its number in the block. size: bytes. offset: bytes that are added to its address."""

    number: int
    name: str
    size: int
    align: int
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """``[base + offset]``."""

    base: Register | Variable
    offset: int


@dataclass(frozen=True)
class Vector:
    """``{a, b}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Label:
    """A place to branch to: the number of an instruction, known when the whole block is parsed."""

    name: str
    scope: tuple[int, ...]


@dataclass(frozen=True)
class Discard:
    """``_``: a result that nobody wants."""


@dataclass(frozen=True)
class Negated:
    """``!p``."""

    register: Register


@dataclass(frozen=True)
class Pair:
    """``p|q``: two predicates of one instruction."""

    first: Operand
    second: Operand


Operand = Register | Immediate | Special | Variable | Address | Vector | Label | Discard | Negated | Pair


@dataclass(frozen=True)
class Instruction:
    """One instruction. guard: predicate register and whether it is negated. line: in the assembly, from 1 on."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    line: int
    text: str

    @property
    def place(self) -> str:
        """As errors name it."""
        return f"line {self.line} of the assembly, {self.text!r}"

    def unsupported(self, why: str) -> UnsupportedInstructionError:
        """The error for what is outside the subset."""
        return UnsupportedInstructionError(f"{self.place}: {why}; {INSTEAD}")

    def wrong(self, why: str) -> InlineAssemblyError:
        """The error for what no assembler would take."""
        return InlineAssemblyError(f"{self.place}: {why}")

    def number(self, operand: Operand, what: str, end: int) -> int:
        """An operand that has to be a constant from 0 to ``end - 1``. what: the operand."""
        if not isinstance(operand, Immediate) or not isinstance(operand.value, int) or not 0 <= operand.value < end:
            raise self.wrong(f"{what} is a whole number from 0 to {end - 1}")
        return operand.value


@dataclass(frozen=True)
class Use:
    """A line where an operand ``$slot`` stands, and the names that the block itself has declared there."""

    slot: int
    line: int
    visible: tuple[str, ...]


@dataclass
class Listing:
    """A parsed block. registers: their widths by number, of which the first are the operands ``$0``, ``$1``, ...

    targets: for each label the number of the instruction behind it, by (scope, name). open_labels: those outside of all
    braces, which another copy of the block would have again. uses: where operands stand beside registers of the
    block's own, each operand once for each set of names. variables: in shared memory.
    """

    instructions: list[Instruction] = field(default_factory=list)
    registers: list[int] = field(default_factory=list)
    targets: dict[tuple[tuple[int, ...], str], int] = field(default_factory=dict)
    open_labels: list[str] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)

    def target(self, instruction: Instruction, label: Label) -> int:
        """Where a branch goes. Raises InlineAssemblyError."""
        scope = label.scope
        while (scope, label.name) not in self.targets:
            if not scope:
                raise instruction.wrong(f"there is no label {label.name!r} that it can see")
            scope = scope[:-1]
        return self.targets[scope, label.name]
