"""Profilers in kernels as compiled for GPUs, none of which need be there: switched off they leave nothing, on they read the clock."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import triton

from tests.primitives.compile_targets import AMD, NVIDIA, source_of, target_of
from tests.tools.profiler.kernels import add_kernel, plain_add_kernel, plain_ring_kernel, ring_kernel
from triton_dist.sim.ptx.special import RECORD_CLOCK
from triton_dist.tools.profiler.clocks import exchange_kernel, ticks_kernel

ADD = {"profile": "*u64", "x": "*fp32", "y": "*fp32", "rounds": "i32"}
RING = {"profile": "*u64", "flags": "*i32"}
PAIRS = [
    pytest.param(add_kernel, plain_add_kernel, ADD, {"LEADER": False}, id="block"),
    pytest.param(add_kernel, plain_add_kernel, ADD, {"LEADER": True}, id="leader"),
    pytest.param(ring_kernel, plain_ring_kernel, RING, {"ROUNDS": 3}, id="signals"),
]


def assembly(kernel, target, types, constants) -> str:
    """The text that the assembler gets."""
    compiled = triton.compile(source_of(kernel, types, constants), target=target_of(target))
    return compiled.asm["ptx" if target in NVIDIA else "amdgcn"]


def instructions(text: str) -> list[str]:
    """Without what tells source lines and the kernel's name, and without what a wait says of its place to a report of hangs."""
    text = re.split(r"\n\s*\.section", text)[0]
    lines = [re.sub(r"\s*(//|;\s*%bb|#|;\s*@).*", "", line).strip() for line in text.splitlines()]
    lines = [re.sub(r"\bplain_", "", line) for line in lines if line and not re.match(r"\.(loc|file|ident)\b|\$L__(tmp|func_)\w*:", line)]
    return [re.sub(r"\b(0x[0-9A-Fa-f]{8,}|-?\d{8,})\b", "N", line) for line in lines]


@pytest.fixture(autouse=True)
def without_source_lines(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("target", NVIDIA)
@pytest.mark.parametrize(("profiled", "plain", "types", "constants"), PAIRS)
def test_switched_off_it_leaves_nothing(profiled, plain, types, constants, target):
    off = instructions(assembly(profiled, target, types, {**constants, "PROFILE": False}))
    without = instructions(assembly(plain, target, types, {**constants, "PROFILE": False}))
    assert off == without
    assert len(off) > 20 and any("st." in line or "red." in line for line in off)


@pytest.mark.parametrize(("profiled", "plain", "types", "constants"), PAIRS)
def test_switched_off_it_takes_none_for_a_buffer(profiled, plain, types, constants):
    constants = {**constants, "PROFILE": False, "profile": None}
    assert instructions(assembly(profiled, 90, types, constants)) == instructions(assembly(plain, 90, types, constants))


@pytest.mark.parametrize("target", NVIDIA)
@pytest.mark.parametrize(("profiled", "plain", "types", "constants"), PAIRS)
def test_switched_on_it_reads_a_clock_of_64_bits(profiled, plain, types, constants, target):
    text = assembly(profiled, target, types, {**constants, "PROFILE": True})
    assert text.count("mov.b64") >= 2 and "%globaltimer_lo" not in text
    assert re.search(r"mov\.b64\s+%rd\d+, %globaltimer;", text)


def test_for_amd_gpus():
    text = assembly(add_kernel, AMD, ADD, {"LEADER": False, "PROFILE": True})
    assert "s_memrealtime" in text
    assert "s_memrealtime" not in assembly(add_kernel, AMD, ADD, {"LEADER": False, "PROFILE": False})


def test_products_stay_pipelined(monkeypatch):
    """Records around a loop of products do not keep it from loading ahead."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples"))
    kernel = importlib.import_module("04_profiler").ag_gemm_kernel
    types = {"a": "*bf16", "gathered": "*bf16", "flags": "*i32", "b": "*bf16", "out": "*fp32", "profile": "*u64"}
    sizes = {"ROWS": 2048, "DEPTH": 4096, "COLUMNS": 2048, "TILE": 128, "TILE_K": 64, "SENDERS": 16}
    found = []
    for on in (False, True):
        source = source_of(kernel, types, {**sizes, "PROFILE": on}, alignment=tuple(types))
        text = triton.compile(source, target=target_of(90)).asm["ptx"]
        found.append((text.count("cp.async.cg"), text.count("wgmma.mma_async"), text.count("wgmma.wait_group")))
    assert found[0] == found[1] and min(found[0]) > 0


@pytest.mark.parametrize("target", NVIDIA)
def test_clocks_are_compared_by_64_bits(target):
    exchange = assembly(exchange_kernel, target, {"words": "*i32", "times": "*i64"}, {"ROUNDS": 4})
    assert exchange.count(RECORD_CLOCK.partition("$0")[2].strip()) >= 3
    assert "globaltimer" in assembly(ticks_kernel, target, {"times": "*i64"}, {"TICKS": 4, "MOST_READS": 100})
