"""Programs around the package: the command line, and what it runs.

The documented names are loaded when they are first used.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "Profiler": "profiler",
    "ProfilerBuffer": "profiler",
    "alloc_profiler_buffer": "profiler",
    "export_merged_trace": "profiler",
    "export_to_perfetto_trace": "profiler",
    "parse_to_tracks": "profiler",
    "reset_profiler_buffer": "profiler",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'triton_dist.tools' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"triton_dist.tools.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
