"""The GPUs that the tests compile for, and how a kernel becomes something to compile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NVIDIA = (80, 90, 100)
AMD = "gfx942"


def target_of(name: int | str) -> GPUTarget:
    """The Triton target for 80, 90, 100 (NVIDIA) or "gfx..." (AMD)."""
    return GPUTarget("hip", name, 64) if isinstance(name, str) else GPUTarget("cuda", name, 32)


def source_of(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], alignment: tuple[str, ...] = ()) -> ASTSource:
    """The source of a kernel; arguments in ``alignment`` are known to be multiples of 16."""
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in alignment}
    return ASTSource(kernel, signature, dict(constants), attributes)
