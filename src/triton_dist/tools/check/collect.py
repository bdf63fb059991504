"""Collects the kernels that are launched, and what it takes to compile each again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from triton.backends.compiler import GPUTarget

from ...sim import launch
from ...sim.compiler import SimCompiler

_FROM_ELSEWHERE = frozenset({"extern_libs", "simulated", "arch", "backend_name", "debug"})
"""Options that belong to the target or the run and not to the launch."""


@dataclass(frozen=True)
class LaunchedKernel:
    """A kernel as it was launched. source: Triton's ASTSource. options: launch options that are not the default."""

    name: str
    source: Any
    options: dict[str, Any]
    key: str


class Kernels:
    """The distinct kernels that were launched while it was ``watching``."""

    def __init__(self) -> None:
        self.found: dict[str, LaunchedKernel] = {}
        self._seen: dict[int, Any] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Collect what is launched meanwhile, in any thread."""
        before = launch.launched
        launch.launched = self._launched
        try:
            yield
        finally:
            launch.launched = before

    def _launched(self, launcher: launch.Launcher) -> None:
        if id(launcher) in self._seen:
            return
        self._seen[id(launcher)] = launcher
        source = launcher.source
        if not hasattr(source, "fn"):
            return  # launched from IR text, for one target
        options = options_of(launcher.metadata)
        key = hashlib.sha256(f"{source.hash()} {sorted(options.items())}".encode()).hexdigest()[:16]
        self.found.setdefault(key, LaunchedKernel(source.name, source, options, key))


def options_of(metadata: Any) -> dict[str, Any]:
    """The launch options of a compiled kernel that differ from the defaults. metadata: Triton's, of a kernel for the simulator."""
    target = metadata.target
    default = vars(SimCompiler(GPUTarget("sim", target.arch, 32)).parse_options({}))
    given = {name: _frozen(getattr(metadata, name, value)) for name, value in default.items() if name not in _FROM_ELSEWHERE}
    return {name: value for name, value in given.items() if value != _frozen(default[name])}


def _frozen(value: Any) -> Any:
    """Lists as tuples: metadata from Triton's cache has been through JSON."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value
