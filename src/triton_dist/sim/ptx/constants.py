"""Constants: numbers as they are written, and expressions of them, which the assembler works out in 64 bits.

An integer is signed, or unsigned where it has a ``U`` or is too large, and so is what comes of it, as in C; of ``~`` and ``%`` come
unsigned ones.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any

from .cursor import Cursor
from .syntax import Immediate

_MASK = (1 << 64) - 1
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
"""Operators of two constants, those that bind least first."""

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
}
_OF_FLOATS = ("+", "-", "*", "/", "==", "!=", "<", "<=", ">", ">=")


def begins_constant(cursor: Cursor) -> bool:
    """Whether a constant stands here, and not a register, a label or a predicate."""
    token = cursor.token
    if token.text == "!":
        following = cursor.ahead(1)
        return following.kind == "number" or following.text in ("WARP_SZ", "(", "!", "~", "-", "+")
    return token.kind == "number" or token.text in ("WARP_SZ", "(", "~", "-", "+")


def read_constant(cursor: Cursor) -> Immediate:
    """An expression of constants. Raises InlineAssemblyError, and UnsupportedInstructionError for one inside of too many others."""
    try:
        return _expression(cursor)
    except RecursionError:
        raise cursor.unsupported("the simulator takes no constant with so many brackets and signs inside of one another") from None


def _expression(cursor: Cursor) -> Immediate:
    condition = _binary(cursor, 0)
    if not cursor.take("?"):
        return condition
    line = cursor.token.line
    first = _expression(cursor)
    cursor.need(":")
    second = _expression(cursor)
    if {condition.kind, first.kind, second.kind} - {"s", "u"}:
        raise cursor.fail("'?' chooses between integers, by an integer", line)
    return first if condition.value else second


def read_number(cursor: Cursor, text: str, line: int) -> Immediate:
    """A number as a token has it."""
    low = text.lower()
    if low.startswith("0f"):
        pattern = int(low[2:], 16)
        return Immediate(struct.unpack("<f", struct.pack("<I", pattern))[0], "f", pattern)
    if low.startswith("0d"):
        return _double(int(low[2:], 16))
    digits = low.removesuffix("u")
    if not digits.startswith(("0x", "0b")) and ("." in digits or "e" in digits):
        value = float(digits)
        if value in (float("inf"), 0.0) and digits.partition("e")[0].strip("0.") != "":
            raise cursor.fail(f"{text} is no float of 64 bits, it is too {'large' if value else 'small'}", line)
        return Immediate(value, "d", struct.unpack("<Q", struct.pack("<d", value))[0])
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    if octal and set(digits) & set("89"):
        raise cursor.fail(f"{text} begins with 0 and is octal, whose digits go from 0 to 7", line)
    number = int(digits, 8 if octal else 0)
    if number > _MASK:
        raise cursor.fail(f"{text} has more than 64 bits", line)
    return Immediate(number, "u" if number >> 63 or low.endswith("u") else "s")


def _double(pattern: int) -> Immediate:
    return Immediate(struct.unpack("<d", struct.pack("<Q", pattern))[0], "d", pattern)


def _integer(number: int, kind: str) -> Immediate:
    number &= _MASK
    return Immediate(number - (1 << 64) if kind == "s" and number >> 63 else number, kind)


def _binary(cursor: Cursor, level: int) -> Immediate:
    if level == len(_LEVELS):
        return _unary(cursor)
    left = _binary(cursor, level + 1)
    while cursor.token.kind == "mark" and cursor.token.text in _LEVELS[level]:
        mark = cursor.next()
        left = _joined(cursor, mark.text, mark.line, left, _binary(cursor, level + 1))
    return left


def _unary(cursor: Cursor) -> Immediate:
    token = cursor.next()
    if token.kind == "number":
        return read_number(cursor, token.text, token.line)
    if token.text == "WARP_SZ":
        return Immediate(32)
    if token.text == "(":
        return _in_brackets(cursor)
    if token.text not in ("-", "+", "~", "!"):
        raise cursor.fail(f"expected a number and found {token.text!r}", token.line)
    operand = _unary(cursor)
    if operand.kind == "f" or (operand.kind == "d" and token.text in "~!"):
        raise cursor.fail(f"{token.text!r} is not for the float {operand.written}", token.line)
    if token.text == "+":
        return operand
    if operand.kind == "d":
        return _double(operand.pattern ^ 1 << 63)
    number = int(operand.value)
    if token.text == "-":
        return _integer(-number, operand.kind)
    return _integer(~number, "u") if token.text == "~" else Immediate(int(not number))


def _in_brackets(cursor: Cursor) -> Immediate:
    cast = cursor.next().text if cursor.token.kind == "directive" else ""
    if cast not in ("", ".s64", ".u64"):
        raise cursor.fail(f"a constant becomes one of .s64 or .u64, not of {cast}")
    inner = _unary(cursor) if cast and cursor.take(")") else None if cast else _expression(cursor)
    if inner is None:
        raise cursor.fail(f"expected ')' behind {cast}")
    if not cast:
        cursor.need(")")
        return inner
    if inner.kind not in "su":
        raise cursor.fail(f"{inner.written} is a float; ({cast}) takes an integer")
    return _integer(int(inner.value), cast[1])


def _joined(cursor: Cursor, mark: str, line: int, left: Immediate, right: Immediate) -> Immediate:
    kinds = {left.kind, right.kind}
    if "f" in kinds:
        raise cursor.fail(f"a float that is written as its 32 bits stands alone, not beside {mark!r}", line)
    if "d" in kinds:
        return _joined_floats(cursor, mark, line, left, right)
    if mark in ("<<", ">>"):
        amount, number = int(right.value) & 63, int(left.value)
        return _integer(number << amount if mark == "<<" else number >> amount, left.kind)
    kind = "u" if "u" in kinds or mark == "%" else "s"
    a, b = (int(_integer(int(one.value), kind).value) for one in (left, right))
    if mark in _COMPARE:
        return Immediate(int(_COMPARE[mark](a, b)))
    if mark in _COMPUTE:
        return _integer(_COMPUTE[mark](a, b), kind)
    if not b:
        raise cursor.fail("a constant is divided by zero", line)
    quotient = abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
    return _integer(quotient if mark == "/" else a - b * quotient, kind)


def _joined_floats(cursor: Cursor, mark: str, line: int, left: Immediate, right: Immediate) -> Immediate:
    if left.kind != right.kind or mark not in _OF_FLOATS:
        raise cursor.fail(f"{mark!r} does not take {left.written} and {right.written}", line)
    if mark in _COMPARE:
        return Immediate(int(_COMPARE[mark](left.value, right.value)))
    try:
        value = left.value / right.value if mark == "/" else _COMPUTE[mark](left.value, right.value)
    except ZeroDivisionError:
        raise cursor.fail("a constant is divided by zero", line) from None
    return Immediate(value, "d", struct.unpack("<Q", struct.pack("<d", value))[0])
