"""Tokens -> instructions: scopes, declarations of registers, labels, predicates and operands."""

from __future__ import annotations

import struct

from ...errors import InlineAssemblyError
from .special import SPECIAL
from .syntax import (
    Address,
    Discard,
    Immediate,
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
from .tokens import Token, tokenize
from .types import TYPES

_END = Token("end", "the end", 0)
_MOST_SHARED = 227 * 1024
_MOST_REGISTERS = 4096
_PARTS = {".v2": "xy", ".v4": "xyzw"}
"""Of a vector of registers: what stands behind its name and a dot."""


class _Parser:
    def __init__(self, text: str, widths: list[int]) -> None:
        self.text = text.split("\n")
        self.tokens = tokenize(text)
        self.at = 0
        self.listing = Listing(registers=list(widths))
        self.operands = [Register(slot, width, f"${slot}") for slot, width in enumerate(widths)]
        self.scope: tuple[int, ...] = ()
        self.scopes = 0
        self.names: list[dict[str, Register | Vector | Variable]] = [{}]

    # Tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def take(self, mark: str) -> bool:
        if self.token.text == mark and self.token.kind in ("mark", "word", "directive"):
            self.at += 1
            return True
        return False

    def next(self) -> Token:
        token = self.token
        self.at += 1
        return token

    def fail(self, why: str, line: int = 0) -> InlineAssemblyError:
        line = line or self.token.line or len(self.text)
        return InlineAssemblyError(f"line {line} of the assembly, {self.text[line - 1].strip()!r}: {why}")

    def need(self, mark: str) -> None:
        if not self.take(mark):
            missing = "; every instruction ends with one" if mark == ";" else ""
            raise self.fail(f"expected {mark!r} and found {self.token.text!r}{missing}", self.tokens[self.at - 1].line if self.at else 0)

    # Statements

    def block(self) -> Listing:
        while self.token is not _END:
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
        elif self.take(";"):
            pass
        elif token.kind == "directive":
            self.directive()
        elif token.kind == "word" and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].text == ":":
            self.at += 2
            key = (self.scope, token.text)
            if key in self.listing.targets:
                raise self.fail(f"the label {token.text!r} stands here a second time", token.line)
            self.listing.targets[key] = len(self.listing.instructions)
        else:
            self.instruction()

    def directive(self) -> None:
        token = self.next()
        if token.text == ".pragma":
            while not self.take(";"):
                if self.token is _END:
                    raise self.fail("expected ';'", token.line)
                self.at += 1
            return
        if token.text == ".shared":
            self.variables(token.line)
            return
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
            if self.take("["):
                count = self.number("a number of elements")
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
        value = _number(token.text) if token.kind == "number" else None
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
        return Pair(first, self.operand()) if self.take("|") else first

    def operand(self) -> Operand:
        token = self.next()
        if token.kind == "operand":
            if int(token.text) >= len(self.operands):
                raise self.fail(f"there is no operand ${token.text}: the constraints name {len(self.operands)}", token.line)
            self.note_use(int(token.text), token.line)
            return self.operands[int(token.text)]
        if token.kind == "number":
            return Immediate(_number(token.text))
        if token.kind == "register" and token.text in SPECIAL and self.declared(token.text) is None:
            return Special(token.text)
        if token.kind in ("register", "word"):
            return self.named(token)
        if token.text == "-":
            number = self.next()
            if number.kind != "number":
                raise self.fail(f"expected a number behind '-' and found {number.text!r}", token.line)
            return Immediate(-_number(number.text))
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
        if token.kind == "register":
            raise self.fail(f"{token.text} is neither declared (.reg) nor a special register that the simulator has", token.line)
        if token.text == "WARP_SZ":
            return Immediate(32)
        return Label(token.text, self.scope)

    def address(self, token: Token) -> Operand:
        base = self.operand()
        if not isinstance(base, (Register, Immediate, Variable)):
            raise self.fail("an address is a register, a variable or a number, and a number of bytes", token.line)
        offset = 0
        while self.token.text in ("+", "-"):
            sign = 1 if self.next().text == "+" else -1
            negative = self.take("-")
            number = self.next()
            if number.kind != "number":
                raise self.fail(f"expected a number of bytes and found {number.text!r}", token.line)
            offset += (-sign if negative else sign) * int(_number(number.text))
        self.need("]")
        return Address(base, offset)


def _number(text: str) -> int | float:
    low = text.lower()
    if low.startswith("0f"):
        return struct.unpack(">f", bytes.fromhex(low[2:]))[0]
    if low.startswith("0d"):
        return struct.unpack(">d", bytes.fromhex(low[2:]))[0]
    low = low.removesuffix("u")
    if low.startswith(("0x", "0b")):
        return int(low, 0)
    if "." in low or "e" in low:
        return float(low)
    return int(low, 8) if low.startswith("0") and len(low) > 1 else int(low)


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
