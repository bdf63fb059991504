"""Bits: logic, shifts, fields, permutations and counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .form import Form, Run, contents, numbers, opcode, pure, writer
from .integers import binary, unary
from .syntax import Instruction
from .types import TYPES

_LOGIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_WORDS = ("b16", "b32", "b64")


@opcode("and", "or", "xor")
@pure
def _logic(instruction: Instruction) -> Run:
    form = Form(instruction)
    return binary(instruction, form, form.type(("pred", *_WORDS)), _LOGIC[instruction.opcode])


@opcode("not")
@pure
def _not(instruction: Instruction) -> Run:
    form = Form(instruction)
    return unary(instruction, form, form.type(("pred", *_WORDS)), np.invert)


@opcode("cnot")
@pure
def _logical_not(instruction: Instruction) -> Run:
    form = Form(instruction)
    kind = form.type(_WORDS)
    return unary(instruction, form, kind, lambda a: (a == 0).astype(kind.dtype))


@opcode("shl", "shr")
@pure
def _shift(instruction: Instruction) -> Run:
    """By the width or more: nothing is left, or the sign. The amount has 32 bits."""
    form = Form(instruction)
    left = instruction.opcode == "shl"
    kind = form.type(_WORDS if left else (*_WORDS, "u16", "s16", "u32", "s32", "u64", "s64"))
    form.done(3)
    a, amount = numbers(instruction, instruction.operands[1], kind), numbers(instruction, instruction.operands[2], TYPES["u32"])
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        value, by = a(frame), amount(frame)
        over = by >= kind.bits
        clipped = np.minimum(by, kind.bits - 1).astype(kind.dtype)
        shifted = value << clipped if left else value >> clipped
        write(frame, kind.contents(shifted if kind.kind == "s" else np.where(over, kind.dtype.type(0), shifted)), mask)

    return run


@opcode("shf")
@pure
def _funnel_shift(instruction: Instruction) -> Run:
    """Of the 64 bits {b, a} the upper half, moved left, or the lower half, moved right."""
    form = Form(instruction)
    left = form.one_of(("l", "r")) == "l"
    wraps = form.one_of(("wrap", "clamp")) == "wrap"
    kind = form.type(("b32",))
    form.done(4)
    low, high, amount = (contents(instruction, operand, 32) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        by = (amount(frame) & np.uint32(31) if wraps else np.minimum(amount(frame), np.uint32(32))).astype(np.uint64)
        whole = high(frame).astype(np.uint64) << np.uint64(32) | low(frame)
        moved = whole << by >> np.uint64(32) if left else whole >> by
        write(frame, moved.astype(np.uint32), mask)

    return run


@opcode("lop3")
@pure
def _any_logic(instruction: Instruction) -> Run:
    """Any function of three bits, by its table of eight."""
    form = Form(instruction)
    kind = form.type(("b32",))
    form.done(5)
    reads = [contents(instruction, operand, 32) for operand in instruction.operands[1:4]]
    table = instruction.number(instruction.operands[4], "the table of lop3", 1 << 8)
    write = writer(instruction, instruction.operands[0], kind)
    rows = [number for number in range(8) if table >> number & 1]

    def run(frame, mask) -> None:
        a, b, c = (read(frame) for read in reads)
        result = (a ^ a) | (b ^ b) | (c ^ c)
        for row in rows:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        write(frame, result, mask)

    return run


@opcode("bfe")
@pure
def _extract_field(instruction: Instruction) -> Run:
    """Bits from a position on; past the end, and for signed types above the field, the sign of the field's last bit."""
    form = Form(instruction)
    kind = form.type(("u32", "s32", "u64", "s64"))
    form.done(4)
    a = contents(instruction, instruction.operands[1], kind.bits, kind.constants)
    position, length = (numbers(instruction, operand, TYPES["u32"]) for operand in instruction.operands[2:])
    write = writer(instruction, instruction.operands[0], kind)
    raw, top = kind.raw, kind.bits - 1

    def run(frame, mask) -> None:
        value = a(frame)
        begin, count = position(frame) & np.uint32(0xFF), length(frame) & np.uint32(0xFF)
        moved = np.where(begin > top, raw.type(0), value >> np.minimum(begin, top).astype(raw))
        kept = _ones(count, raw, kind.bits)
        result = moved & kept
        if kind.kind == "s":
            last = np.minimum(begin.astype(np.int64) + count - 1, top).clip(0)
            sign = (value >> last.astype(raw) & raw.type(1) != 0) & (count > 0)
            filled = np.minimum(count, np.where(begin > top, 0, kind.bits - begin.astype(np.int64)))
            result = np.where(sign, (moved & _ones(filled, raw, kind.bits)) | ~_ones(filled, raw, kind.bits), result)
        write(frame, result, mask)

    return run


def _ones(count: np.ndarray, raw: np.dtype, width: int) -> np.ndarray:
    """The lowest ``count`` bits."""
    over = count >= width
    return np.where(over, ~raw.type(0), (raw.type(1) << np.where(over, 0, count).astype(raw)) - raw.type(1))


@opcode("bfi")
@pure
def _insert_field(instruction: Instruction) -> Run:
    form = Form(instruction)
    kind = form.type(("b32", "b64"))
    form.done(5)
    a, b = (contents(instruction, operand, kind.bits) for operand in instruction.operands[1:3])
    position, length = (numbers(instruction, operand, TYPES["u32"]) for operand in instruction.operands[3:])
    write = writer(instruction, instruction.operands[0], kind)
    raw, top = kind.raw, kind.bits - 1

    def run(frame, mask) -> None:
        begin, count = position(frame) & np.uint32(0xFF), length(frame) & np.uint32(0xFF)
        by = np.minimum(begin, top).astype(raw)
        field = np.where(begin > top, raw.type(0), _ones(count, raw, kind.bits) << by)
        write(frame, (b(frame) & ~field) | (a(frame) << by & field), mask)

    return run


