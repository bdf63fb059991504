"""Misuse that has a code: what each code means, findings, and how a line silences one."""

from .catalogue import LINTS
from .finding import Finding
from .lint import Lint
from .silence import silenced

__all__ = ["LINTS", "Finding", "Lint", "silenced"]
