"""Python twins of functions of bitcode libraries, which the simulator runs in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ...errors import InvalidArgumentError
from ..memory import element_index, scalar_view
from . import primitives
from .memory import check_scalar, put_word, see_word

if TYPE_CHECKING:
    from ..program import Program

_TWINS: dict[str, Callable[..., Any]] = {}

_DTYPES = {"int1": np.bool_, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64, "void": np.uint8}
_DTYPES |= {f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)}


def extern_twin(symbol: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what the simulator runs where a kernel calls the function ``symbol`` of a bitcode library (``dl.extern_call``).

    The decorated function is called by each thread that comes there, in the order of threads (a pure one as often as need be), with numpy
    scalars of the argument types. A pointer is a ``Place``: ``p[i]`` and ``p[i] = v`` read and write elements, each checked against the
    tensor's bounds. What it returns is converted to the result type. It has to end by itself: no other thread runs meanwhile.
    The latest twin of a symbol counts. Raises InvalidArgumentError for an empty symbol.
    """
    if not isinstance(symbol, str) or not symbol:
        raise InvalidArgumentError(f"extern_twin({symbol!r}): give the function's symbol in the library, a string")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise InvalidArgumentError(f"extern_twin({symbol!r}) decorates a function, not {function!r}")
        _TWINS[symbol] = function
        return function

    return register


def find_twin(symbol: str) -> Callable[..., Any] | None:
    """The twin of a symbol."""
    return _TWINS.get(symbol)


class Place:
    """A pointer, as a twin sees it: elements of one type from ``address`` on, read and written by one thread of a program."""

    def __init__(self, context: Program, address: int, dtype: np.dtype, location: int) -> None:
        self._context, self._dtype, self._location = context, dtype, location
        self.address = address

    def __getitem__(self, index: int) -> Any:
        place = self.address + int(index) * self._dtype.itemsize
        check_scalar(self._context, place, self._dtype.itemsize, "ld", None)
        see_word(self._context, place)
        return scalar_view(self._dtype)[element_index(place, self._dtype.itemsize)]

    def __setitem__(self, index: int, value: Any) -> None:
        place = self.address + int(index) * self._dtype.itemsize
        check_scalar(self._context, place, self._dtype.itemsize, "st", None)
        put_word(self._context, place, self._dtype.type(value), self._dtype, self._location)


def call(context: Program, symbol: str, types: tuple[str, ...], operands: tuple, mask, once: bool, location: int):
    """Run the twin of ``symbol``: by each active thread, or ``once`` for all where that makes no difference.

    types: of the operands, and at the end of the result, by Triton's names. Gives a scalar, or an array of one for each thread.
    """
    *taken, given = types
    result_type = np.dtype(np.int64 if given.startswith("*") else np.int32 if given == "void" else _DTYPES[given])
    if once:
        return _run(context, symbol, taken, operands, result_type, given, location)
    spread = [np.broadcast_to(np.asarray(operand), (context.threads,)) for operand in operands]
    result = np.zeros(context.threads, result_type)
    for lane in np.flatnonzero(primitives.active_threads(context, mask)).tolist():
        context.lane = lane
        result[lane] = _run(context, symbol, taken, [operand[lane] for operand in spread], result_type, given, location)
    context.lane = -1
    return _as_stored(result)


def _run(context: Program, symbol: str, taken, operands, result_type: np.dtype, given: str, location: int):
    passed = [_passed(context, kind, operand, location) for kind, operand in zip(taken, operands, strict=True)]
    returned = _TWINS[symbol](*passed)
    if given == "void":
        return np.int32(0)
    if returned is None:
        raise InvalidArgumentError(f"the twin of {symbol!r} returned None, but the function returns {given}; return a value")
    if isinstance(returned, Place):
        returned = returned.address
    return _as_stored(np.asarray(returned).astype(result_type))[()]


def _passed(context: Program, kind: str, operand, location: int):
    if kind.startswith("*"):
        return Place(context, int(operand), np.dtype(_DTYPES.get(kind[1:], np.int64)), location)
    value = np.asarray(operand)
    dtype = np.dtype(_DTYPES[kind])
    return (value.view(dtype) if dtype.kind == "u" else value.astype(dtype))[()]


def _as_stored(values: np.ndarray) -> np.ndarray:
    """Unsigned integers as the simulator holds them: with a sign."""
    return values.view(f"i{values.dtype.itemsize}") if values.dtype.kind == "u" else values
