"""Programs around the package: the command line, and what it runs; and names for scripts, which are loaded when first used."""

from __future__ import annotations

import importlib

_HOMES = {
    "apply_triton340_inductor_patch": "triton_dist.tools.inductor",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'triton_dist.tools' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
