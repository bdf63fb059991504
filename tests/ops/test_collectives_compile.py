"""The collectives of one kernel as GPUs get them: 16 bytes at a time over the links, whatever the length; signals at system scope.

``all_reduce`` has tests of its own.
"""

from __future__ import annotations

import re

import pytest
import triton.language as tl
from triton import compile as compile_kernel

from tests.primitives.compile_targets import source_of, target_of
from triton_dist.ops.collectives.all_gather import all_gather_kernel
from triton_dist.ops.collectives.all_to_all import all_to_all_kernel
from triton_dist.ops.collectives.broadcast import broadcast_kernel
from triton_dist.ops.collectives.reduce_scatter import reduce_scatter_kernel

POINTERS = {"peer_staging": "*i64", "arrived": "*i64", "peer_arrived": "*i64", "epochs": "*i64"}
COUNTS = {"splits": "*i32", "received": "*i32"}
NUMBERS = dict.fromkeys(("index", "size", "source", "count", "padded", "capacity", "row", "rows", "room", "header"), "i32")
ALIGNED = {"staging", "padded", "capacity", "header"}
"""Arguments that are multiples of 16 whatever the call, as the operators make them."""
RANKS, BLOCK_BYTES, THREADS = 4, 8192, 256
BYTES = {"i64": 8, "i32": 4, "i16": 2, "i8": 1, "bf16": 2, "fp32": 4, "fp64": 8, "fp8e4nv": 1}
SUMS = {"bf16": tl.float32, "fp32": tl.float32, "fp64": tl.float64, "fp8e4nv": tl.float32, "i8": tl.int32, "i64": tl.int64}

MOVERS = {
    "all_gather": (all_gather_kernel, {}),
    "all_to_all": (all_to_all_kernel, {"COUNTED": False}),
    "all_to_all by splits": (all_to_all_kernel, {"COUNTED": True}),
    "broadcast": (broadcast_kernel, {"COPY": True}),
}


def ptx_of(kernel, word: str, arch: int, constants: dict, even: bool) -> str:
    width = BYTES[word]
    constants = {"SIZE": RANKS, "WORDS": RANKS, "BLOCK": BLOCK_BYTES // width, "LINE_WORDS": 128 // width, **constants}
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = dict.fromkeys(("x", "part", "out", "staging"), f"*{word}") | POINTERS | COUNTS | NUMBERS
    aligned = ALIGNED | ({"x", "part", "out", "count", "row", "room"} if even else set())
    source = source_of(kernel, types, constants, tuple(name for name in kernel.arg_names if name in aligned))
    return compile_kernel(source, target=target_of(arch), options={"num_warps": THREADS // 32}).asm["ptx"]


def mover_ptx(name: str, word: str, arch: int, even: bool) -> str:
    kernel, constants = MOVERS[name]
    return ptx_of(kernel, word, arch, {"STEP": 16 // BYTES[word] if even else 1, **constants}, even)


def sum_ptx(dtype: str, arch: int, even: bool, op: str = "sum") -> str:
    return ptx_of(reduce_scatter_kernel, dtype, arch, {"SUM": SUMS[dtype], "OP": op}, even)


def loads_after_meeting(ptx: str) -> list[int]:
    """Bits of each load of a thread behind the wait: of what peers have staged, and, 64 each, of what says where that is."""
    found = re.findall(r"ld\.global(?:\.v([248]))?\.b(\d+)", ptx[ptx.rindex("fence.proxy.async") :])
    return [int(vector or 1) * int(width) for vector, width in found]


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("word", "arch"), [("i64", 90), ("i64", 100), ("i32", 90), ("i16", 90), ("i8", 90)])
@pytest.mark.parametrize("name", MOVERS)
def test_16_bytes_at_a_time_go_over_the_links(name, word, arch, even):
    """Also where lengths and addresses are odd: only what is read from x and written to out is narrow then."""
    loads = loads_after_meeting(mover_ptx(name, word, arch, even))
    wide = (1 if name == "broadcast" else RANKS) * BLOCK_BYTES // 16 // THREADS
    assert loads.count(128) == wide and set(loads) == {64, 128}, loads


def test_all_parts_are_loaded_before_the_first_is_staged():
    ptx = sum_ptx("bf16", 90, even=True)
    accesses = re.findall(r"(ld|st)\.global\.v4\.b32", ptx[: ptx.index("acquire.sys")])
    each = RANKS * BLOCK_BYTES // THREADS // 16
    assert accesses == ["ld"] * each + ["st"] * each


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize("arch", [90, 100])
def test_16_bytes_of_addends_at_a_time_go_over_the_links(dtype, arch, even):
    loads = loads_after_meeting(sum_ptx(dtype, arch, even))
    assert loads.count(128) == RANKS * BLOCK_BYTES // 16 // THREADS and loads.count(64) == len(loads) - loads.count(128) == RANKS, loads


def test_averages_of_parts_are_rounded_to_nearest():
    assert "div.rn.f32" in sum_ptx("bf16", 90, True, "avg")
    assert "div.rn.f64" in sum_ptx("fp64", 90, True, "avg")


@pytest.mark.parametrize("name", [*MOVERS, "reduce_scatter"])
def test_one_signal_is_released_and_acquired_at_system_scope(name):
    ptx = sum_ptx("bf16", 90, True) if name == "reduce_scatter" else mover_ptx(name, "i64", 90, True)
    assert len(re.findall(r"atom\.global\.sys\.release\.exch", ptx)) == len(re.findall(r"ld\.acquire\.sys", ptx)) == 1
