"""What a program yields to the machine besides a plain "someone else may run now" (None)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SPIN = object()
"""A loop came round with nothing changed: running again is useless until memory changes."""

COMPARISONS: dict[str, Callable] = {
    "eq": lambda seen, expected: seen == expected,
    "ne": lambda seen, expected: seen != expected,
    "ge": lambda seen, expected: _distance(seen, expected) >= 0,
    "gt": lambda seen, expected: _distance(seen, expected) > 0,
    "le": lambda seen, expected: _distance(seen, expected) <= 0,
    "lt": lambda seen, expected: _distance(seen, expected) < 0,
}
"""Conditions of a wait. Ordered ones look at the sign of the difference, so that a counter may wrap around."""

SYMBOLS = {"eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _distance(seen, expected):
    return (seen - expected).view(f"i{seen.dtype.itemsize}") if isinstance(seen, np.generic) else seen - expected


@dataclass(slots=True)
class WaitRequest:
    """Park until the word at ``address`` is written. The program tests the condition again when it is woken.

    compare, expected: the condition, for reports. dtype: of the word.
    """

    address: int
    dtype: np.dtype
    compare: str
    expected: object
    what: str = "wait"
