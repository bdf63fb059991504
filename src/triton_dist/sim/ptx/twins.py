"""Python twins of blocks of inline assembly, which the simulator runs in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InvalidArgumentError
from ..ops.twins import Place
from ..types import Type, element_dtype

if TYPE_CHECKING:
    from ..ir import Operation
    from ..program import Program

_TWINS: dict[str, Callable[..., Any]] = {}


def _key(text: str) -> str:
    return " ".join(text.split())


def inline_asm_twin(asm: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what the simulator runs in place of a block that ``tl.inline_asm_elementwise`` is given, whatever instructions it has.

    asm: the block's text; white space does not count. The decorated function is called by each thread that comes there, in the order of
    threads, once for each element that the thread has; for a block with ``is_pure=True`` once for each element, or once where all is the
    same. It gets numpy scalars of the operand types. A pointer is a ``Place``: ``p[i]`` and ``p[i] = v`` read and write elements, each
    checked against the tensor's bounds. It returns one value for each result, in a tuple if there are several; each is converted to the
    result's type. It has to end by itself: no other thread runs meanwhile. The latest twin of a text counts, for launches behind it.
    Raises InvalidArgumentError for an empty text.
    """
    if not isinstance(asm, str) or not asm.strip():
        raise InvalidArgumentError(f"inline_asm_twin({asm!r}): give the text of the block, a string")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise InvalidArgumentError(f"inline_asm_twin decorates a function, not {function!r}")
        from ..kernel import forget_kernels

        _TWINS[_key(asm)] = function
        forget_kernels()
        return function

    return register


def find_twin(operation: Operation) -> Callable[..., Any] | None:
    """The twin of an op of inline assembly."""
    return _TWINS.get(_key(str(operation.attributes.get("asm_string", "")))) if _TWINS else None


def gives_each_thread_its_own(operation: Operation) -> bool:
    """Whether the results of an op that has a twin may differ from thread to thread."""
    return not operation.attributes.get("pure") and find_twin(operation) is not None


class Call:
    """One use of a twin. operands, results: the types."""

    def __init__(self, twin: Callable[..., Any], text: str, operands: Sequence[Type], results: Sequence[Type]) -> None:
        self._twin, self._text, self._operands, self.results = twin, _key(text), operands, results

    def run(self, context: Program, values: Iterator[Any] | Sequence[Any], location: int) -> list[Any]:
        """Call it with one element of each operand; gives the results as numpy scalars."""
        passed = [_passed(context, kind, value, location) for kind, value in zip(self._operands, values, strict=True)]
        given = self._twin(*passed)
        several = given if isinstance(given, tuple) else (given,)
        if len(several) != len(self.results) or any(one is None for one in several):
            raise InvalidArgumentError(
                f"the twin of {self._text!r} returned {given!r}, but the block has {len(self.results)} results; return a value for each"
            )
        return [_stored(one, kind.dtype) for one, kind in zip(several, self.results, strict=True)]


def _passed(context: Program, kind: Type, value: Any, location: int) -> Any:
    if kind.is_pointer:
        return Place(context, int(value), np.dtype(element_dtype(kind.pointee)), location)
    return np.asarray(value).astype(kind.dtype)[()]


def _stored(value: Any, dtype: np.dtype) -> Any:
    if isinstance(value, Place):
        value = value.address
    if dtype.kind == "i" and isinstance(value, int):
        value = value & (1 << 8 * dtype.itemsize) - 1
        return np.array([value], f"u{dtype.itemsize}").view(dtype)[0]
    return np.asarray(value).astype(dtype)[()]
