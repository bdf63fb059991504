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
}
"""Conditions of a wait on signed words. Ordered ones look at the sign of the difference, so that a counter may wrap around; half is
``1 << (bits - 1)``."""

SYMBOLS = {"eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


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
