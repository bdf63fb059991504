"""``# td: ignore[TD101]`` at the end of a line silences these codes there; several are separated by commas."""

from __future__ import annotations

import linecache
import re

_COMMENT = re.compile(r"#\s*td:\s*ignore\[([A-Z0-9,\s]*)\]")


def silenced(file: str | None, line: int | None, code: str) -> bool:
    """Whether the source line says that ``code`` is meant to be there."""
    if not file or not line:
        return False
    match = _COMMENT.search(linecache.getline(file, line))
    return match is not None and code in {part.strip() for part in match.group(1).split(",")}
