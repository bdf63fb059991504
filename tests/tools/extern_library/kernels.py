"""A kernel that calls stubs of the small library, from a folder of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.kernel_text import load_module


def norm_kernel_source(folder: Path, last: str = "value") -> Any:
    """A kernel over ``norms_extern`` in ``folder``. last: an expression of ``value``, which is stored."""
    sys.modules.pop("norms_extern", None)
    return load_module(
        "import sys\nimport triton, triton.language as tl\nimport triton_dist\n"
        f"sys.path.insert(0, {str(folder)!r})\nimport norms_extern\nsys.path.pop(0)\n\n\n"
        "@triton_dist.jit\ndef kernel(x, words, n):\n"
        "    value = norms_extern.squared_norm(tl.load(x), tl.load(x + 1))\n"
        "    norms_extern.put(words, norms_extern.shifted(n, 3), value > 1.0)\n"
        f"    tl.store(x, {last})\n"
    ).kernel
