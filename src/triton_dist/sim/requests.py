"""What a program yields to the machine besides a plain "someone else may run now" (None)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

Steps = Generator[Any, None, Any]
"""A program, or a part of one, that yields wherever others may run and may return a value."""

SPIN = object()
"""A loop came round with nothing changed: running again is useless until memory changes."""

COMPARISONS: dict[str, Callable[[int, int, int], bool]] = {
    "eq": lambda seen, expected, half: seen == expected,
    "ne": lambda seen, expected, half: seen != expected,
    "ge": lambda seen, expected, half: (seen - expected + half) & (2 * half - 1) >= half,
    "gt": lambda seen, expected, half: (seen - expected + half) & (2 * half - 1) > half,
    "le": lambda seen, expected, half: (seen - expected + half) & (2 * half - 1) <= half,
    "lt": lambda seen, expected, half: (seen - expected + half) & (2 * half - 1) < half,
    "flag": lambda seen, expected, half: int(seen) >> 32 == expected,
}
"""Conditions of a wait on signed words. Ordered ones look at the sign of the difference, so that a counter may wrap around; half is
``1 << (bits - 1)``. "flag" looks at the upper half of a word of 64 bits, which is a signal beside 4 bytes of data."""

SYMBOLS = {"eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<", "flag": "to carry the flag"}


def shown(compare: str, value: int) -> int:
    """What of a word the condition looks at."""
    return int(value) >> 32 if compare == "flag" else value


@dataclass(slots=True)
class WaitRequest:
    """Park until the word at ``address`` is written. The program tests the condition again when it is woken.

    compare, expected: the condition, for reports. itemsize: bytes of the word. location: number of the source line in the kernel, or -1.
    """

    address: int
    itemsize: int
    compare: str
    expected: int
    location: int = -1
