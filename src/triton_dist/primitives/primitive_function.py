"""Jit functions that kernels call as primitives: Triton's, which also make this process look for kernels that read the context page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
from triton import knobs
from triton.runtime.jit import JITFunction


def primitive(function: Callable) -> Any:
    """``triton.jit`` for the functions of this package that read the context page, or whose lowering may."""
    return triton.jit(function) if knobs.runtime.interpret else PrimitiveFunction(function)


class PrimitiveFunction(JITFunction):
    """A jit function whose cache key is asked for only when a kernel that calls it is about to be compiled, or found on the disk."""

    @property
    def cache_key(self) -> str:
        """Triton's. From now on this process looks whether the kernels that it loads need a context page."""
        from triton_dist.runtime.cuda import lone_page

        lone_page.watch()
        return super().cache_key

    __hash__ = JITFunction.__hash__
