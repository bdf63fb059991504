"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, dp4a, and their forms with a carry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ops import arith
from .form import Form, Run, contents, numbers, writer
from .syntax import Instruction
from .types import TYPES, PtxType

Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
_PACKED = ("u16x2", "s16x2")


def is_integer(instruction: Instruction) -> bool:
    """Whether the first type of an instruction is one of integers."""
    kind = next((TYPES[word] for word in instruction.modifiers if word in TYPES), None)
    return kind is not None and kind.kind in "us"


def binary(instruction: Instruction, form: Form, kind: PtxType, function: Binary) -> Run:
    """An instruction of two operands and a result of one type."""
    form.done(3)
    a, b = (numbers(instruction, operand, kind) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)
    return lambda frame, mask: write(frame, kind.contents(function(a(frame), b(frame))), mask)


def unary(instruction: Instruction, form: Form, kind: PtxType, function: Callable[[np.ndarray], np.ndarray]) -> Run:
    """An instruction of one operand and a result of one type."""
    form.done(2)
    a, write = numbers(instruction, instruction.operands[1], kind), writer(instruction, instruction.operands[0], kind)
    return lambda frame, mask: write(frame, kind.contents(function(a(frame))), mask)


def _saturated(function: Binary) -> Binary:
    limits = np.iinfo(np.int32)
    return lambda a, b: np.clip(function(a.astype(np.int64), b.astype(np.int64)), limits.min, limits.max).astype(np.int32)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return arith.divide_signed(a, b) if a.dtype.kind == "i" else arith.divide_unsigned(a, b)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return arith.remainder_signed(a, b) if a.dtype.kind == "i" else arith.remainder_unsigned(a, b)


