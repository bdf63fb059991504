"""Waits and signals in loops that Triton deals out to partitions of warps (Blackwell, ``warp_specialize=True``).

Found on 3.6.0, 3.7.1 and 3.9.0: a wait goes to every partition that uses its token, so consuming the token by what the
loads are addressed with is what orders them. A wait with its token unused stays in the default partition on 3.7 and 3.9,
and does not compile on 3.6; ``partitions_without_wait`` finds the first case.
"""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.primitives.warp_specialization import partitions_of, partitions_without_wait

TYPES = {
    "a": "tensordesc<fp16[128,64]>",
    "b": "tensordesc<fp16[128,64]>",
    "c": "tensordesc<fp16[128,128]>",
    "words": "*i32",
    "m_tiles": "i32",
    "tiles": "i32",
    "K": "i32",
}
OPTIONS = {"num_warps": 4, "num_stages": 3}


@triton.jit
def gemm_kernel(a, b, c, words, m_tiles, tiles, K, WAIT: tl.constexpr, COUNT: tl.constexpr, FLATTEN: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True, flatten=FLATTEN):
        row, column = tile % m_tiles, tile // m_tiles
        a_row = row
        if WAIT == "coordinate":
            a_row = dl.consume_token(row, dl.wait(words + row, COUNT, "sys", "acquire"))
        elif WAIT == "unused":
            dl.wait(words + row, COUNT, "sys", "acquire")
        total = tl.zeros((128, 128), tl.float32)
        for k in range(tl.cdiv(K, 64)):
            total = tl.dot(a.load([a_row * 128, k * 64]), b.load([column * 128, k * 64]).T, total)
        c.store([row * 128, column * 128], total.to(tl.float16))
        dl.notify(words + row, 1, sig_op="add", comm_scope="intra_node")


@triton.jit
def wait_before_loop_kernel(a, b, c, words, m_tiles, tiles, K, WAIT: tl.constexpr, COUNT: tl.constexpr, FLATTEN: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    dl.wait(words + row, COUNT, "sys", "acquire")
    total = tl.zeros((128, 128), tl.float32)
    for k in tl.range(tl.cdiv(K, 64), warp_specialize=True):
        total = tl.dot(a.load([row * 128, k * 64]), b.load([column * 128, k * 64]).T, total)
    c.store([row * 128, column * 128], total.to(tl.float16))


def version():
    return tuple(map(int, triton.__version__.split(".")[:2]))


def flattened():
    """Triton 3.6 specialises the nested loops only if they are flattened."""
    return (True,) if version() < (3, 7) else (True, False)


def lines_matching(lines, pattern):
    return [number for number, line in enumerate(lines) if re.search(pattern, line)]


@pytest.mark.parametrize("flatten", flattened())
@pytest.mark.parametrize("count", [1, 5])
def test_a_consumed_wait_reaches_every_partition_that_loads(compiled, flatten, count):
    texts = compiled(gemm_kernel, 100, TYPES, {"WAIT": "coordinate", "COUNT": count, "FLATTEN": flatten}, ("K",), **OPTIONS)
    partitions = partitions_of(texts["ttgir"])
    loading = {name: lines for name, lines in partitions.items() if lines_matching(lines, "async_tma_copy_global_to_local")}
    assert len(partitions) >= 3 and loading
    for lines in loading.values():
        wait, barrier = lines_matching(lines, "ld.acquire.sys"), lines_matching(lines, r"(ttg|gpu)\.barrier")
        loads = lines_matching(lines, "async_tma_copy_global_to_local")
        assert wait and barrier and wait[0] < barrier[0] < loads[0]
    assert partitions_without_wait(texts["ttgir"]) == []
    assert texts["ptx"].count("ld.acquire.sys") >= len(loading)


@pytest.mark.parametrize("flatten", flattened())
def test_an_unused_wait_does_not_and_is_found(compiled, flatten):
    constants = {"WAIT": "unused", "COUNT": 1, "FLATTEN": flatten}
    if version() < (3, 7):
        with pytest.raises(RuntimeError, match="PassManager"):
            compiled(gemm_kernel, 100, TYPES, constants, ("K",), **OPTIONS)
        return
    texts = compiled(gemm_kernel, 100, TYPES, constants, ("K",), **OPTIONS)
    assert partitions_without_wait(texts["ttgir"]) == ["partition1"]


@pytest.mark.parametrize("flatten", flattened())
def test_the_signal_comes_after_the_tile_in_the_partition_that_stores_it(compiled, flatten):
    texts = compiled(gemm_kernel, 100, TYPES, {"WAIT": "coordinate", "COUNT": 1, "FLATTEN": flatten}, ("K",), **OPTIONS)
    signalling = [lines for lines in partitions_of(texts["ttgir"]).values() if lines_matching(lines, "atomic_rmw")]
    assert len(signalling) == 1, "one partition signals"
    lines = signalling[0]
    store, complete = lines_matching(lines, "async_tma_copy_local_to_global"), lines_matching(lines, "bulk.wait_group 0; mov")
    signal = lines_matching(lines, "atomic_rmw")
    barrier = [number for number in lines_matching(lines, r"(ttg|gpu)\.barrier") if complete[0] < number < signal[0]]
    assert store[0] < complete[0] < barrier[0] < signal[0]


def test_one_thread_of_the_partition_signals(compiled):
    """A test of the thread index against 0 would find nobody in a partition without thread 0; Triton's atomic elects one."""
    text = compiled(gemm_kernel, 100, TYPES, {"WAIT": "coordinate", "COUNT": 1, "FLATTEN": True}, ("K",), **OPTIONS)["ptx"]
    assert re.search(r"@%p\d+ (atom|red)\.global\S*release", text)


def test_a_wait_before_the_loop_orders_every_partition(compiled):
    texts = compiled(wait_before_loop_kernel, 100, TYPES, {"WAIT": "", "COUNT": 1, "FLATTEN": False}, ("K",), **OPTIONS)
    text = texts["ttgir"]
    assert partitions_of(text), "the loop is specialised"
    assert text.index("ld.acquire.sys") < text.index("ttg.warp_specialize(")
    assert partitions_without_wait(text) == []


def test_a_kernel_without_specialisation_has_no_partitions():
    assert partitions_of("module {\n}\n") == {}
    assert partitions_without_wait("module {\n}\n") == []
