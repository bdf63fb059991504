"""Waits and signals in loops that Triton deals out to partitions of warps (Blackwell, ``warp_specialize=True``).

Found on 3.6.0, 3.7.1 and 3.9.0: a wait goes to every partition that uses its token, so consuming the token by what the
loads are addressed with is what orders them. A wait with its token unused stays in the default partition, or does not
compile; ``partitions_without_wait`` finds the first case. A plain atomic goes where its operands are used, or everywhere.
"""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.primitives.warp_specialization import partitions_of, partitions_without_wait, signals_never_given

TYPES = {
    "a": "tensordesc<fp16[128,64]>",
    "b": "tensordesc<fp16[128,64]>",
    "c": "tensordesc<fp16[128,128]>",
    "out": "*fp16",
    "words": "*i32",
    "m_tiles": "i32",
    "tiles": "i32",
    "K": "i32",
}
ALIGNED = ("out", "K")
OPTIONS = {"num_warps": 4, "num_stages": 3}


@triton.jit
def gemm_kernel(
    a,
    b,
    c,
    out,
    words,
    m_tiles,
    tiles,
    K,
    WAIT: tl.constexpr,
    COUNT: tl.constexpr,
    SIGNAL: tl.constexpr,
    STORE: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True, flatten=FLATTEN):
        row, column = tile % m_tiles, tile // m_tiles
        a_row = row
        if WAIT == "coordinate":
            a_row = dl.consume_token(row, dl.wait(words + row, COUNT, "sys", "acquire"))
        elif WAIT == "row":
            row = dl.consume_token(row, dl.wait(words + row, COUNT, "sys", "acquire"))
            a_row = row
        elif WAIT == "unused":
            dl.wait(words + row, COUNT, "sys", "acquire")
        total = tl.zeros((128, 128), tl.float32)
        for k in range(tl.cdiv(K, 64)):
            total = tl.dot(a.load([a_row * 128, k * 64]), b.load([column * 128, k * 64]).T, total)
        if STORE == "descriptor":
            c.store([row * 128, column * 128], total.to(tl.float16))
        else:
            rows, columns = row * 128 + tl.arange(0, 128), column * 128 + tl.arange(0, 128)
            tl.store(out + rows[:, None] * 4096 + columns[None, :], total.to(tl.float16))
        if SIGNAL == "same word":
            dl.notify(words + row, 1, sig_op="add", comm_scope="intra_node")
        elif SIGNAL == "other word":
            dl.notify(words + 1000 + tile, 1, comm_scope="intra_node")
        elif SIGNAL == "one word":
            dl.notify(words + 1000, 1, sig_op="add", comm_scope="gpu")
        elif SIGNAL == "plain atomic":
            tl.debug_barrier()
            tl.atomic_add(words + 1000, 1, sem="release", scope="gpu")


@triton.jit
def wait_before_loop_kernel(a, b, c, out, words, m_tiles, tiles, K):
    row, column = tl.program_id(0), tl.program_id(1)
    dl.wait(words + row, 1, "sys", "acquire")
    total = tl.zeros((128, 128), tl.float32)
    for k in tl.range(tl.cdiv(K, 64), warp_specialize=True):
        total = tl.dot(a.load([row * 128, k * 64]), b.load([column * 128, k * 64]).T, total)
    c.store([row * 128, column * 128], total.to(tl.float16))


def version():
    return tuple(map(int, triton.__version__.split(".")[:2]))


FLATTEN = (True,) if version() < (3, 7) else (True, False)
"""Triton 3.6 specialises nested loops only if they are flattened."""


@pytest.fixture(scope="session")
def gemm(compiled):
    """The stages of the GEMM, compiled for Blackwell."""

    def compile_gemm(wait="none", count=1, signal="none", store="descriptor", flatten=True):
        constants = {"WAIT": wait, "COUNT": count, "SIGNAL": signal, "STORE": store, "FLATTEN": flatten}
        return compiled(gemm_kernel, 100, TYPES, constants, ALIGNED, **OPTIONS)

    return compile_gemm


def lines_matching(lines, pattern):
    return [number for number, line in enumerate(lines) if re.search(pattern, line)]


TMA_LOAD = "async_tma_copy_global_to_local"
TMA_STORE = "async_tma_copy_local_to_global"
BARRIER = r"(ttg|gpu)\.barrier"


@pytest.mark.parametrize("flatten", FLATTEN)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("wait, signal", [("coordinate", "none"), ("coordinate", "other word"), ("row", "none"), ("row", "same word")])
def test_a_consumed_wait_reaches_every_partition_that_loads(gemm, flatten, count, wait, signal):
    texts = gemm(wait, count, signal, flatten=flatten)
    partitions = partitions_of(texts["ttgir"])
    loading = [lines for lines in partitions.values() if lines_matching(lines, TMA_LOAD)]
    assert len(partitions) == 3 and loading
    for lines in loading:
        wait, barrier, loads = (lines_matching(lines, pattern) for pattern in ("ld.acquire.sys", BARRIER, TMA_LOAD))
        assert wait[0] < barrier[0] < loads[0]
    assert partitions_without_wait(texts["ttgir"]) == []
    assert texts["ptx"].count("ld.acquire.sys") >= len(loading)