@opcode("bfind")
@pure
def _find_bit(instruction: Instruction) -> Run:
    """The highest bit that is not the sign; all ones if there is none."""
    form = Form(instruction)
    amount = form.flag("shiftamt")
    kind = form.type(("u32", "s32", "u64", "s64"))
    form.done(2)
    a, write = numbers(instruction, instruction.operands[1], kind), writer(instruction, instruction.operands[0], TYPES["u32"])

    def run(frame, mask) -> None:
        value = a(frame)
        bits = np.where(value < 0, ~value, value).view(kind.raw) if kind.kind == "s" else value
        found = kind.bits - 1 - _leading_zeros(bits, kind.bits)
        found = np.where(found < 0, -1, kind.bits - 1 - found if amount else found)
        write(frame, found.astype(np.int32).view(np.uint32), mask)

    return run


def _leading_zeros(bits: np.ndarray, width: int) -> np.ndarray:
    left = bits.copy()
    count = np.zeros(bits.shape, np.int64)
    step = width // 2
    while step:
        empty = left >> bits.dtype.type(width - step) == 0
        count += np.where(empty, step, 0)
        left = np.where(empty, left << bits.dtype.type(step), left)
        step //= 2
    return count + (bits == 0)


@opcode("clz", "popc")
@pure
def _count_bits(instruction: Instruction) -> Run:
    form = Form(instruction)
    kind = form.type(("b32", "b64"))
    form.done(2)
    a, write = contents(instruction, instruction.operands[1], kind.bits), writer(instruction, instruction.operands[0], TYPES["u32"])
    zeros = instruction.opcode == "clz"

    def run(frame, mask) -> None:
        value = a(frame)
        write(frame, (_leading_zeros(value, kind.bits) if zeros else np.bitwise_count(value)).astype(np.uint32), mask)

    return run


@opcode("brev")
@pure
def _reverse_bits(instruction: Instruction) -> Run:
    form = Form(instruction)
    return unary(instruction, form, form.type(("b32", "b64")), _reversed)


def _reversed(bits: np.ndarray) -> np.ndarray:
    octets = np.ascontiguousarray(bits)[..., None].view(np.uint8)[..., ::-1]
    return np.packbits(np.unpackbits(octets, axis=-1), axis=-1, bitorder="little").view(bits.dtype)[..., 0]


_MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


@opcode("prmt")
@pure
def _permute_bytes(instruction: Instruction) -> Run:
    """Each byte of the result is one of eight, or its sign eight times."""
    form = Form(instruction)
    kind = form.type(("b32",))
    mode = form.one_of(_MODES, "")
    form.done(4)
    a, b, c = (contents(instruction, operand, 32) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        low, high, chooser = np.broadcast_arrays(a(frame), b(frame), c(frame))
        octets = np.stack([low, high], axis=-1).view(np.uint8)
        chosen = _choices(chooser, mode)
        picked = np.take_along_axis(octets, (chosen & 7).astype(np.int64), axis=-1)
        signs = np.where(picked & 0x80 != 0, np.uint8(0xFF), np.uint8(0))
        result = np.where(chosen & 8 != 0, signs, picked)
        write(frame, np.ascontiguousarray(result).view(np.uint32)[..., 0], mask)

    return run


def _choices(chooser: np.ndarray, mode: str) -> np.ndarray:
    """For each byte of the result which of the eight it is, and 8 more for its sign."""
    at = np.arange(4, dtype=np.uint32)
    if not mode:
        return chooser[..., None] >> (4 * at) & 15
    by = chooser[..., None] & 3
    table = {
        "f4e": by + at,
        "b4e": (by - at) & 7,
        "rc8": by + 0 * at,
        "ecl": np.maximum(by, at),
        "ecr": np.minimum(by, at),
        "rc16": (by & 1) * 2 + (at & 1),
    }
    return table[mode]


@opcode("bmsk")
@pure
def _bit_mask(instruction: Instruction) -> Run:
    form = Form(instruction)
    wraps = form.one_of(("wrap", "clamp")) == "wrap"
    kind = form.type(("b32",))
    form.done(3)
    position, length = (contents(instruction, operand, 32) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        begin, count = position(frame).astype(np.uint64), length(frame).astype(np.uint64)
        if wraps:
            begin, count = begin & np.uint64(31), count & np.uint64(31)
        begin, count = np.minimum(begin, np.uint64(32)), np.minimum(count, np.uint64(32))
        write(frame, ((np.uint64(1) << count) - np.uint64(1) << begin & np.uint64(0xFFFFFFFF)).astype(np.uint32), mask)

    return run


@opcode("szext")
@pure
def _extend(instruction: Instruction) -> Run:
    form = Form(instruction)
    wraps = form.one_of(("wrap", "clamp")) == "wrap"
    kind = form.type(("u32", "s32"))
    form.done(3)
    a, length = contents(instruction, instruction.operands[1], 32), contents(instruction, instruction.operands[2], 32)
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        count = length(frame) & np.uint32(31) if wraps else np.minimum(length(frame), np.uint32(32))
        kept = _ones(count, np.dtype(np.uint32), 32)
        value = a(frame) & kept
        if kind.kind == "s":
            sign = np.where(count == 0, np.uint32(0), value >> np.where(count == 0, 0, count - 1).astype(np.uint32) & np.uint32(1))
            value = np.where(sign != 0, value | ~kept, value)
        write(frame, value, mask)

    return run
