"""Modules that are loaded from another file than their own: how a program gets to run a mutant without knowing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from ...errors import InvalidArgumentError


class Substitute(MetaPathFinder):
    """Loads the module of the file ``original`` from the file ``changed``, whatever name it is imported by.

    loaded: whether that has happened. Triton reads a kernel's text from its file, so the change has to be in a file.
    """

    def __init__(self, original: Path, changed: Path) -> None:
        self.original, self._changed = original.resolve(), changed
        self.loaded = False

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.rpartition(".")[2] != self.original.stem:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != self.original:
            return None
        self.loaded = True
        spec.loader = SourceFileLoader(fullname, str(self._changed))
        spec.origin = str(self._changed)
        spec.cached = None
        return spec

    def install(self) -> None:
        """Load from the changed file from now on. Raises InvalidArgumentError if the module has been imported."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is not None and Path(file).resolve() == self.original:
                raise InvalidArgumentError(f"{name} was imported before its mutant could be; import it only in the program that is run")
        sys.meta_path.insert(0, self)
