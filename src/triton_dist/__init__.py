"""Multi-GPU programming for stock Triton.

A kernel is ordinary Triton plus the primitives of ``triton_dist.language`` (``dl.wait``, ``dl.notify``, ``dl.symm_at``, ...). ``simulate``
runs it on many simulated ranks in one process and names deadlocks and accesses out of bounds.

Importing this package imports neither torch nor Triton, touches no device and sets no hook: names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "jit": "triton_dist.jit_function",
    "simulate": "triton_dist.sim.simulate",
    "explore": "triton_dist.sim.explore",
    "extern_twin": "triton_dist.sim.ops.twins",
    "autotune": "triton_dist.tools.autotune",
    "tuned_together": "triton_dist.tools.autotune",
    "inline_asm_twin": "triton_dist.sim.ptx.twins",
    "initialize": "triton_dist.runtime.world",
    "finalize": "triton_dist.runtime.world",
    "check": "triton_dist.runtime.world",
    "rank": "triton_dist.runtime.world",
    "world_size": "triton_dist.runtime.world",
    "local_rank": "triton_dist.runtime.world",
    "num_nodes": "triton_dist.runtime.world",
    "symm_empty": "triton_dist.runtime.symmetric",
    "symm_zeros": "triton_dist.runtime.symmetric",
    "symm_full": "triton_dist.runtime.symmetric",
    "symm_peer": "triton_dist.runtime.symmetric",
    "symm_free": "triton_dist.runtime.symmetric",
    "symm_adopt": "triton_dist.runtime.symmetric",
    "symm_handle": "triton_dist.runtime.symm_handle",
    "is_symmetric": "triton_dist.runtime.symmetric",
    "Team": "triton_dist.runtime.team",
    "make_team": "triton_dist.runtime.team",
    "free_team": "triton_dist.runtime.team",
    "team_number": "triton_dist.runtime.team",
    "device": "triton_dist.runtime.streams",
    "Stream": "triton_dist.runtime.streams",
    "Event": "triton_dist.runtime.streams",
    "current_stream": "triton_dist.runtime.streams",
    "stream": "triton_dist.runtime.streams",
    "synchronize": "triton_dist.runtime.streams",
    "write_value": "triton_dist.runtime.streams",
    "wait_value": "triton_dist.runtime.streams",
    "copy_async": "triton_dist.runtime.streams",
}
_MODULES = ("errors", "language", "ops", "primitives", "runtime", "sim", "tune", "utils")

__all__ = [*_HOMES, *_MODULES, "__version__"]

if TYPE_CHECKING:
    from . import errors, language, ops, primitives, runtime, sim, tune, utils
    from .jit_function import jit
    from .runtime.streams import Event, Stream, copy_async, current_stream, device, stream, synchronize, wait_value, write_value
    from .runtime.symm_handle import symm_handle
    from .runtime.symmetric import is_symmetric, symm_adopt, symm_empty, symm_free, symm_full, symm_peer, symm_zeros
    from .runtime.team import Team, free_team, make_team, team_number
    from .runtime.world import check, finalize, initialize, local_rank, num_nodes, rank, world_size
    from .sim.explore import explore
    from .sim.ops.twins import extern_twin
    from .sim.ptx.twins import inline_asm_twin
    from .sim.simulate import simulate
    from .tools.autotune import autotune, tuned_together


def __getattr__(name: str):
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"triton_dist.{name}")
    else:
        raise AttributeError(f"module 'triton_dist' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
