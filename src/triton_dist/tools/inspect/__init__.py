"""The communication report of a compiled kernel: what it does to other ranks' memory and to signals, and at what cost."""

from .examine import inspect_kernel
from .report import CommunicationReport

__all__ = ["CommunicationReport", "inspect_kernel"]
