"""What must stay in order around a wait and a notify, in IR, PTX and machine code; each check has a twin that fails it."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from compile_targets import NVIDIA

import triton_dist.language as dl

TYPES = {"data": "*fp32", "words": "*i32", "out": "*fp32", "n": "i32"}
TILE = {"TILE": 128}

WORDS_OF_THE_BOARD = 3
"""Loads at system scope of a wait that looks at the wait board: abort, bound, request."""


@triton.jit
def pure_wait(words):
    """How a wait must not be written: assembly that the compiler may merge, move and delete."""
    return tl.inline_asm_elementwise(
        "{ .reg .pred %again; POLL${:uid}: ld.acquire.sys.global.b32 $0, [$1]; setp.ne.b32 %again, $0, 1; @%again bra POLL${:uid}; }",
        "=r,l",
        [words],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def impure_wait(words):
    """How a wait must not be written either: impure, but with no block barrier after it."""
    return tl.inline_asm_elementwise(
        "{ .reg .pred %again; POLL${:uid}: ld.acquire.sys.global.b32 $0, [$1]; setp.ne.b32 %again, $0, 1; @%again bra POLL${:uid}; }",
        "=r,l",
        [words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def load_wait_load_kernel(data, words, out, n, TILE: tl.constexpr, WAIT: tl.constexpr):
    lanes = tl.arange(0, TILE)
    before = tl.load(data + lanes)
    if WAIT == "ours":
        dl.wait(words, 1, "sys", "acquire")
    elif WAIT == "impure":
        impure_wait(words)
    after = tl.load(data + lanes)
    tl.store(out + lanes, before + 2 * after)


@triton.jit
def two_waits_kernel(data, words, out, n, TILE: tl.constexpr, WAIT: tl.constexpr):
    if WAIT == "ours":
        dl.wait(words, 1, "sys", "acquire")
        dl.wait(words, 1, "sys", "acquire")
    else:
        token = pure_wait(words) + pure_wait(words)
        tl.store(words + 1, token)


@triton.jit
def loop_kernel(data, words, out, n, TILE: tl.constexpr, WAIT: tl.constexpr):
    lanes = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for index in range(n):
        token = dl.wait(words, 1, "sys", "acquire") if WAIT == "ours" else pure_wait(words)
        total += tl.load(data + index * TILE + lanes + token)
    tl.store(out + lanes, total)


@triton.jit
def unused_kernel(data, words, out, n, TILE: tl.constexpr, WAIT: tl.constexpr):
    if WAIT == "ours":
        dl.wait(words, n, "sys", "acquire")
    else:
        pure_wait(words)


@triton.jit
def descriptor_kernel(data, words, out, n, TILE: tl.constexpr, WAIT: tl.constexpr):
    source = tl.make_tensor_descriptor(data, [n, TILE], [TILE, 1], [8, TILE])
    before = source.load([0, 0])
    if WAIT == "ours":
        dl.wait(words, 1, "sys", "acquire")
    elif WAIT == "impure":
        impure_wait(words)
    after = source.load([0, 0])
    target = tl.make_tensor_descriptor(out, [n, TILE], [TILE, 1], [8, TILE])
    target.store([0, 0], before + 2 * after)


@triton.jit
def store_wait_load_kernel(data, words, out, n, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    tl.store(data + lanes, 1.0)
    dl.wait(words, 1, "sys", "acquire")
    tl.store(out + lanes, tl.load(data + lanes))


def is_merged_by_this_version():
    """Triton 3.9 merges loads across impure assembly, 3.6 and 3.7 do not."""
    return tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)


def ptx_of(compiled, kernel, arch, wait):
    return compiled(kernel, arch, TYPES, {**TILE, "WAIT": wait})["ptx"]


@pytest.mark.parametrize("arch", NVIDIA)
def test_loads_are_not_merged_across_a_wait(compiled, arch):
    text = ptx_of(compiled, load_wait_load_kernel, arch, "ours")
    loads = [match.start() for match in re.finditer(r"ld\.global\.b32", text)]
    assert len(loads) == 2
    assert loads[0] < text.index("bra POLL") < text.index("bar.sync") < loads[1]


def test_loads_are_merged_without_a_wait(compiled):
    assert ptx_of(compiled, load_wait_load_kernel, 90, "none").count("ld.global.b32") == 1


def test_impure_assembly_alone_does_not_keep_loads_apart_on_3_9(compiled):
    loads = ptx_of(compiled, load_wait_load_kernel, 90, "impure").count("ld.global.b32")
    assert loads == (1 if is_merged_by_this_version() else 2)


@pytest.mark.parametrize("arch", (90, 100))
def test_descriptor_loads_are_not_merged_across_a_wait(compiled, arch):
    text = ptx_of(compiled, descriptor_kernel, arch, "ours")
    loads = [match.start() for match in re.finditer(r"cp\.async\.bulk\.tensor\.2d\.shared\S*", text)]
    assert len(loads) == 2
    assert loads[0] < text.index("bra POLL") < text.index("fence.proxy.async;") < loads[1]


@pytest.mark.parametrize("arch", NVIDIA)
def test_a_load_after_a_store_and_a_wait_reads_memory(compiled, arch):
    text = compiled(store_wait_load_kernel, arch, TYPES, TILE)["ptx"]
    assert text.index("st.global.b32") < text.index("bra POLL") < text.index("ld.global.b32")


@pytest.mark.parametrize("arch", NVIDIA)
def test_two_waits_stay_two(compiled, arch):
    assert ptx_of(compiled, two_waits_kernel, arch, "ours").count("ld.acquire.sys") == 2
    assert ptx_of(compiled, two_waits_kernel, arch, "pure").count("ld.acquire.sys") == 1


@pytest.mark.parametrize("arch", NVIDIA)
def test_a_wait_stays_in_its_loop(compiled, arch):
    """A pure one is hoisted, and would then wait even if the loop runs no time."""

    def wait_is_in_loop(texts):
        inside = False
        for line in texts["ttgir"].splitlines():
            inside = inside or "scf.for" in line
            if "ld.acquire" in line:
                return inside
        return False

    assert wait_is_in_loop(compiled(loop_kernel, arch, TYPES, {**TILE, "WAIT": "ours"}))
    assert not wait_is_in_loop(compiled(loop_kernel, arch, TYPES, {**TILE, "WAIT": "pure"}))


@pytest.mark.parametrize("arch", NVIDIA)
def test_a_wait_holds_with_its_token_unused(compiled, arch):
    assert "ld.acquire.sys" in ptx_of(compiled, unused_kernel, arch, "ours")
    assert "ld.acquire.sys" not in ptx_of(compiled, unused_kernel, arch, "pure")


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("kernel", [unused_kernel, two_waits_kernel, load_wait_load_kernel, loop_kernel])
def test_the_acquire_load_survives_the_assembler(compiled, arch, kernel):
    machine_code = compiled(kernel, arch, TYPES, {**TILE, "WAIT": "ours"})["sass"]
    strong = [line for line in machine_code.splitlines() if re.search(r"\bLD\S*STRONG\.SYS", line)]
    waits = 2 if kernel is two_waits_kernel else 1
    assert len(strong) == waits * (1 + WORDS_OF_THE_BOARD), "each wait's own load, and what it reads after many failures"
    assert "BRA" in machine_code


@triton.jit
def tma_store_notify_kernel(words, out, n, TILE: tl.constexpr, NOTIFY: tl.constexpr):
    target = tl.make_tensor_descriptor(out, [n, TILE], [TILE, 1], [64, TILE])
    for tile in range(tl.program_id(0), n // 64, tl.num_programs(0)):
        value = tl.full((64, TILE), tile, tl.float32)
        target.store([tile * 64, 0], value)
        if NOTIFY == "ours":
            dl.notify(words + tile, 1, comm_scope="intra_node")
        elif NOTIFY == "plain":
            tl.debug_barrier()
            tl.atomic_xchg(words + tile, 1, sem="release", scope="sys")


def last_before(text, pattern, position):
    """Position of the last match of the pattern before a position, -1 if there is none."""
    found = [match.start() for match in re.finditer(pattern, text) if match.start() < position]
    return found[-1] if found else -1


def completes_before_the_signal(text):
    """Whether the signal comes after a full wait for bulk stores and a barrier, and both after the store."""
    signal = re.search(r"(atom|red)\.global\S*release", text).start()
    store = last_before(text, r"cp\.async\.bulk\.tensor\S*\.global\.shared", signal)
    complete = last_before(text, r"cp\.async\.bulk\.wait_group\s+0", signal)
    barrier = last_before(text, r"bar\.sync", signal)
    return -1 < store < complete < barrier < signal


@pytest.mark.parametrize("arch", (90, 100))
def test_tma_stores_complete_before_a_notify(compiled, arch):
    text = compiled(tma_store_notify_kernel, arch, {"words": "*i32", "out": "*fp32", "n": "i32"}, {**TILE, "NOTIFY": "ours"})["ptx"]
    assert completes_before_the_signal(text)


@pytest.mark.parametrize("arch", (90, 100))
def test_tma_stores_do_not_complete_before_a_plain_release(compiled, arch):
    text = compiled(tma_store_notify_kernel, arch, {"words": "*i32", "out": "*fp32", "n": "i32"}, {**TILE, "NOTIFY": "plain"})["ptx"]
    if is_merged_by_this_version():
        assert "cp.async.bulk.wait_group" in text
    else:
        assert not completes_before_the_signal(text)
