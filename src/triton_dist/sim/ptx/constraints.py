"""LLVM's constraints of a block: which registers its operands are in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import InlineAssemblyError

_WIDTHS = {"r": 32, "l": 64, "f": 32, "d": 64, "h": 16, "c": 16, "b": 1, "q": 128}


@dataclass(frozen=True)
class Constraints:
    """widths: of ``$0``, ``$1``, ... in bits. outputs: how many of them are results. tied: for each input that shares the register of a
    result, (its number, the result's). early: the results that may be written before all operands have been read (``=&``).
    """

    widths: list[int]
    outputs: int
    tied: tuple[tuple[int, int], ...]
    early: frozenset[int] = frozenset()

    @property
    def inputs(self) -> int:
        """How many operands are taken."""
        return len(self.widths) - self.outputs


def read_constraints(text: str) -> Constraints:
    """Parse constraints such as ``=r,=r,l,r``. Raises InlineAssemblyError."""
    widths: list[int] = []
    tied: list[tuple[int, int]] = []
    early: set[int] = set()
    outputs = 0
    for one in (part.strip() for part in text.split(",")):
        if not one or one.startswith("~"):
            continue
        match = re.fullmatch(r"(=&?|\+&?)?([a-z]|\d+)", one)
        if match is None or match[1] in ("+", "+&"):
            raise InlineAssemblyError(f"the constraint {one!r} of {text!r} is not taken; use =r, =l, r, l, h, f, d, b or a result's number")
        if match[1]:
            if len(widths) != outputs:
                raise InlineAssemblyError(f"in the constraints {text!r} a result stands behind an operand; results come first")
            outputs += 1
            if "&" in match[1]:
                early.add(len(widths))
        if match[2].isdigit():
            number = int(match[2])
            if match[1] or number >= outputs:
                raise InlineAssemblyError(f"the constraint {one!r} of {text!r} names no result before it")
            tied.append((len(widths), number))
            widths.append(widths[number])
        elif match[2] in _WIDTHS:
            widths.append(_WIDTHS[match[2]])
        else:
            raise InlineAssemblyError(f"the constraint {one!r} of {text!r} is none of NVPTX's: {', '.join(_WIDTHS)}")
    return Constraints(widths, outputs, tuple(tied), frozenset(early))
