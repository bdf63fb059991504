"""A number for the kernel that is being compiled, for what a kernel leaves behind to be traced back to its PTX."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

_FRONT_END = "ast_to_ttir"
_LEFT_OUT = ("extern_libs",)
"""Options that hold paths of this machine."""


def kernel_hash(generator: Any, options: Any) -> int:
    """64 bits that are the same for the same source, signature, constants and options, on every machine.

    A device function is traced once and inlined into each of its callers, by a code generator that does not know the kernel.
    The kernel is what Triton's front end was called with, further up the stack. Under a front end of another name it is the
    function in which the primitive stands: then two kernels may have one number, and a report names both.
    """
    known = {name: value for name, value in vars(options).items() if name not in _LEFT_OUT}
    text = f"{_source_key(generator)} {sorted(known.items(), key=lambda item: item[0])}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _source_key(generator: Any) -> str:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _FRONT_END and "src" in frame.f_locals:
            source = frame.f_locals["src"]
            return f"{source.fn.__module__}.{source.fn.__qualname__} {source.hash()}"
        frame = frame.f_back  # type: ignore[assignment]
    function = getattr(generator, "jit_fn", None)
    return f"{function.__module__}.{function.__qualname__}" if function is not None else ""
