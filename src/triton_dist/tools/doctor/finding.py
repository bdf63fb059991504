"""What a probe of the doctor gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """ok; warn: works, with a restriction; missing: ranks on GPUs, or everything, do not work; not tested: nothing could be said."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Finding:
    """One answer. value: what was seen, for people; data: the same for programs, where it is more than that; advice: what to do."""

    group: str
    name: str
    status: Status
    value: str
    advice: str = ""
    data: Any = None


def by_pair(rows: Iterable[Sequence[Any]], unit: str = "") -> dict[str, Any]:
    """``data`` that is shown as a matrix. rows: (GPU, GPU, what was found from the one to the other)."""
    return {"pairs": [list(row) for row in rows], "unit": unit}


def failed(group: str, name: str, error: Exception, advice: str = "") -> Finding:
    """The finding for a probe that raised: its status says that the doctor does not know."""
    return Finding(group, name, Status.NOT_TESTED, f"{type(error).__name__}: {error}", advice)