@pytest.mark.parametrize("flatten", FLATTEN)
def test_an_unused_wait_does_not_and_is_found(gemm, flatten):
    if version() < (3, 7):
        with pytest.raises(RuntimeError, match="PassManager"):
            gemm("unused", flatten=flatten)
    else:
        assert partitions_without_wait(gemm("unused", flatten=flatten)["ttgir"]) == ["partition1"]


SIGNALS = [(wait, signal) for wait in ("none", "coordinate", "row") for signal in ("same word", "other word", "one word")]
SIGNALS.remove(("coordinate", "same word"))


@pytest.mark.parametrize("flatten", FLATTEN)
@pytest.mark.parametrize("wait, signal", SIGNALS)
@pytest.mark.parametrize("store, instruction", [("descriptor", TMA_STORE), ("pointer", r"tt\.store")])
def test_the_partition_that_stores_the_tile_signals_once_after_it(gemm, flatten, wait, signal, store, instruction):
    text = gemm(wait, 1, signal, store, flatten)["ttgir"]
    partitions = partitions_of(text)
    lines = partitions["default"]
    stores, complete = lines_matching(lines, instruction), lines_matching(lines, "bulk.wait_group 0; mov")
    signals = lines_matching(lines, "atomic_rmw")
    barriers = [number for number in lines_matching(lines, BARRIER) if complete[0] < number < signals[0]]
    assert stores[0] < complete[0] < barriers[0] < signals[0]
    assert len(signals) == 1
    assert signals_never_given(text) == []


def masks_of_signals(text):
    """For each release signal the operation that computes its mask, or "" for a constant."""
    masks = [re.search(r"atomic_rmw [^:]*?(%\w+)(?: \{[^}]*\})? :", line).group(1) for line in text.splitlines() if "atomic_rmw" in line]
    definitions = {match.group(1): match.group(2) for match in re.finditer(r"^\s*(%\w+) = (arith\.cmpi slt, .*)$", text, re.MULTILINE)}
    return [definitions.get(mask, "") for mask in masks]


def test_only_the_warps_of_the_default_partition_signal(gemm):
    text = gemm("none", 1, "one word", flatten=FLATTEN[-1])["ttgir"]
    threads = re.findall(r"(%\w+) = tt\.elementwise_inline_asm \"mov\.u32 \$0, %tid\.x;\"", text)
    masks = masks_of_signals(text)
    assert masks and all(any(f"slt, {thread}, " in mask for thread in threads) for mask in masks)
    assert masks_of_signals(gemm("none", 1, "plain atomic", flatten=FLATTEN[-1])["ttgir"])[0] == ""


@pytest.mark.parametrize("flatten", FLATTEN)
def test_a_plain_atomic_may_signal_from_every_partition(gemm, flatten):
    partitions = partitions_of(gemm(signal="plain atomic", flatten=flatten)["ttgir"])
    signalling = [name for name, lines in partitions.items() if lines_matching(lines, "atomic_rmw")]
    assert signalling == (["default"] if flatten else ["default", "partition0", "partition1"])


@pytest.mark.parametrize("flatten", FLATTEN)
def test_a_signal_on_the_word_that_only_the_loads_waited_for_is_found(gemm, flatten):
    """Its pointer was computed for the loading partition."""
    if version() < (3, 7):
        assert signals_never_given(gemm("coordinate", 1, "same word", flatten=flatten)["ttgir"]) == []
    elif version() == (3, 7) and flatten:
        with pytest.raises(RuntimeError, match="PassManager"):
            gemm("coordinate", 1, "same word", flatten=flatten)
    else:
        assert signals_never_given(gemm("coordinate", 1, "same word", flatten=flatten)["ttgir"]) == ["partition1"]


def test_one_thread_of_the_partition_signals(gemm):
    """A test of the thread index against 0 would find nobody in a partition without thread 0; Triton's atomic elects one."""
    assert re.search(r"@%p\d+ (atom|red)\.global\S*release", gemm("row", 1, "same word")["ptx"])


def test_a_wait_before_the_loop_orders_every_partition(compiled):
    text = compiled(wait_before_loop_kernel, 100, TYPES, {}, ALIGNED, **OPTIONS)["ttgir"]
    assert partitions_of(text), "the loop is specialised"
    assert text.index("ld.acquire.sys") < text.index("ttg.warp_specialize(")
    assert partitions_without_wait(text) == []


def test_a_kernel_without_specialisation_has_nothing_to_find():
    assert partitions_of("module {\n}\n") == {}
    assert partitions_without_wait("module {\n}\n") == []
    assert signals_never_given("module {\n}\n") == []
