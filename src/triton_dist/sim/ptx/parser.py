"""Tokens -> instructions: scopes, declarations of registers, labels, predicates and operands."""

from __future__ import annotations

import re
from dataclasses import replace

from .constants import begins_constant, read_constant, read_number
from .cursor import END, Cursor
from .special import SPECIAL, VECTORS
from .syntax import (
    Address,
    Discard,
    Instruction,
    Label,
    Listing,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Use,
    Variable,
    Vector,
)
from .tokens import UNIQUE, Token
from .types import TYPES

_MOST_SHARED = 227 * 1024
_MOST_REGISTERS = 4096
_PARTS = {".v2": "xy", ".v4": "xyzw"}
"""Of a vector of registers: what stands behind its name and a dot."""

_UNSUPPORTED = (".local", ".const", ".global", ".param", ".branchtargets", ".calltargets", ".callprototype")
"""What else an assembler takes in a block."""

_OTHER_SPECIAL = re.compile(
    r"%envreg([12]?\d|3[01])|%pm[0-7](_64)?|%reserved_smem_offset_(begin|end|cap|0|1)|%(total|aggr|dynamic)_smem_size|%current_graph_exec|"
    r"%is_explicit_cluster"
)
"""Special registers that PTX has and a simulated GPU has not."""


class _Parser(Cursor):
    def __init__(self, text: str, widths: list[int]) -> None:
        super().__init__(text)
        self.listing = Listing(registers=list(widths))
        self.operands = [Register(slot, width, f"${slot}") for slot, width in enumerate(widths)]
        self.scope: tuple[int, ...] = ()
        self.scopes = 0
        self.names: list[dict[str, Register | Vector | Variable]] = [{}]

    # Statements

    def block(self) -> Listing:
        while self.token is not END:
            self.statement()
        if self.scope:
            raise self.fail("a scope is opened by '{' and never closed")
        return self.listing

    def statement(self) -> None:
        token = self.token
        if self.take("{"):
            self.scopes += 1
            self.scope = (*self.scope, self.scopes)
            self.names.append({})
        elif self.take("}"):
            if not self.scope:
                raise self.fail("'}' closes no scope", token.line)
            self.scope = self.scope[:-1]
            self.names.pop()
        elif token.text == ";":
            raise self.fail("';' stands where no instruction is; leave it out")
        elif token.kind == "directive":
            self.directive()
        elif token.kind == "word" and self.ahead(1).text == ":":
            self.at += 2
            key = (self.scope, token.text)
            if key in self.listing.targets:
                raise self.fail(f"the label {token.text!r} stands here a second time", token.line)
            self.listing.targets[key] = len(self.listing.instructions)
            if not self.scope and UNIQUE not in token.text:
                self.listing.open_labels.append(token.text)
        else:
            self.instruction()

    def directive(self) -> None:
        token = self.next()
        if token.text == ".pragma":
            while not self.take(";"):
                if self.token is END:
                    raise self.fail("expected ';'", token.line)
                self.at += 1
            return
        if token.text == ".loc":
            for what in ("the number of a file", "a line", "a column"):
                self.number(what)
            return
        if token.text == ".shared":
            self.variables(token.line)
            return
        if token.text in _UNSUPPORTED:
            raise self.unsupported(f"the simulator does not know {token.text} in a block", token.line)
        if token.text != ".reg":
            raise self.fail(f"{token.text} is not taken in a block; only .reg and .shared declarations are", token.line)
        name = self.next().text
        parts = _PARTS.get(name, "")
        if parts:
            name = self.next().text
        kind = TYPES.get(name[1:])
        width = 128 if name == ".b128" else 0 if kind is None else kind.bits
        if not width:
            raise self.fail(f"{name} is no type of a register", token.line)
        while True:
            self.declare(width, parts)
            if not self.take(","):
                break
        self.need(";")

    def variables(self, line: int) -> None:
        """``.shared .align 8 .b8 name[64], other[8];``: variables of the block in shared memory."""
        align = self.number("an alignment") if self.take(".align") else 0
        if self.token.text in _PARTS:
            raise self.unsupported("variables are of single elements, not of vectors", line)
        kind = TYPES.get(self.next().text[1:])
        if kind is None or kind.bits < 8:
            raise self.fail("expected the type of a variable, such as .b8", line)
        if align & (align - 1):
            raise self.fail(f"an alignment is a power of two, not {align}", line)
        while True:
            name = self.next()
            if name.kind not in ("register", "word") or name.text in self.names[-1]:
                raise self.fail(f"expected the name of a new variable and found {name.text!r}", line)
            count = 1
            while self.take("["):
                count *= self.number("a number of elements")
                self.need("]")
            size = count * kind.bits // 8
            if not 0 < size <= _MOST_SHARED:
                raise self.fail(f"{name.text} has {size} bytes; a block may have {_MOST_SHARED}", line)
            variable = Variable(len(self.listing.variables), name.text, size, max(align, kind.bits // 8))
            self.listing.variables.append(variable)
            self.names[-1][name.text] = variable
            if not self.take(","):
                break
        self.need(";")

    def number(self, what: str) -> int:
        token = self.next()
        value = read_number(self, token.text, token.line).value if token.kind == "number" else None
        if not isinstance(value, int):
            raise self.fail(f"expected {what} and found {token.text!r}", token.line)
        return value

    def declare(self, width: int, parts: str) -> None:
        """parts: of a vector, which is declared as its registers and as what they are in braces."""
        token = self.next()
        if token.kind not in ("register", "word"):
            raise self.fail(f"expected the name of a register and found {token.text!r}", token.line)
        names = [token.text]
        if self.take("<"):
            count = self.number("a number of registers")
            self.need(">")
            if not 0 < count <= _MOST_REGISTERS:
                raise self.fail(f"{count} registers are declared; {_MOST_REGISTERS} may be", token.line)
            names = [f"{token.text}{number}" for number in range(count)]
        for name in names:
            if name in self.names[-1]:
                raise self.fail(f"the register {name} is declared twice in one scope", token.line)
            if parts:
                self.names[-1][name] = Vector(tuple(self.register(f"{name}.{part}", width) for part in parts))
            else:
                self.register(name, width)

    def register(self, name: str, width: int) -> Register:
        """A new register, under its name in this scope."""
        register = self.names[-1][name] = Register(len(self.listing.registers), width, name)
        self.listing.registers.append(width)
        return register

    def instruction(self) -> None:
        begin = self.at
        line = self.token.line
        guard = None
        if self.take("@"):
            negated = self.take("!")
            register = self.operand()
            if not isinstance(register, Register) or register.width != 1:
                raise self.fail("a guard (@p) is a predicate register", line)
            guard = (register, negated)
        word = self.next()
        if word.kind != "word":
            raise self.fail(f"expected an instruction and found {word.text!r}", word.line or line)
        opcode, *modifiers = word.text.split(".")
        while self.token.kind == "directive":
            modifiers.append(self.next().text[1:])
        operands: list[Operand] = []
        if self.token.text != ";":
            operands.append(self.paired())
            while self.take(","):
                operands.append(self.paired())
        end = self.at
        self.need(";")
        text = _as_written(self.tokens[begin:end])
        self.listing.instructions.append(Instruction(opcode, tuple(modifiers), tuple(operands), guard, line, text))

    # Operands

    def paired(self) -> Operand:
        first = self.operand()
        if isinstance(first, Variable):
            return replace(first, offset=self.offset())
        if isinstance(first, Register) and self.token.text in ("+", "-"):
            raise self.unsupported("the simulator does not add a number to a register in an operand; use add")
        return Pair(first, self.operand()) if self.take("|") else first

    def operand(self) -> Operand:
        if begins_constant(self):
            return read_constant(self)
        token = self.next()
        if token.kind == "operand":
            if int(token.text) >= len(self.operands):
                raise self.fail(f"there is no operand ${token.text}: the constraints name {len(self.operands)}", token.line)
            self.note_use(int(token.text), token.line)
            return self.operands[int(token.text)]
        if token.kind == "register" and self.declared(token.text) is None:
            if token.text in SPECIAL:
                return Special(token.text)
            if token.text in VECTORS:
                return Vector(tuple(Special(f"{token.text}.{letter}") for letter in "xyzw"))
        if token.kind in ("register", "word"):
            return self.named(token)
        if token.text == "!":
            register = self.operand()
            if not isinstance(register, Register) or register.width != 1:
                raise self.fail("'!' stands before a predicate register", token.line)
            return Negated(register)
        if token.text == "[":
            return self.address(token)
        if token.text == "{":
            items = [self.operand()]
            while self.take(","):
                items.append(self.operand())
            self.need("}")
            return Vector(tuple(items))
        raise self.fail(f"{token.text!r} is no operand", token.line)

    def note_use(self, slot: int, line: int) -> None:
        visible = tuple(name for names in self.names for name in names)
        if visible and all((use.slot, use.visible) != (slot, visible) for use in self.listing.uses):
            self.listing.uses.append(Use(slot, line, visible))

    def declared(self, name: str) -> Register | Vector | Variable | None:
        return next((names[name] for names in reversed(self.names) if name in names), None)

    def named(self, token: Token) -> Operand:
        if token.text == "_":
            return Discard()
        register = self.declared(token.text)
        if register is not None:
            return register
        if _OTHER_SPECIAL.fullmatch(token.text):
            raise self.unsupported(f"the simulator does not have the special register {token.text}", token.line)
        if token.kind == "register":
            raise self.fail(f"{token.text} is neither declared (.reg) nor a special register that the simulator has", token.line)
        return Label(token.text, self.scope)

    def address(self, token: Token) -> Operand:
        base = self.operand()
        if not isinstance(base, (Register, Variable)):
            raise self.fail("an address is a register or a variable, and a number of bytes", token.line)
        offset = self.offset()
        self.need("]")
        return Address(base, offset)

    def offset(self) -> int:
        """``+ 4`` behind a register or a variable: bytes."""
        if self.token.text == "-":
            raise self.fail("an offset is added; write a negative one as +-4")
        if not self.take("+"):
            return 0
        line = self.token.line
        number = read_constant(self)
        if not isinstance(number.value, int):
            raise self.fail(f"expected a number of bytes and found {number.written}", line)
        return number.value - (1 << 64) if number.value >> 63 > 0 else number.value


def _as_written(tokens: list[Token]) -> str:
    text = ""
    for token in tokens:
        piece = f"${token.text}" if token.kind == "operand" else token.text
        glued = not text or piece in ",]})|" or text[-1] in "[{(!@-|"
        text += piece if glued or (text.endswith("@") or text.endswith("!")) else f" {piece}"
    return text


def parse(text: str, widths: list[int]) -> Listing:
    """Parse a block. widths: of the operands ``$0``, ``$1``, ... in bits, 1 for a predicate. Raises InlineAssemblyError."""
    return _Parser(text, widths).block()
