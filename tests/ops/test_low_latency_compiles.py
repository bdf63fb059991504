"""The low-latency all-reduce as GPUs get it: 16 bytes at a time, of whole words of 8, relaxed at system scope, and bounded waits."""

from __future__ import annotations

import re

import pytest
import triton.language as tl
from triton import compile as compile_kernel

from tests.primitives.compile_targets import source_of, target_of
from triton_dist.ops.collectives.low_latency import _INTEGERS, CAPACITY, low_latency_broadcast_kernel, low_latency_kernel
from triton_dist.runtime.wait_layout import MARKER

WIDTHS = {"bf16": 2, "fp32": 4, "fp8e4nv": 1, "i32": 4, "fp64": 8, "u8": 1}


def compiled(
    dtype: str,
    total: tl.dtype | None,
    arch: int = 90,
    size: int = 4,
    units: int = 128,
    whole: bool = True,
    op: str | None = "sum",
    parts=False,
) -> dict:
    width = WIDTHS[dtype]
    data = "i64" if whole else dtype
    types = dict.fromkeys(("x", "out"), f"*{data}") | dict.fromkeys(("words", "peer_words", "epochs"), "*i64")
    types |= {"index": "i32", "count": "i32", "zero": "i32"}
    element = {"bf16": tl.bfloat16, "fp32": tl.float32, "fp8e4nv": tl.float8e4nv, "i32": tl.int32, "fp64": tl.float64, "u8": tl.uint8}
    constants = {
        "SIZE": size, "EACH": 8 // width, "ELEMENT": element[dtype], "INTEGER": _INTEGERS[width], "WHOLE": whole, "UNITS": units,
        "CAPACITY": CAPACITY, "PARTS": parts, "SUM": total, "OP": op,
    }  # fmt: skip
    source = source_of(low_latency_kernel, types, constants, ("x", "out", "words"))
    return compile_kernel(source, target=target_of(arch), options={"num_warps": units // 32}).asm


def ptx_of(dtype: str, total: tl.dtype | None, *arguments, **options) -> str:
    return compiled(dtype, total, *arguments, **options)["ptx"]


def broadcast_ptx(whole: bool = True, size: int = 4, arch: int = 90) -> str:
    data = "i64" if whole else "i16"
    types = dict.fromkeys(("x", "out"), f"*{data}") | dict.fromkeys(("words", "peer_words", "epochs"), "*i64")
    types |= {"index": "i32", "source": "i32", "count": "i32", "zero": "i32"}
    constants = {
        "SIZE": size, "EACH": 1 if whole else 4, "INTEGER": tl.int64 if whole else tl.int16, "WHOLE": whole, "UNITS": 128,
        "CAPACITY": CAPACITY, "COPY": False,
    }  # fmt: skip
    source = source_of(low_latency_broadcast_kernel, types, constants, ("x", "out", "words"))
    return compile_kernel(source, target=target_of(arch), options={"num_warps": 4}).asm["ptx"]


STORE, LOAD = "st.relaxed.sys.global.v2.b64", "ld.relaxed.sys.global.v2.b64"


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(("dtype", "total"), [("bf16", tl.float32), ("fp32", tl.float32), ("fp8e4nv", tl.float32), ("i32", tl.int32)])
def test_a_thread_moves_one_unit_to_and_from_each_peer(dtype, total, arch):
    ptx = ptx_of(dtype, total, arch)
    # To three peers the data, and behind the sum, rarely, a part of the place. Of the four ranks' units its own is passed over.
    assert ptx.count(STORE) == 6 and ptx.count(LOAD) == 4
    # Beside the record of a wait that takes too long nothing is released or counted.
    assert len(re.findall(r"\.release\.", ptx)) == 2 and len(re.findall(r"\b(?:atom|red)\.", ptx)) == 1
    # What the thread reads of x and writes to out are whole units, one each.
    assert re.findall(r"st\.global\.b64", ptx) and "st.global.b16" not in ptx and "ld.global.b16" not in ptx


def test_all_units_are_loaded_before_the_first_is_looked_at():
    ptx = ptx_of("bf16", tl.float32)
    poll = ptx[ptx.index(MARKER) :]
    loads = [match.start() for match in re.finditer(re.escape(LOAD), poll)]
    assert len(loads) == 4 and loads[-1] < poll.index("setp.ne.s32 %bad")


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("op", [None, "sum"])
def test_every_form_moves_one_unit_to_and_from_each_peer(op, parts):
    """What is read of x is a unit for each rank where there are parts, and again of a next piece; what is written, one if it is reduced."""
    ptx = ptx_of("bf16", tl.float32 if op else None, op=op, parts=parts)
    assert ptx.count(STORE) == 6 and ptx.count(LOAD) == 4
    loads, stores = re.findall(r"ld\.global\.b64", ptx), re.findall(r"st\.global\.b64", ptx)
    words = 1 + 3  # the epoch and the addresses
    assert len(loads) == words + 2 * (4 if parts else 1) and len(stores) == (4 if op is None else 1) + 1
    assert len(re.findall(r"\.release\.", ptx)) == 2 and "fence" not in ptx and "membar" not in ptx


def test_a_broadcast_moves_units_and_asks_for_one_of_each_rank():
    ptx = broadcast_ptx()
    assert ptx.count(STORE) == 6 and ptx.count(LOAD) == 1 + 4 and ptx.count(MARKER) == 2
    assert "fence" not in ptx and "membar" not in ptx and "st.global.b16" not in ptx
    assert broadcast_ptx(whole=False).count(STORE) == 6


def depends_on(ptx: str, register: str, source: str) -> bool:
    """Whether a register is computed from ``source``."""
    made: dict[str, set[str]] = {}
    for target, operands in re.findall(r"^\s+\S+\s+(%\w+), ([^;\[]*);", ptx, re.M):
        made.setdefault(target, set()).update(re.findall(r"%[\w.]+", operands))
    known, new = set(), {register}
    while new:
        known |= new
        new = {operand for one in new for operand in made.get(one, ())} - known
    return source in known


def test_the_first_loads_are_each_threads_own():
    """Epoch, addresses and data are under way together: none is loaded by an address that is known to be the same for all threads."""
    ptx = ptx_of("bf16", tl.float32)
    addresses = re.findall(r"ld\.global\.b64 \{ %rd\d+ \}, \[ (%rd\d+) \+ 0 \]", ptx)
    assert len(addresses) == 6  # the last: the data of a next piece
    assert all(depends_on(ptx, address, "%tid.x") for address in addresses)
    assert not depends_on(ptx, "%rd0", "%tid.x")


@pytest.mark.parametrize(("size", "polls"), [(1, 1), (2, 1), (8, 1), (9, 2), (17, 3)])
def test_ranks_are_waited_for_eight_at_a_time(size, polls):
    ptx = ptx_of("bf16", tl.float32, size=size)
    assert ptx.count(MARKER) == polls


def test_more_units_than_threads_are_more_polls():
    source = ptx_of("bf16", tl.float32, units=512)
    assert source.count(MARKER) == 1  # sixteen warps


@pytest.mark.parametrize("dtype", ["bf16", "fp64", "u8"])
def test_odd_lengths_compile(dtype):
    ptx = ptx_of(dtype, {"bf16": tl.float32, "fp64": tl.float64, "u8": tl.int32}[dtype], whole=False)
    assert ptx.count(STORE) == 6 and ptx.count(LOAD) == 4


def test_averages_are_rounded_to_nearest():
    assert "div.rn.f32" in ptx_of("bf16", tl.float32, op="avg") and "div.rn.f64" in ptx_of("fp64", tl.float64, op="avg")


def test_a_wait_that_takes_too_long_leaves_a_record():
    ptx = ptx_of("bf16", tl.float32)
    poll = ptx[ptx.index(MARKER) :]
    assert "st.release.sys.global.b32" in poll and "%globaltimer" in poll
    assert re.search(r"st\.relaxed\.sys\.global\.b64 \[%board\+\d+\], %address", poll)


def test_amd_gpus_get_whole_words_by_atomics():
    types = dict.fromkeys(("x", "out", "words", "peer_words", "epochs"), "*i64") | {"index": "i32", "count": "i32", "zero": "i32"}
    constants = {
        "SIZE": 2, "EACH": 4, "ELEMENT": tl.bfloat16, "INTEGER": tl.int16, "WHOLE": True, "UNITS": 128, "CAPACITY": CAPACITY,
        "PARTS": False, "SUM": tl.float32, "OP": "sum",
    }  # fmt: skip
    source = source_of(low_latency_kernel, types, constants, ("x", "out", "words"))
    assembly = compile_kernel(source, target=target_of("gfx942"), options={"num_warps": 2}).asm["amdgcn"]
    assert "global_atomic_swap_x2" in assembly
    # LLVM may make an atomic load of an atomic that changes nothing.
    assert re.search(r"global_atomic_(or|add)_x2|global_load_dwordx2 .* sc0 sc1", assembly)
