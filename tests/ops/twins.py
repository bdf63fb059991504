"""Twins of an operator's kernels: the file that they stand in, right but for one place."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def twin_of(module: ModuleType, directory: Path, right: str, wrong: str) -> ModuleType:
    """A copy of ``module`` in ``directory`` in which the one place that reads ``right`` reads ``wrong``."""
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    assert source.count(right) == 1, f"{right!r} stands {source.count(right)} times in {module.__name__}"
    path = directory / "twin.py"
    path.write_text(source.replace(right, wrong), encoding="utf-8")
    name = f"{module.__name__}_twin_{abs(hash((right, wrong)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    twin = importlib.util.module_from_spec(spec)
    sys.modules[name] = twin
    spec.loader.exec_module(twin)
    return twin
