"""``triton.jit`` in scripts that this command runs: kernels decorated by it may have what ``triton_dist.jit`` takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import triton

from ...jit_function import jit

_local = threading.local()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Make ``triton.jit`` mean ``triton_dist.jit`` for modules that are imported meanwhile; put it back at the end."""
    before = triton.jit
    replace(before)
    try:
        yield
    finally:
        triton.jit = before


def replace(original: Callable[..., Any] = triton.jit) -> None:
    """Make ``triton.jit`` mean ``triton_dist.jit`` from now on. original: what makes Triton's own functions."""

    def decorator(fn: Callable | None = None, **options: Any) -> Any:
        if getattr(_local, "inside", False):
            return original(fn, **options)
        if fn is None:
            return lambda function: decorator(function, **options)
        _local.inside = True
        try:
            return jit(fn, **options)
        finally:
            _local.inside = False

    triton.jit = decorator  # type: ignore[assignment]
