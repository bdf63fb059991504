"""Who holds an address in this process."""

from __future__ import annotations

import contextlib


def who_holds(low: int, high: int) -> str:
    """What lies between two addresses, from /proc/self/maps: its file or kind, and its own addresses."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in fields[0].split("-"))
            if start < high and end > low:
                name = fields[5].strip() if len(fields) > 5 else "an anonymous mapping"
                return f"{name} ({fields[0]})"
    return "something else"
