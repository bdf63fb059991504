"""Checks and converts what a kernel passes to a primitive; a wrong argument is a compile-time error that says what is allowed."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives.table import Choice, Kind, Operand, Primitive
from triton_dist.primitives.values import describe, unwrap
from triton_dist.primitives.vector import vector

_INTEGER_TYPE = tl.int32
"""What ranks and counts become."""


def fail(function: str, argument: str, value: Any, allowed: str) -> PrimitiveArgumentError:
    """The error for an argument: function, argument, value seen, what is allowed."""
    return PrimitiveArgumentError(f"{function}: argument '{argument}' is {describe(value)}; allowed: {allowed}")


def check_choice(function: str, choice: Choice, value: Any) -> str | int:
    """The compile-time value of ``choice``.

    Raises PrimitiveArgumentError for a run-time value and for one that the table does not allow.
    """
    seen = unwrap(value)
    allowed = ", ".join(repr(item) for item in choice.allowed)
    if isinstance(seen, tl.tensor):
        raise fail(function, choice.name, value, f"{allowed}, known when the kernel is compiled (a literal or a tl.constexpr)")
    known = isinstance(seen, str | int) and not isinstance(seen, bool)
    if isinstance(seen, str) and seen in choice.refused:
        raise fail(function, choice.name, value, f"{allowed} ({seen!r} is refused: {choice.refused[seen]})")
    if not known or seen not in choice.allowed:
        raise fail(function, choice.name, value, allowed)
    return seen


def one_of_two_names(function: str, semantic_value: Any, sem_value: Any, default: str) -> Any:
    """The memory semantic from its two keywords, ``semantic`` and ``sem``; the default if neither is given.

    Raises PrimitiveArgumentError if both are given and differ.
    """
    long, short = unwrap(semantic_value), unwrap(sem_value)
    if long is not None and short is not None and long != short:
        raise PrimitiveArgumentError(
            f"{function}: both 'semantic' ({long!r}) and 'sem' ({short!r}) are given; they are one argument, pass one"
        )
    chosen = long if long is not None else short
    return default if chosen is None else chosen


def check_operands(semantic: Any, function: str, primitive: Primitive, values: tuple[Any, ...]) -> dict[str, Any]:
    """The operands by name, each converted to what the lowerings expect.

    Words and values take the type that their pointer operand, the first one unless the row says otherwise, points to; ranks and counts
    become int32, sizes int64. Raises PrimitiveArgumentError.
    """
    operands: dict[str, Any] = {}
    for operand, value in zip(primitive.operands, values, strict=True):
        pointer = operands.get(operand.like or primitive.operands[0].name)
        operands[operand.name] = _check_operand(semantic, function, operand, value, pointer)
    return operands


def _check_operand(semantic: Any, function: str, operand: Operand, value: Any, pointer: Any) -> Any:
    if operand.kind is Kind.POINTER:
        return _check_pointer(function, operand, value, scalar=True)
    if operand.kind is Kind.POINTERS:
        return _check_pointer(function, operand, value, scalar=False)
    if operand.kind in (Kind.RANK, Kind.COUNT):
        return _check_integer(semantic, function, operand, value, scalar=True)
    if operand.kind is Kind.SIZE:
        return _check_size(semantic, function, operand, value)
    if operand.kind is Kind.RANKS:
        return _check_integer(semantic, function, operand, value, scalar=False)
    if operand.kind is Kind.WORD:
        return _check_word(semantic, function, operand, value, pointer.dtype.element_ty)
    if operand.kind is Kind.VALUE:
        return _check_value(semantic, function, operand, value, pointer.dtype.element_ty)
    if operand.kind is Kind.TOKEN:
        return _check_token(semantic, function, operand, value)
    if operand.kind in (Kind.SCALAR, Kind.PREDICATE, Kind.LANES):
        return _check_scalar(semantic, function, operand, value)
    if operand.kind is Kind.VECTOR:
        return _check_vector(function, operand, value, pointer.dtype.element_ty)
    return semantic.to_tensor(unwrap(value)) if isinstance(unwrap(value), int | float) else value


def _check_pointer(function: str, operand: Operand, value: Any, *, scalar: bool) -> tl.tensor:
    allowed = operand.kind.value
    if operand.elements:
        allowed += f" to {', '.join(operand.elements)}"
    if not isinstance(value, tl.tensor) or not value.type.scalar.is_ptr() or value.type.scalar.element_ty.is_block():
        raise fail(function, operand.name, value, allowed)
    if scalar and value.type.is_block():
        raise fail(function, operand.name, value, allowed)
    if operand.elements and value.type.scalar.element_ty.name not in operand.elements:
        raise fail(function, operand.name, value, allowed)
    return value


def _check_integer(semantic: Any, function: str, operand: Operand, value: Any, *, scalar: bool) -> tl.tensor:
    """An integer of any type, converted to int32; a Python int must fit it."""
    seen = unwrap(value)
    if isinstance(seen, int) and not isinstance(seen, bool):
        if not -(1 << 31) <= seen < 1 << 31:
            raise fail(function, operand.name, value, f"{operand.kind.value} that fits int32")
        return semantic.scalar_constant(seen, dtype=_INTEGER_TYPE)
    if not isinstance(seen, tl.tensor) or not _is_integer(seen) or (scalar and seen.type.is_block()):
        raise fail(function, operand.name, value, operand.kind.value)
    return semantic.cast(seen, _INTEGER_TYPE)


def _check_size(semantic: Any, function: str, operand: Operand, value: Any) -> tl.tensor:
    """A number of bytes of any integer type, converted to int64; a Python int must not be negative."""
    seen = unwrap(value)
    if isinstance(seen, int) and not isinstance(seen, bool):
        if not 0 <= seen < 1 << 63:
            raise fail(function, operand.name, value, f"{operand.kind.value}, 0 or more")
        return semantic.scalar_constant(seen, dtype=tl.int64)
    if not isinstance(seen, tl.tensor) or not _is_integer(seen) or seen.type.is_block():
        raise fail(function, operand.name, value, operand.kind.value)
    return semantic.cast(seen, tl.int64)


def _check_word(semantic: Any, function: str, operand: Operand, value: Any, element: tl.dtype) -> tl.tensor:
    """A value for a signal word. A wider run-time value is refused: cut off, it could never compare equal."""
    seen = unwrap(value)
    bits = element.primitive_bitwidth
    allowed = f"an integer that fits the word, {element.name}"
    if isinstance(seen, int) and not isinstance(seen, bool):
        if not -(1 << (bits - 1)) <= seen < 1 << bits:
            raise fail(function, operand.name, value, allowed)
        return semantic.scalar_constant(_wrapped(seen, element), dtype=element)
    if not isinstance(seen, tl.tensor) or seen.type.is_block() or not _is_integer(seen):
        raise fail(function, operand.name, value, allowed)
    if seen.dtype.primitive_bitwidth > bits:
        raise fail(function, operand.name, value, f"{allowed} (convert it with .to(tl.{element.name}) if the upper bits do not matter)")
    return semantic.cast(seen, element)


def _check_value(semantic: Any, function: str, operand: Operand, value: Any, element: tl.dtype) -> tl.tensor:
    seen = unwrap(value)
    if isinstance(seen, tl.tensor) and not seen.type.is_block() and not seen.dtype.is_ptr():
        return semantic.cast(seen, element)
    if isinstance(seen, int | float) and not isinstance(seen, bool):
        if element.is_int() and not isinstance(seen, int):
            raise fail(function, operand.name, value, f"an integer, since the pointer points to {element.name}")
        return semantic.cast(semantic.to_tensor(seen), element)
    raise fail(function, operand.name, value, f"a scalar that converts to {element.name}")


def _check_token(semantic: Any, function: str, operand: Operand, value: Any) -> tl.tensor:
    seen = unwrap(value)
    if isinstance(seen, tl.tensor) and not seen.type.is_block() and _is_integer(seen):
        return semantic.cast(seen, tl.int32)
    raise fail(function, operand.name, value, operand.kind.value)


def _check_scalar(semantic: Any, function: str, operand: Operand, value: Any) -> tl.tensor:
    """A scalar of 8 to 64 bits; a predicate as int1; a mask of threads as int32, of which only the bits count."""
    seen = unwrap(value)
    if operand.kind is Kind.LANES and isinstance(seen, int) and not isinstance(seen, bool):
        if not -(1 << 31) <= seen < 1 << 32:
            raise fail(function, operand.name, value, f"{operand.kind.value} that fits 32 bits")
        return semantic.scalar_constant(_wrapped(seen, _INTEGER_TYPE), dtype=_INTEGER_TYPE)
    if isinstance(seen, bool | int | float):
        seen = semantic.to_tensor(seen)
    scalar = isinstance(seen, tl.tensor) and not seen.type.is_block() and not seen.dtype.is_ptr() and isinstance(seen.type, tl.dtype)
    if not scalar or (operand.kind is not Kind.SCALAR and not seen.dtype.is_int()):
        raise fail(function, operand.name, value, operand.kind.value)
    if operand.kind is Kind.LANES:
        return semantic.cast(seen, _INTEGER_TYPE)
    if operand.kind is Kind.PREDICATE:
        return semantic.not_equal(seen, semantic.scalar_constant(0, dtype=seen.dtype)) if _is_integer(seen) else seen
    if seen.dtype.primitive_bitwidth < 8:
        raise fail(function, operand.name, value, operand.kind.value)
    return seen


def _check_vector(function: str, operand: Operand, value: Any, element: tl.dtype) -> vector:
    seen = unwrap(value)
    if not isinstance(seen, vector):
        raise fail(function, operand.name, value, f"a vector of {element.name}")
    if seen.dtype != element:
        raise fail(function, operand.name, value, f"a vector of {element.name}, which the pointer points to (convert it with .to)")
    return seen


def _is_integer(value: tl.tensor) -> bool:
    scalar = value.type.scalar
    return not scalar.is_ptr() and scalar.is_int() and scalar.primitive_bitwidth > 1


def _wrapped(value: int, element: tl.dtype) -> int:
    """The Python int as the builder of that type takes it: in the range of the signed or of the unsigned type."""
    bits = element.primitive_bitwidth
    value %= 1 << bits
    return value - (1 << bits) if element.is_int_signed() and value >> (bits - 1) else value
