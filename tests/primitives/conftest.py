"""Compiles kernels for GPUs that need not be there; each combination once a session."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import triton
from compile_targets import source_of, target_of
from triton._C.libtriton import ir
from triton.compiler.compiler import make_backend


@pytest.fixture(scope="session", autouse=True)
def private_triton_cache(tmp_path_factory: pytest.TempPathFactory):
    """Keeps compiled kernels out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture(scope="session")
def compiled(private_triton_cache) -> Callable[..., Mapping[str, str]]:
    """``compiled(kernel, target, types, constants, alignment=(), **options)`` gives the texts by stage ("ttir", "ttgir", "ptx", ...)."""
    done: dict[Any, Mapping[str, str]] = {}

    def compile_once(kernel, target, types, constants=None, alignment=(), **options):
        constants = constants or {}
        key = (kernel, target, tuple(types.items()), tuple(constants.items()), alignment, tuple(options.items()))
        if key not in done:
            source = source_of(kernel, types, constants, alignment)
            done[key] = triton.compile(source, target=target_of(target), options=options or None).asm
        return done[key]

    return compile_once


@pytest.fixture(scope="session")
def simulated() -> Callable[..., str]:
    """``simulated(kernel, types, constants)`` gives the IR that the front end emits for the simulator."""

    def trace(kernel, types, constants=None):
        target = target_of(90)
        backend = make_backend(target)
        parsed = backend.parse_options({})

        @dataclasses.dataclass(frozen=True)
        class SimulatedOptions(type(parsed)):
            simulated: bool = True

        options = SimulatedOptions(**{**vars(parsed), "extern_libs": None})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions = backend.get_codegen_implementation(options)
        source = source_of(kernel, types, constants or {})
        return str(source.make_ir(target, options, functions, backend.get_module_map(), context))

    return trace
