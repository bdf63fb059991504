"""Folders that tools write to."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InvalidArgumentError


def make_folder(path: str | Path) -> Path:
    """A folder for files, made if it is not there. Raises InvalidArgumentError where that can't be."""
    try:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"the folder {str(path)!r} can't be made: {why}; give the path of a folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidArgumentError(f"the folder {str(path)!r} can't be written to; give another one")
    return folder
