"""Source lines: which one of the user's called the simulator, and the files that a report shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
import triton

from .events import Place

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_NOT_THE_USERS = (_PACKAGE, str(Path(torch.__file__).parent) + os.sep, str(Path(triton.__file__).parent) + os.sep)
_THE_USERS = (_PACKAGE + "ops" + os.sep, _PACKAGE + "layers" + os.sep)
"""Of this package, what runs on ranks as a user's program does."""

_LARGEST_FILE = 1 << 20


def is_users(file: str) -> bool:
    """Whether reports show lines of a file."""
    return not file.startswith("<") and (file.startswith(_THE_USERS) or not file.startswith(_NOT_THE_USERS))


def user_place() -> Place | None:
    """The innermost line of this thread that is not the simulator's, torch's or Triton's; None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            name = frame.f_globals.get("__name__", "")
            return None if name == "threading" else Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def read_sources(files: Iterable[str]) -> dict[str, str]:
    """The text of each file that can be read."""
    found = {}
    for file in files:
        try:
            if os.path.getsize(file) <= _LARGEST_FILE:
                found[file] = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it is gone, or was never a file: lines are named without their text
    return found
