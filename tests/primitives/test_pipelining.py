"""A wait once per output tile leaves the K loop as it is without one."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import triton
import triton.language as tl

import triton_dist.language as dl

POINTER_TYPES = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "words": "*i32", "m_tiles": "i32", "tiles": "i32", "K": "i32"}
DESCRIPTOR_TYPES = {
    "a": "tensordesc<fp16[128,64]>",
    "b": "tensordesc<fp16[64,128]>",
    "c": "tensordesc<fp16[128,128]>",
    "words": "*i32",
    "m_tiles": "i32",
    "tiles": "i32",
    "K": "i32",
}
ALIGNED = ("a", "b", "c", "words", "K")


@triton.jit
def pointer_gemm_kernel(a, b, c, words, m_tiles, tiles, K, WAIT: tl.constexpr, NOTIFY: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=False):
        row, column = tile % m_tiles, tile // m_tiles
        a_tile = a
        if WAIT == "unused":
            dl.wait(words + row, 1, "sys", "acquire")
        elif WAIT == "many":
            dl.wait(words, row, "sys", "acquire")
        elif WAIT == "consumed":
            a_tile = dl.consume_token(a, dl.wait(words + row, 1, "sys", "acquire"))
        rows = row * 128 + tl.arange(0, 128)
        columns = column * 128 + tl.arange(0, 128)
        inner = tl.arange(0, 64)
        total = tl.zeros((128, 128), tl.float32)
        for k in range(0, K, 64):
            left = tl.load(a_tile + rows[:, None] * K + (k + inner)[None, :])
            right = tl.load(b + columns[None, :] * K + (k + inner)[:, None])
            total = tl.dot(left, right, total)
        tl.store(c + rows[:, None] * (tiles // m_tiles * 128) + columns[None, :], total.to(tl.float16))
        if NOTIFY:
            dl.notify(words + row, 1, sig_op="add", comm_scope="intra_node")


@triton.jit
def descriptor_gemm_kernel(a, b, c, words, m_tiles, tiles, K, WAIT: tl.constexpr, NOTIFY: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=False):
        row, column = tile % m_tiles, tile // m_tiles
        if WAIT == "unused":
            dl.wait(words + row, 1, "sys", "acquire")
        elif WAIT == "many":
            dl.wait(words, row, "sys", "acquire")
        elif WAIT == "consumed":
            row = dl.consume_token(row, dl.wait(words + row, 1, "sys", "acquire"))
        total = tl.zeros((128, 128), tl.float32)
        for k in range(0, K, 64):
            total = tl.dot(a.load([row * 128, k]), b.load([k, column * 128]), total)
        c.store([row * 128, column * 128], total.to(tl.float16))
        if NOTIFY:
            dl.notify(words + row, 1, sig_op="add", comm_scope="intra_node")


INSTRUCTIONS = re.compile(
    r"\b(cp\.async\.c[ag]\S*, \S*(?= )|cp\.async\.wait_group\s+\S+|cp\.async\.bulk\.tensor\.\S+"
    r"|wgmma\.mma_async\S*|wgmma\.wait_group\S*\s+\S+|mma\.sync\S*|tcgen05\.mma\S*|ldmatrix\S*|mbarrier\.\S+"
    r"|st\.global(?:\.v\d)?\.b\d+|ld\.global(?:\.v\d)?\.b\d+)"
)


def instruction_counts(text):
    """Copies, matrix instructions, their waits and vector widths; block barriers aside, which a wait adds."""
    copies = Counter(re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (0x\w+|\d+)", text))
    return Counter(match.split()[0] for match in INSTRUCTIONS.findall(text)) + Counter({f"copy of {size}": n for size, n in copies.items()})


@pytest.mark.parametrize("arch", (80, 90, 100))
@pytest.mark.parametrize("wait", ["unused", "consumed", "many"])
def test_the_k_loop_by_pointers_is_unchanged(compiled, arch, wait):
    kernel, options = pointer_gemm_kernel, {"num_warps": 4, "num_stages": 3}
    with_wait = compiled(kernel, arch, POINTER_TYPES, {"WAIT": wait, "NOTIFY": False}, ALIGNED, **options)["ptx"]
    without = compiled(kernel, arch, POINTER_TYPES, {"WAIT": "none", "NOTIFY": False}, ALIGNED, **options)["ptx"]
    assert "ld.acquire.sys" in with_wait
    counts = instruction_counts(without)
    assert any(name.startswith("copy of") for name in counts), "the loop is pipelined by asynchronous copies"
    assert instruction_counts(with_wait) == counts


@pytest.mark.parametrize("arch", (90, 100))
@pytest.mark.parametrize("wait", ["unused", "consumed", "many"])
def test_the_k_loop_by_descriptors_is_unchanged(compiled, arch, wait):
    kernel, options = descriptor_gemm_kernel, {"num_warps": 4, "num_stages": 3}
    with_wait = compiled(kernel, arch, DESCRIPTOR_TYPES, {"WAIT": wait, "NOTIFY": False}, ALIGNED[3:], **options)["ptx"]
    without = compiled(kernel, arch, DESCRIPTOR_TYPES, {"WAIT": "none", "NOTIFY": False}, ALIGNED[3:], **options)["ptx"]
    counts = instruction_counts(without)
    assert any(name.startswith("cp.async.bulk.tensor") for name in counts)
    assert any(name.startswith(("wgmma.mma_async", "tcgen05.mma")) for name in counts)
    assert instruction_counts(with_wait) == counts


@pytest.mark.parametrize("arch", (90, 100))
def test_the_tile_that_a_notify_announces_is_stored_before_it(compiled, arch):
    options = {"num_warps": 4, "num_stages": 3}
    text = compiled(descriptor_gemm_kernel, arch, DESCRIPTOR_TYPES, {"WAIT": "consumed", "NOTIFY": True}, ALIGNED[3:], **options)["ptx"]
    store = text.index("cp.async.bulk.tensor.2d.global")
    complete = text.index("cp.async.bulk.wait_group 0; mov", store)
    barrier = text.index("bar.sync", complete)
    assert store < complete < barrier < re.compile(r"(atom|red)\.global").search(text, barrier).start()


@triton.jit
def wait_in_k_loop_kernel(a, b, c, words, m_tiles, tiles, K, WAIT: tl.constexpr, NOTIFY: tl.constexpr):
    """Where a wait must not stand."""
    rows = tl.arange(0, 128)
    inner = tl.arange(0, 64)
    total = tl.zeros((128, 128), tl.float32)
    for k in range(0, K, 64):
        if WAIT == "unused":
            dl.wait(words + k, 1, "sys", "acquire")
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + rows[None, :] * K + (k + inner)[:, None])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * 128 + rows[None, :], total.to(tl.float16))


@pytest.mark.parametrize("arch", (80, 90))
def test_the_check_sees_a_loop_that_a_wait_changes(compiled, arch):
    """A wait in the K loop itself takes the loop's pipelining away."""
    kernel, options = wait_in_k_loop_kernel, {"num_warps": 4, "num_stages": 3}
    with_wait = compiled(kernel, arch, POINTER_TYPES, {"WAIT": "unused", "NOTIFY": False}, ALIGNED, **options)["ptx"]
    without = compiled(kernel, arch, POINTER_TYPES, {"WAIT": "none", "NOTIFY": False}, ALIGNED, **options)["ptx"]
    assert instruction_counts(with_wait) != instruction_counts(without)
