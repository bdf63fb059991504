"""How long a wait in a kernel may take: the argument of ``initialize``, or the environment."""

from __future__ import annotations

import math
import os
from typing import Any

from ..errors import InvalidArgumentError

LONGEST_WAIT_TIMEOUT = 1e6
"""Seconds; kernels count milliseconds in 32 bits."""


def wait_timeout_or_default(wait_timeout: float | None, ignore_environment: bool = False) -> float | None:
    """Seconds that a wait may take: the argument, else TRITON_DIST_WAIT_TIMEOUT, else None for ever. Raises InvalidArgumentError."""
    source: str = "wait_timeout"
    value: Any = wait_timeout
    if value is None:
        text = "" if ignore_environment else os.environ.get("TRITON_DIST_WAIT_TIMEOUT", "")
        if not text.strip():
            return None
        source = "TRITON_DIST_WAIT_TIMEOUT"
        try:
            value = float(text)
        except ValueError:
            raise InvalidArgumentError(f"{source}={text!r} is not a number of seconds") from None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= LONGEST_WAIT_TIMEOUT:
        raise InvalidArgumentError(
            f"{source}={value!r} must be a number of seconds above 0, at most {LONGEST_WAIT_TIMEOUT:.0f}; leave it out to wait for ever"
        )
    return float(value)
