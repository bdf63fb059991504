"""Several layers of a model in one kernel: ``ModelBuilder``. See docs/mega_kernel.md."""

from .builder import ModelBuilder

__all__ = ["ModelBuilder"]
