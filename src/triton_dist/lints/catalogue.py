"""Every code that a check can report. TD1xx: seen while a program runs; TD2xx: seen in what the compiler made of a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lint:
    """A kind of misuse. code: TD and three digits, never used again for another kind. name: short, with hyphens. summary: one sentence."""

    code: str
    name: str
    summary: str

    @property
    def page(self) -> str:
        """Its page, relative to the repository."""
        return f"docs/lints/{self.code}.md"


_ALL: tuple[Lint, ...] = ()

LINTS: dict[str, Lint] = {lint.code: lint for lint in _ALL}
"""By code."""
