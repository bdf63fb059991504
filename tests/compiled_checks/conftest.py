"""Compiles a kernel and gives the findings; each combination once a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.primitives.compile_targets import source_of
from triton_dist.compiled_checks.stages import Stages, compile_stages
from triton_dist.compiled_checks.verify import verify, verify_stages
from triton_dist.lints import Finding


@pytest.fixture(scope="session")
def stages() -> Callable[..., Stages]:
    """``stages(kernel, arch, types, constants, alignment=(), **options)``."""
    done: dict[Any, Stages] = {}

    def compile_once(kernel, arch, types, constants, alignment=(), **options):
        key = (kernel, arch, tuple(types.items()), tuple(constants.items()), alignment, tuple(options.items()))
        if key not in done:
            done[key] = compile_stages(source_of(kernel, types, constants, alignment), arch, options)
        return done[key]

    return compile_once


@pytest.fixture(scope="session")
def findings(stages) -> Callable[..., list[Finding]]:
    """The same, for one architecture, not silenced."""
    return lambda *arguments, **options: verify_stages(stages(*arguments, **options))


@pytest.fixture(scope="session")
def verified() -> Callable[..., list[Finding]]:
    """``verified(kernel, types, constants, alignment=(), architectures=(90, 100), **options)``, as ``triton-dist check`` does it."""

    def check(kernel, types, constants, alignment=(), architectures=(90, 100), **options):
        return verify(source_of(kernel, types, constants, alignment), options, architectures)

    return check
