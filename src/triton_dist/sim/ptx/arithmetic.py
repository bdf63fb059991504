"""Arithmetic by the type of its operands: of integers (``integers``) or floats (``floats``)."""

from __future__ import annotations

from collections.abc import Callable

from . import floats, integers
from .form import Run, opcode, pure
from .syntax import Instruction

_INTEGER: dict[str, Callable[[Instruction], Run]] = {
    **dict.fromkeys(integers.SIMPLE, integers.simple),
    "abs": integers.absolute,
    "neg": integers.negative,
    "mul": integers.product,
    "mul24": integers.product,
    "mad": integers.product_and_sum,
    "mad24": integers.product_and_sum,
    "madc": integers.product_and_sum,
    "addc": integers.with_carry,
    "subc": integers.with_carry,
    "sad": integers.sum_of_differences,
    "dp4a": integers.dot_product,
    "dp2a": integers.dot_product,
}


@opcode(*dict.fromkeys((*_INTEGER, *floats.FUNCTIONS)))
@pure
def _arithmetic(instruction: Instruction) -> Run:
    name = instruction.opcode
    if name not in _INTEGER or (name in floats.FUNCTIONS and not integers.is_integer(instruction)):
        return floats.FUNCTIONS[name](instruction)
    if name in ("add", "sub") and "cc" in instruction.modifiers:
        return integers.with_carry(instruction)
    return _INTEGER[name](instruction)
