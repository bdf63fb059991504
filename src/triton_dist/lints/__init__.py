"""Misuse that has a code: what each code means, findings, and how a line silences one."""

from .catalogue import LINTS, Lint
from .finding import Finding
from .silence import silenced

__all__ = ["LINTS", "Finding", "Lint", "silenced"]
