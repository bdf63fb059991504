"""Kernels from source text: ``triton.jit`` reads the file that a function is in, so a generated kernel needs one."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path
from types import ModuleType

_FOLDER = Path(tempfile.gettempdir()) / "triton_dist_generated_kernels"


def load_module(source: str) -> ModuleType:
    """Write ``source`` to a file of its own, named by its hash, and import it.

    The file stays, so that an error's source line can be looked up; it is not added to ``sys.modules``.
    """
    name = "kernels_" + hashlib.sha256(source.encode()).hexdigest()[:16]
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"{name}.py"
    # In one step: another process may import the same text meanwhile.
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(source)
    written.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
