"""The kernel decorator ``triton_dist.jit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
from triton.runtime.jit import JITFunction


def jit(fn: Callable | None = None, **options: Any) -> Any:
    """Compile a function as a Triton kernel or device function that may use the primitives of ``triton_dist.language``.

    Takes every option of ``triton.jit`` (``do_not_specialize``, ``noinline``, ``repr``, ...), with or without parentheses, and stands
    where ``triton.jit`` may stand, under ``triton.autotune`` and ``triton.heuristics`` too. The result is Triton's own JITFunction.
    """

    def decorate(function: Callable) -> JITFunction:
        return triton.jit(function, **options)

    return decorate(fn) if fn is not None else decorate
