"""What a kernel passes to a builtin, as Python sees it."""

from __future__ import annotations

from typing import Any

import triton.language as tl


def unwrap(value: Any) -> Any:
    """The Python value of a constexpr; anything else as it is."""
    return value.value if isinstance(value, tl.constexpr) else value


def describe(value: Any) -> str:
    """How an error message shows an argument: a Python value as written, a run-time value by its type."""
    value = unwrap(value)
    if value is None:
        return "None"
    kind = getattr(value, "type", None)
    return f"a value of type {kind}" if kind is not None else f"{value!r} ({type(value).__name__})"