def multiply_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of a product."""
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(8 * a.dtype.itemsize)).astype(a.dtype)
    a, b = np.broadcast_arrays(a, b)
    high = arith.multiply_high_unsigned(a.view(np.uint64), b.view(np.uint64)).view(a.dtype)
    if a.dtype.kind == "u":
        return high
    # Of signed numbers the product of the bits counts 2**64 too much for each negative one.
    return high - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


SIMPLE: dict[str, tuple[Binary, tuple[str, ...]]] = {
    "add": (np.add, (*INTEGERS, *_PACKED)),
    "sub": (np.subtract, INTEGERS),
    "div": (_divide, INTEGERS),
    "rem": (_remainder, INTEGERS),
    "min": (np.minimum, (*INTEGERS, *_PACKED)),
    "max": (np.maximum, (*INTEGERS, *_PACKED)),
}


def simple(instruction: Instruction) -> Run:
    """add, sub, div, rem, min, max."""
    form = Form(instruction)
    function, types = SIMPLE[instruction.opcode]
    saturates = instruction.opcode in ("add", "sub") and form.flag("sat")
    relu = instruction.opcode in ("min", "max") and form.flag("relu")
    kind = form.type(types)
    if saturates:
        if kind.name != "s32":
            raise instruction.wrong("only .s32 saturates")
        function = _saturated(function)
    if relu:
        if kind.kind != "s":
            raise instruction.wrong(".relu is for signed types")
        plain = function
        return binary(instruction, form, kind, lambda a, b: np.maximum(plain(a, b), kind.dtype.type(0)))
    return binary(instruction, form, kind, function)


def absolute(instruction: Instruction) -> Run:
    """abs."""
    form = Form(instruction)
    return unary(instruction, form, form.type(("s16", "s32", "s64")), np.abs)


def negative(instruction: Instruction) -> Run:
    """neg."""
    form = Form(instruction)
    return unary(instruction, form, form.type(("s16", "s32", "s64")), np.negative)


def _wide(kind: PtxType) -> PtxType:
    return TYPES[f"{kind.kind}{2 * kind.bits}"]


def product(instruction: Instruction) -> Run:
    """mul.lo, mul.hi, mul.wide, mul24."""
    form = Form(instruction)
    half = form.one_of(("lo", "hi", "wide"))
    short = instruction.opcode == "mul24"
    kind = form.type(("u32", "s32") if short else INTEGERS)
    if half == "wide":
        wide = _check_wide(instruction, kind)
        form.done(3)
        a, b = (numbers(instruction, operand, kind) for operand in instruction.operands[1:])
        write = writer(instruction, instruction.operands[0], wide)
        return lambda frame, mask: write(frame, wide.contents(a(frame).astype(wide.dtype) * b(frame).astype(wide.dtype)), mask)
    if short:
        return binary(instruction, form, kind, _product_of_24_bits(kind, half))
    return binary(instruction, form, kind, np.multiply if half == "lo" else multiply_high)


def _check_wide(instruction: Instruction, kind: PtxType) -> PtxType:
    if kind.bits == 64:
        raise instruction.wrong(".wide has operands of 16 or 32 bits")
    return _wide(kind)


def _product_of_24_bits(kind: PtxType, half: str) -> Binary:
    wide = _wide(kind).dtype
    shift = wide.type(40)

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = ((one.astype(wide) << shift) >> shift for one in (a, b))
        whole = a * b
        return (whole if half == "lo" else whole >> wide.type(16)).astype(kind.dtype)

    return multiply


def product_and_sum(instruction: Instruction) -> Run:
    """mad.lo, mad.hi, mad.wide, mad24, with a carry out (.cc) or in (madc)."""
    form = Form(instruction)
    half = form.one_of(("lo", "hi", "wide"))
    takes, gives = instruction.opcode == "madc", form.flag("cc")
    saturates = form.flag("sat")
    short = instruction.opcode == "mad24"
    kind = form.type(("u32", "s32") if short else INTEGERS)
    form.done(4)
    wide = half == "wide"
    result = _check_wide(instruction, kind) if wide else kind
    if short:
        multiply = _product_of_24_bits(kind, half)
    elif wide:
        multiply = lambda a, b: a.astype(result.dtype) * b.astype(result.dtype)  # noqa: E731
    else:
        multiply = np.multiply if half == "lo" else multiply_high
    add = _saturated(np.add) if saturates else np.add
    if saturates and (half != "hi" or kind.name != "s32"):
        raise instruction.wrong("only mad.hi.sat.s32 saturates")
    a, b = (numbers(instruction, operand, kind) for operand in instruction.operands[1:3])
    c, write = numbers(instruction, instruction.operands[3], result), writer(instruction, instruction.operands[0], result)

    def run(frame, mask) -> None:
        whole = multiply(a(frame), b(frame))
        if not takes and not gives:
            write(frame, result.contents(add(whole, c(frame))), mask)
            return
        total = _add_with_carry(frame, result.contents(whole), result.contents(c(frame)), takes, gives, mask)
        write(frame, total, mask)

    return run


def _add_with_carry(frame, a: np.ndarray, b: np.ndarray, takes: bool, gives: bool, mask) -> np.ndarray:
    """Sum of unsigned arrays; the carry flag goes in and out."""
    total = a + b
    carry = total < a
    if takes:
        more = total + frame.carry.astype(total.dtype)
        carry = carry | (more < total)
        total = more
    if gives:
        frame.carry = carry if mask is None else np.where(mask, carry, frame.carry)
    return total


def with_carry(instruction: Instruction) -> Run:
    """add.cc, addc, sub.cc, subc."""
    form = Form(instruction)
    takes, gives = instruction.opcode in ("addc", "subc"), form.flag("cc")
    kind = form.type(("u32", "s32", "u64", "s64"))
    form.done(3)
    a, b = (numbers(instruction, operand, TYPES[f"u{kind.bits}"]) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)
    subtracts = instruction.opcode in ("sub", "subc")

    def run(frame, mask) -> None:
        if not subtracts:
            write(frame, _add_with_carry(frame, a(frame), b(frame), takes, gives, mask), mask)
            return
        left, right = a(frame), b(frame)
        total, borrow = left - right, left < right
        if takes:
            less = total - frame.carry.astype(total.dtype)
            borrow = borrow | (less > total)
            total = less
        if gives:
            frame.carry = borrow if mask is None else np.where(mask, borrow, frame.carry)
        write(frame, total, mask)

    return run


def sum_of_differences(instruction: Instruction) -> Run:
    """sad: c + |a - b|."""
    form = Form(instruction)
    kind = form.type(INTEGERS)
    form.done(4)
    a, b, c = (numbers(instruction, operand, kind) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        left, right = a(frame), b(frame)
        write(frame, kind.contents(c(frame) + np.where(left < right, right - left, left - right)), mask)

    return run


def dot_product(instruction: Instruction) -> Run:
    """dp4a: the products of four bytes, and dp2a: of two halves with two bytes, added to c."""
    form = Form(instruction)
    halves = instruction.opcode == "dp2a"
    upper = halves and form.one_of(("lo", "hi")) == "hi"
    first, second = form.type(("u32", "s32")), form.type(("u32", "s32"))
    form.done(4)
    a, b = (contents(instruction, operand, 32, "su") for operand in instruction.operands[1:3])
    signed = "s" in (first.kind, second.kind)
    c = numbers(instruction, instruction.operands[3], TYPES["s32" if signed else "u32"])
    write = writer(instruction, instruction.operands[0], TYPES["b32"])
    size, count = (2, 2) if halves else (1, 4)

    def run(frame, mask) -> None:
        left = _pieces(a(frame), f"{_code(first)}{size}")[..., :count]
        right = _pieces(b(frame), f"{_code(second)}1")
        right = right[..., 2:] if upper else right[..., :count]
        total = (left.astype(np.int64) * right).sum(axis=-1) + c(frame)
        write(frame, (total & 0xFFFFFFFF).astype(np.uint32), mask)

    return run


def _code(kind: PtxType) -> str:
    return "i" if kind.kind == "s" else "u"


def _pieces(bits: np.ndarray, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(bits).view(dtype).reshape(*bits.shape, -1)
