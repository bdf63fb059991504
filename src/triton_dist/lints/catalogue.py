"""Every code that a check can report. TD1xx: seen while a program runs; TD2xx: seen in what the compiler made of a kernel."""

from __future__ import annotations

from .compiled import COMPILED
from .lint import Lint
from .running import RUNNING

_ALL: tuple[Lint, ...] = RUNNING + COMPILED

LINTS: dict[str, Lint] = {lint.code: lint for lint in _ALL}
"""By code."""
