"""Functions of the small library beside this file, as kernels call them by ``extern_call``, and their twins for the simulator."""

from __future__ import annotations

from pathlib import Path

import triton.language as tl

import triton_dist
import triton_dist.language as dl

LIBRARY = str(Path(__file__).parent / "bitcode" / "shapes.ll")


@tl.core.extern
def weighted(a, b, n, _semantic=None):
    table = {("fp32", "fp32", "i32"): ("weighted", tl.float32), (tl.float64, tl.float64, tl.int32): ("weighted_wide", tl.float64)}
    return dl.extern_call("shapes", LIBRARY, [a, b, n], table, True, _semantic=_semantic)


@tl.core.extern
def record(place, value, _semantic=None):
    return dl.extern_call("shapes", LIBRARY, [place, value], {("*i32", "i32"): ("record", ())}, False, _semantic=_semantic)


@tl.core.extern
def after(place, count, _semantic=None):
    return dl.extern_call("shapes", LIBRARY, [place, count], {("*void", "i64"): ("after", "*i32")}, True, _semantic=_semantic)


@tl.core.extern
def count_calls(step, _semantic=None):
    return dl.extern_call("shapes", LIBRARY, [step], {("i32",): ("count_calls", ["i32"])}, False, _semantic=_semantic)


@tl.core.extern
def count_calls_as_pure(step, _semantic=None):
    return dl.extern_call("shapes", LIBRARY, [step], {("i32",): ("count_calls", tl.int32)}, True, _semantic=_semantic)


@triton_dist.extern_twin("weighted")
def weighted_twin(a, b, n):
    return a + b * n


@triton_dist.extern_twin("weighted_wide")
def weighted_wide_twin(a, b, n):
    return a + b * n


@triton_dist.extern_twin("record")
def record_twin(place, value):
    place[0] = place[0] + value


@triton_dist.extern_twin("after")
def after_twin(place, count):
    return place.address + 4 * count
