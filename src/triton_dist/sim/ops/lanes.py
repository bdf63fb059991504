"""Companions of values (see ``emit_lanes``): which elements are undefined, and what offsets would be with unlimited width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import _as_array as as_array

if TYPE_CHECKING:
    from ..program import Program

Companion = Any
"""False or a boolean array that broadcasts to the value's shape; of exact values, None or integers."""


def _active(masks: tuple) -> Any:
    active: Any = True
    for term in map(as_array, masks):
        active = active & term
    return active


def masked_off(masks: tuple) -> Companion:
    """The elements that a load leaves out."""
    active = np.asarray(_active(masks))
    return False if active.all() else ~active


def select(condition, of_condition: Companion, first: Companion, second: Companion) -> Companion:
    """Of a choice: the elements of the side that is taken, and those whose condition is undefined."""
    return np.where(condition, first, second) | of_condition


def conjunction(a, of_a: Companion, b, of_b: Companion) -> Companion:
    """Of ``a & b``, which is defined where one side is False."""
    return (of_a & of_b) | (of_a & b) | (of_b & a)


def disjunction(a, of_a: Companion, b, of_b: Companion) -> Companion:
    """Of ``a | b``, which is defined where one side is True."""
    return (of_a & of_b) | (of_a & ~np.asarray(b, np.bool_)) | (of_b & ~np.asarray(a, np.bool_))


def product(a: Companion, b: Companion, added: Companion, left: tuple[int, ...], right: tuple[int, ...]) -> Companion:
    """Of a matrix product: rows of ``a`` and columns of ``b`` that have an undefined element."""
    rows = False if a is False else np.broadcast_to(a, left).any(axis=-1, keepdims=True)
    columns = False if b is False else np.broadcast_to(b, right).any(axis=-2, keepdims=True)
    return rows | columns | added


def reduced(operands: tuple, shape: tuple[int, ...], axis: int) -> Companion:
    """Of a reduction along an axis."""
    found: Companion = False
    for operand in operands:
        if operand is not False:
            found = found | np.broadcast_to(operand, shape).any(axis=axis)
    return found


def _is_plain(companion: Companion) -> bool:
    return companion is None or np.ndim(companion) == 0


def expand(companion: Companion, axis: int) -> Companion:
    """Of ``expand_dims``."""
    return companion if _is_plain(companion) else np.expand_dims(companion, axis)


def transpose(companion: Companion, order: list[int], shape: tuple[int, ...]) -> Companion:
    """Of ``trans``."""
    return companion if _is_plain(companion) else np.transpose(np.broadcast_to(companion, shape), order)


def reshape(companion: Companion, shape: tuple[int, ...], target: tuple[int, ...]) -> Companion:
    """Of ``reshape``."""
    return companion if _is_plain(companion) else np.broadcast_to(companion, shape).reshape(target)


def exact(symbol: str, a, exact_a: Companion, b, exact_b: Companion, bits: int) -> Companion:
    """A sum or product with unlimited width, None if it fits into ``bits`` bits."""
    if bits > 32 and exact_a is None and exact_b is None:
        return None
    left, right = (_wide(value if known is None else known) for value, known in ((a, exact_a), (b, exact_b)))
    if symbol == "+":
        result = left + right
    elif symbol == "-":
        result = left - right
    elif symbol == "*":
        result = left * right
    else:
        result = left * 2 ** np.clip(right, 0, 31) if isinstance(right, np.ndarray) else left * 2 ** min(max(right, 0), 31)
    half = 1 << (bits - 1)
    if isinstance(result, np.ndarray):
        if exact_a is None and exact_b is None and (not result.size or (result.min() >= -half and result.max() < half)):
            return None
        return result
    return None if exact_a is None and exact_b is None and -half <= result < half else result


def _wide(value: Any) -> Any:
    return value.astype(np.int64) if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) else int(value)


def differs(value, known: Companion) -> Companion:
    """The elements of an offset that are not what they would be with unlimited width."""
    return False if known is None else np.asarray(value) != known


def check_used(context: Program, undefined: Companion, masks: tuple, location: int, loaded: int, verb: str) -> None:
    """TD112, if an element that is used is undefined."""
    if undefined is False or not np.any(undefined & _active(masks)):
        return
    kernel = context.launch.kernel
    message = (
        f"{context.describe()} {verb} elements that the load at {kernel.location(loaded)} masked off: with no other= they are undefined; "
        "pass other=, or mask this by the same condition"
    )
    _report(context, "TD112", message, location)


def check_address(context: Program, wrong: Companion, masks: tuple, location: int) -> None:
    """TD115, if an element is accessed whose offset has overflowed."""
    if wrong is False or not np.any(wrong & _active(masks)):
        return
    message = (
        f"{context.describe()} accesses elements whose 32-bit offset has overflowed: a product or sum on the way to the address does not "
        "fit into 32 bits; convert a factor to 64 bits first (x.to(tl.int64) * stride)"
    )
    _report(context, "TD115", message, location)


def _report(context: Program, code: str, message: str, location: int) -> None:
    races, kernel = context.machine.races, context.launch.kernel
    assert races is not None and races.lints is not None, "the kernel was generated for lints"
    races.lints.report(code, message, kernel.location(location), kernel.name, context.rank)
