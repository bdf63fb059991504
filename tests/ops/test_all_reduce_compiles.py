"""The kernels of all_reduce as GPUs get them: whole words over the links, all ranks' loads ahead of the sums, signals at system scope."""

from __future__ import annotations

import re

import pytest
import triton.language as tl
from triton import compile as compile_kernel

from tests.primitives.compile_targets import source_of, target_of
from triton_dist.ops.collectives.all_reduce import one_shot_kernel
from triton_dist.ops.collectives.two_shot import two_shot_kernel

POINTERS = dict.fromkeys(("peer_staging", "arrived", "peer_arrived", "places", "peer_places", "done", "peer_done", "epochs"), "*i64")
NUMBERS = {"index": "i32", "count": "i32", "padded": "i32", "part": "i32", "capacity": "i32"}
KERNELS = {"one_shot": one_shot_kernel, "two_shot": two_shot_kernel}


def ptx_of(method: str, dtype: str, total: tl.dtype, arch: int, odd: bool = False, op: str = "sum", placed: bool = False) -> str:
    types = dict.fromkeys(("x", "out", "staging"), f"*{dtype}") | POINTERS | NUMBERS
    constants = {"SIZE": 4, "WORDS": 4, "BLOCK": 4096, "SUM": total, "OP": op}
    constants |= {"READ": placed, "WRITTEN": placed} if method == "two_shot" else {}
    aligned = ["x", "out", "staging", "padded", "capacity"] + ["part"] * (method == "two_shot") + ["count"] * (not odd)
    source = source_of(KERNELS[method], types, constants, tuple(aligned))
    return compile_kernel(source, target=target_of(arch), options={"num_warps": 8}).asm["ptx"]


def widths(ptx: str, direction: str) -> list[int]:
    """Bits of each plain access of a thread to global memory."""
    found = re.findall(rf"{direction}\.global(?:\.v([248]))?\.b(\d+)", ptx)
    return [int(vector or 1) * int(width) for vector, width in found]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(("dtype", "total"), [("bf16", tl.float32), ("fp32", tl.float32), ("fp8e4nv", tl.float32), ("i32", tl.int32)])
@pytest.mark.parametrize("method", KERNELS)
def test_16_bytes_at_a_time_go_over_the_links(method, dtype, total, arch, odd):
    """Also where the number of elements is odd: only what is read from x and written to out is narrow then."""
    ptx = ptx_of(method, dtype, total, arch, odd)
    begin = ptx.index("acquire.sys")
    between = ptx[begin:] if method == "one_shot" else ptx[begin : ptx.index("acquire.sys", begin + 100)]
    loads = [width for width in widths(between, "ld") if width != 64]  # those are the peers' addresses
    assert len(loads) >= 4 and min(loads) >= 128, loads
    if method == "two_shot":
        assert min(widths(between, "st")) >= 128


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(("dtype", "total"), [("bf16", tl.float32), ("fp32", tl.float32), ("fp8e4nv", tl.float32)])
def test_tensors_in_place_are_not_copied(dtype, total, arch):
    """All that is loaded is the ranks' data, all that is stored is the sums, besides words of 8 bytes."""
    ptx = ptx_of("two_shot", dtype, total, arch, placed=True)
    loads, stores = widths(ptx, "ld"), widths(ptx, "st")
    each = 4096 * {"bf16": 2, "fp32": 4, "fp8e4nv": 1}[dtype] // 256 // 16  # accesses of a thread for one rank's block
    assert [width for width in loads if width > 64] == [128] * 4 * each == [width for width in stores if width > 64]
    assert stores.count(64) == 1 and min(loads) == 64


def test_the_loads_of_all_ranks_are_under_way_before_the_first_sum():
    ptx = ptx_of("one_shot", "bf16", tl.float32, 90)
    summed = ptx[ptx.index("acquire.sys") :]
    assert len(re.findall(r"ld\.global\.v4\.b32", summed[: summed.index("add.f32")])) >= 8


def test_all_parts_are_loaded_before_the_first_is_stored():
    """What a rank stages, and what it copies to the result: a load behind a store would wait for the loads before it."""
    ptx = ptx_of("two_shot", "bf16", tl.float32, 90)
    meetings = [match.start() for match in re.finditer(r"acquire\.sys", ptx)]
    for copied in (ptx[: meetings[0]], ptx[meetings[-1] :]):
        accesses = re.findall(r"(ld|st)\.global\.v4\.b32", copied)
        assert accesses == ["ld"] * (len(accesses) // 2) + ["st"] * (len(accesses) // 2) and len(accesses) >= 8


@pytest.mark.parametrize("method", KERNELS)
def test_averages_are_rounded_to_nearest(method):
    assert "div.rn.f32" in ptx_of(method, "bf16", tl.float32, 90, op="avg")
    assert "div.rn.f64" in ptx_of(method, "fp64", tl.float64, 90, op="avg")


@pytest.mark.parametrize("method", KERNELS)
def test_signals_are_released_and_acquired_at_system_scope(method):
    ptx = ptx_of(method, "bf16", tl.float32, 90)
    signals = {"one_shot": 1, "two_shot": 2}[method]
    assert len(re.findall(r"atom\.global\.sys\.release\.exch", ptx)) == signals
    assert len(re.findall(r"ld\.acquire\.sys", ptx)) == signals
