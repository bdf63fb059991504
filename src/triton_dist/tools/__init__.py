"""Programs around the package: the command line, and what it runs; and names for scripts, which are loaded when they are first used."""

from __future__ import annotations

import importlib

_HOMES = {
    "make_ast_source": "compile_aot",
    "kernel_name_suffix": "compile_aot",
    "materialize_c_params": "compile_aot",
    "dump_c_code": "compile_aot",
    "aot_compile_spaces": "compile_aot",
    "build_library": "compile_aot",
    "lend_heap": "compile_aot",
    "inspect_kernel": "inspect",
    "build_extern": "extern_library",
    "read_library": "extern_library",
    "apply_triton340_inductor_patch": "inductor",
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


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
