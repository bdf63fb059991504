"""A kind of misuse that has a code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lint:
    """A kind of misuse. code: TD and three digits, never used again for another kind. name: short, with hyphens. summary: one sentence.

    warns: the program is not necessarily wrong, so that it is a warning and no error.
    """

    code: str
    name: str
    summary: str
    warns: bool = False

    @property
    def page(self) -> str:
        """Its page, relative to the repository."""
        return f"docs/lints/{self.code}.md"
