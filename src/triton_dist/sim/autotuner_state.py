"""Keeps the ranks apart inside one Triton autotuner, which is made for one process and remembers its call in itself."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_FIELDS = ("nargs", "restore_copies")
"""Attributes that ``Autotuner.run`` sets and uses again after a benchmark, in which the rank may give up the baton."""


def interrupted_autotuners() -> list[tuple[Any, dict[str, Any]]]:
    """The autotuners whose ``run`` is in progress in the calling thread, each with the attributes that must survive other ranks."""
    module = sys.modules.get("triton.runtime.autotuner")
    if module is None:
        return []
    found: list[tuple[Any, dict[str, Any]]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == module.__file__:
            tuner = frame.f_locals.get("self")
            if isinstance(tuner, module.Autotuner) and all(tuner is not known for known, _ in found):
                found.append((tuner, {name: vars(tuner)[name] for name in _FIELDS if name in vars(tuner)}))
        frame = frame.f_back
    return found


def restore(autotuners: list[tuple[Any, dict[str, Any]]]) -> None:
    """Put back what ``interrupted_autotuners`` found, after other ranks have run."""
    for tuner, fields in autotuners:
        vars(tuner).update(fields)
