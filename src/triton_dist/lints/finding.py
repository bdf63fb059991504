"""One thing that a lint found."""

from __future__ import annotations

from dataclasses import dataclass

from .catalogue import LINTS


@dataclass(frozen=True, slots=True)
class Finding:
    """code: a key of LINTS. message: what is wrong, with values, and what to do. file, line: where, if that is known.

    kernel: the kernel's name. rank: the rank it was seen on, None if it is true of the code on all of them.
    """

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    kernel: str | None = None
    rank: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        where = ", ".join(part for part in (self.kernel and f"in {self.kernel}", self.rank is not None and f"on rank {self.rank}") if part)
        return f"{place}{self.code} {LINTS[self.code].name}{f' ({where})' if where else ''}: {self.message}"

    def as_json(self) -> dict[str, str | int | None]:
        """Its fields and its lint's name, for a machine to read."""
        return {
            "code": self.code,
            "name": LINTS[self.code].name,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "kernel": self.kernel,
            "rank": self.rank,
        }
