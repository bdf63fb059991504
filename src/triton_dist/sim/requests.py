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
    "eq": lambda seen, expected, bits: seen == expected,
    "ne": lambda seen, expected, bits: seen != expected,
    "ge": lambda seen, expected, bits: _distance(seen, expected, bits) >= 0,
    "gt": lambda seen, expected, bits: _distance(seen, expected, bits) > 0,
    "le": lambda seen, expected, bits: _distance(seen, expected, bits) <= 0,
    "lt": lambda seen, expected, bits: _distance(seen, expected, bits) < 0,
}
"""Conditions of a wait on signed words. Ordered ones look at the sign of the difference, so that a counter may wrap around."""

SYMBOLS = {"eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _distance(seen: int, expected: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return ((seen - expected + half) & ((1 << bits) - 1)) - half


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
