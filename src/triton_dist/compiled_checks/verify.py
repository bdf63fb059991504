"""Compiles a kernel for GPUs and runs all checks on what the compiler made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..lints import Finding, silenced
from .bulk import check_bulk_loads, check_releases
from .guarded import read_source
from .order import check_order, guarded_pairs
from .pipelined import check_pipelined
from .ptx import Ptx
from .remote import check_remote
from .signals import check_signals
from .stages import Stages, compile_stages

ARCHITECTURES = (90, 100)
"""Compute capabilities that are compiled for unless others are asked for."""


def verify(source: Any, options: Mapping[str, Any], architectures: Sequence[int] = ARCHITECTURES) -> list[Finding]:
    """All findings of one kernel, without those that a comment on their line silences; one for each code and line.

    source: the ``triton.compiler.ASTSource`` of a launch. options: its launch options that are not the default.
    """
    found: list[Finding] = []
    for arch in architectures:
        try:
            stages = compile_stages(source, arch, options)
        except Exception as error:
            found.append(_does_not_compile(source, arch, error))
        else:
            found += verify_stages(stages)
    return _told_once(found, source.name)


def verify_stages(stages: Stages) -> list[Finding]:
    """All findings of one compilation, silenced or not."""
    ptx = Ptx(stages.ptx)
    source = read_source(stages.source)
    pairs = guarded_pairs(source)
    return [
        *check_order(source, pairs, stages.ttgir, ptx, stages.arch),
        *check_releases(ptx, stages.arch),
        *check_signals(stages.ttgir, stages.arch),
        *check_pipelined(source, stages.ttgir, stages.options.num_stages, stages.arch),
        *check_remote(source, ptx, stages.options.num_warps, stages.arch),
        *check_bulk_loads(source, pairs, ptx, stages.arch),
    ]


def _does_not_compile(source: Any, arch: int, error: Exception) -> Finding:
    function = source.fn
    text = " ".join(str(error).split()) or type(error).__name__
    return Finding(
        "TD207",
        f"it ran on the simulator, and Triton can't compile it for sm_{arch}: {type(error).__name__}: {text[:400]}",
        getattr(getattr(getattr(function, "fn", None), "__code__", None), "co_filename", None),
        getattr(function, "starting_line_number", None),
    )


def _told_once(found: Sequence[Finding], kernel: str) -> list[Finding]:
    kept: dict[tuple, Finding] = {}
    for finding in found:
        if not silenced(finding.file, finding.line, finding.code):
            kept.setdefault((finding.code, finding.file, finding.line), dataclasses.replace(finding, kernel=kernel))
    return list(kept.values())
