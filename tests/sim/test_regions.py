"""Regions of code for single threads: elements of tiles, what a region gives back, and what is refused."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.language import simt_exec_region as region_by_another_name
from triton_dist.language.extra.language_extra import __syncthreads, ld, num_threads, st, tid


@triton_dist.jit
def transpose_kernel(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = tl.load(source + i[:, None] * N + i[None, :])
    turned = tl.zeros((N, N), tile.dtype)
    with dl.simt_exec_region() as (thread, threads):
        for row in range(N):
            for column in range(thread, N, threads):
                value = tile[row, column]
                turned[column, row] = value
    tl.store(target + i[:, None] * N + i[None, :], turned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.float64, torch.bool])
@pytest.mark.parametrize("size, warps", [(8, 1), (64, 4)])
def test_a_transpose_element_by_element(dtype, size, warps):
    generator = torch.Generator().manual_seed(size)
    source = (torch.randn((size, size), generator=generator) * 50).to(dtype)
    target = torch.zeros_like(source)
    transpose_kernel[(1,)](source, target, size, num_warps=warps)
    assert torch.equal(target, source.T)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_transpose_of_fp8(dtype):
    source = torch.randn((16, 16), generator=torch.Generator().manual_seed(1)).to(dtype)
    target = torch.zeros((16, 16), dtype=torch.uint8).view(dtype)
    transpose_kernel[(1,)](source, target, 16)
    assert torch.equal(target.view(torch.uint8), source.view(torch.uint8).T)


@triton_dist.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STEPS: tl.constexpr):
    """A region in the loop over K: read two tiles, update a third."""
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for step in range(STEPS):
        a = tl.load(a_ptr + rows[:, None] * (K * STEPS) + step * K + inner[None, :])
        b = tl.load(b_ptr + (step * K + inner[:, None]) * N + columns[None, :])
        with dl.simt_exec_region() as (thread, threads):
            for i in range(M):
                for j in range(thread, N, threads):
                    value = 0.0
                    for k in range(K):
                        value += a[i, k] * b[k, j]
                    total[i, j] += value
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


def test_a_product_with_a_region_in_its_loop():
    a, b, c = torch.randn(8, 24), torch.randn(24, 16), torch.zeros(8, 16)
    product_kernel[(1,)](a, b, c, 8, 16, 8, 3, num_warps=1)
    torch.testing.assert_close(c, a @ b)


@triton_dist.jit
def results_kernel(out, flag):
    """Names that exist outside keep what the region assigned; the form without names."""
    total = 0
    tile = tl.arange(0, 128)
    with region_by_another_name():
        mine = tile[tid(0)] * 2
        total += mine
        __syncthreads()
        if flag > 0:
            tile[127 - tid(0)] = mine
        else:
            tile[tid(0)] -= 1
    st(out + tid(0), total, "gpu", "relaxed")
    tl.store(out + 128 + tl.arange(0, 128), tile)


@pytest.mark.parametrize("flag", [0, 1])
def test_what_a_region_gives_back(flag):
    out = torch.zeros(256, dtype=torch.int32)
    results_kernel[(1,)](out, flag)
    index = torch.arange(128, dtype=torch.int32)
    assert torch.equal(out[:128], index * 2)
    assert torch.equal(out[128:], (index * 2).flip(0) if flag else index - 1)


@triton_dist.jit
def neighbours_kernel(out, BETWEEN: tl.constexpr, BEHIND: tl.constexpr):
    """Each thread reads what its neighbour stored, and stores again."""
    tile = tl.zeros((128,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[thread] = thread * 10
        if BETWEEN:
            __syncthreads()
        st(out + thread, tile[(thread + 1) % threads], "gpu", "relaxed")
        if BEHIND:
            __syncthreads()
        tile[thread] = 0


def test_threads_exchange_through_a_tile():
    out = torch.zeros(128, dtype=torch.int32)
    neighbours_kernel[(1,)](out, True, True)
    assert out.tolist() == [(index + 1) % 128 * 10 for index in range(128)]


@pytest.mark.parametrize(
    "between, behind, message",
    [
        (False, True, "thread 0 reads an element of a tile that thread 1 stored since the last block barrier"),
        (True, False, "thread 0 stores an element of a tile that thread 127 read since the last block barrier"),
    ],
)
def test_a_missing_barrier_is_named(between, behind, message):
    """The racy twins: in lock step they would come out right, and on a GPU not always."""
    with pytest.raises(errors.SimulationError, match=rf"test_regions.py:\d+: {message}.*put __syncthreads"):
        neighbours_kernel[(1,)](torch.zeros(128, dtype=torch.int32), between, behind)


@triton_dist.jit
def two_stores_kernel(out, SAME: tl.constexpr):
    tile = tl.zeros((4,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        if thread < 2:
            tile[0] = 5
        if SAME:
            __syncthreads()
        if thread == 7:
            tile[0] = 6
    tl.store(out + tl.arange(0, 4), tile)


def test_stores_of_two_threads_need_a_barrier():
    out = torch.zeros(4, dtype=torch.int32)
    two_stores_kernel[(1,)](out, True)
    assert out.tolist() == [6, 0, 0, 0]
    with pytest.raises(errors.SimulationError, match="thread 7 stores an element of a tile that several threads stored"):
        two_stores_kernel[(1,)](out, False)


@triton_dist.jit
def uniform_kernel(out, source):
    """All threads store and read one element: each sees its own, which is the same."""
    tile = tl.zeros((4,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[1] = tl.load(source)
        tile[2] = tile[1] + 1
    tl.store(out + tl.arange(0, 4), tile)


def test_an_element_that_is_the_same_in_all_threads():
    out = torch.zeros(4, dtype=torch.int32)
    uniform_kernel[(1,)](out, torch.tensor([8], dtype=torch.int32))
    assert out.tolist() == [0, 8, 9, 0]


@triton_dist.jit
def hand_over_kernel(out, flag, AT: tl.constexpr):
    """Thread 0 waits, in one branch, for a word that thread ``AT`` sets in the other behind an element."""
    tile = tl.zeros((4,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        if thread == 0:
            while ld(flag, "cta", "acquire") != 1:
                pass
            tile[2] = tile[1] + 2
        else:
            if thread == AT:
                tile[1] = 7
                st(flag, 1, "cta", "release")
    tl.store(out + tl.arange(0, 4), tile)


def test_a_thread_waits_for_what_another_branch_does():
    out = torch.zeros(4, dtype=torch.int32)
    hand_over_kernel[(1,)](out, torch.zeros(1, dtype=torch.int32), 40)
    assert out.tolist() == [0, 7, 9, 0]


def test_a_word_that_nobody_sets_is_a_deadlock():
    with pytest.raises(errors.DeadlockError, match=r"test_regions.py:\d+ spins"):
        hand_over_kernel[(1,)](torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), 500)


@triton_dist.jit
def wait_in_front_kernel(flag):
    """Thread 0 spins for what thread 1 does behind the loop: in lock step nothing would move, so thread 1 goes on."""
    index = tid(0)
    while (index == 0) & (ld(flag, "gpu", "acquire") != 1):
        pass
    if index == 1:
        st(flag, 1, "gpu", "release")


def test_a_wait_for_what_comes_behind_the_loop():
    flag = torch.zeros(1, dtype=torch.int32)
    wait_in_front_kernel[(1,)](flag)
    assert flag.tolist() == [1]


@triton_dist.jit
def helper(value, tile_size: tl.constexpr):
    """A device function with a region of its own."""
    tile = tl.zeros((tile_size,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        for index in range(thread, tile_size, threads):
            tile[index] = value + index
    return tile


@triton.jit
def plain_kernel(out, value):
    """A plain kernel that calls functions with regions; ``dl.extract`` and ``dl.insert`` outside of one."""
    first, second = helper(value, 256), helper(value * 10, 256)
    both = first + second
    third = dl.extract(both, [3])
    both = dl.insert(both, third * 2, (200,))
    tl.store(out + tl.arange(0, 256), both)


def test_a_plain_kernel_calls_a_function_with_a_region():
    out = torch.zeros(256, dtype=torch.int32)
    plain_kernel[(1,)](out, 5)
    expected = [55 + 2 * index for index in range(256)]
    expected[200] = 2 * 61
    assert out.tolist() == expected


@triton_dist.jit
def nested_call_kernel(out):
    """A region calls a function with a region: their tiles lie apart, though the function's has as many bytes."""
    tile = tl.full((256,), 3, tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        inner = helper(1000, 256)
        tile[thread] += 1
    tl.store(out + tl.arange(0, 256), tile + inner)


def test_a_region_calls_a_function_with_a_region():
    out = torch.zeros(256, dtype=torch.int32)
    nested_call_kernel[(1,)](out)
    assert out.tolist() == [1000 + index + (4 if index < 128 else 3) for index in range(256)]


@triton_dist.jit
def extract_kernel(source, out, ROW: tl.constexpr):
    tile = tl.load(source + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :])
    column = tl.load(out).to(tl.int32)
    tl.store(out, dl.extract(tile, [ROW, column]))
    changed = dl.insert(tile, 5, [column, ROW])
    tl.store(out + 1 + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], changed)


@pytest.mark.parametrize("special", [-0.0, float("nan"), float("-inf"), 1.5])
def test_extract_keeps_the_bits(special):
    source = torch.arange(16, dtype=torch.float32).reshape(4, 4)
    source[1, 2] = special
    out = torch.zeros(17)
    out[0] = 2.0
    extract_kernel[(1,)](source, out, 1)
    assert torch.equal(out[:1].view(torch.int32), source[1, 2:3].view(torch.int32))
    expected = source.clone()
    expected[2, 1] = 5
    assert torch.equal(out[1:].reshape(4, 4).nan_to_num(nan=77), expected.nan_to_num(nan=77))


@triton.autotune([triton.Config({"STEP": 1}), triton.Config({"STEP": 2})], key=["count"])
@triton.heuristics({"EXTRA": lambda arguments: 5})
@triton_dist.jit(do_not_specialize=["count"])
def tuned_kernel(out, count, STEP: tl.constexpr, EXTRA: tl.constexpr):
    tile = tl.zeros((64,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        for index in range(thread, count, threads):
            tile[index] = index * EXTRA
    tl.store(out + tl.arange(0, 64), tile)


def test_under_autotune_and_heuristics():
    def run():
        out = torch.zeros(64, dtype=torch.int32)
        tuned_kernel[(1,)](out, 40)
        triton_dist.synchronize()
        return out.tolist()

    assert triton_dist.simulate(run, 1) == [[index * 5 if index < 40 else 0 for index in range(64)]]


@triton_dist.jit
def large_kernel(out):
    first = tl.zeros((128, 128), tl.float32)
    second = tl.zeros((64, 128), tl.float32)
    with dl.simt_exec_region() as (thread, threads):
        first[thread, thread] = 1.0
        second[thread % 64, thread] = 2.0
    tl.store(out, tl.sum(first) + tl.sum(second))


def test_tiles_beyond_48_kib():
    out = torch.zeros(1)
    large_kernel[(1,)](out)
    assert out.item() == 128 + 256


@triton.jit
def large_from_plain_kernel(out):
    large_kernel(out)


def outside_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[thread] = 1
    tl.store(out + tl.arange(0, 8), tile)


outside_kernel = triton_dist.jit(outside_kernel)


@triton_dist.jit
def outside_read_kernel(out):
    tile = tl.zeros((8, 8), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        if thread < 8:
            st(out, tile[thread, thread - 1])


@pytest.mark.parametrize(
    "kernel, message",
    [(outside_kernel, "thread 8 takes .* index 8 in dimension 0"), (outside_read_kernel, "thread 0 .* index -1 in dimension 1")],
)
def test_an_index_outside_the_tile_is_named(kernel, message):
    with pytest.raises(errors.OutOfBoundsError, match=message) as caught:
        kernel[(1,)](torch.zeros(8, dtype=torch.int32))
    assert "test_regions.py:" in str(caught.value)


@triton_dist.jit
def varying_extract_kernel(out):
    tile = tl.arange(0, 8)
    st(out, dl.extract(tile, [tid(0) % 8]), "gpu", "relaxed")


@triton_dist.jit
def extract_at_kernel(out, row, column):
    tile = tl.arange(0, 32).reshape((8, 4))
    tl.store(out, dl.extract(tile, [row, column]))


@triton_dist.jit
def insert_at_kernel(out, row, column):
    tile = dl.insert(tl.arange(0, 32).reshape((8, 4)), 99, [row, column])
    tl.store(out, tl.sum(tl.sum(tile, 0), 0))


@pytest.mark.parametrize("kernel", [extract_at_kernel, insert_at_kernel])
@pytest.mark.parametrize(("row", "column", "wrong"), [(7, 3, ""), (8, 3, "8 in dimension 0"), (-1, 0, "-1 in"), (2, 4, "4 in dimension 1")])
def test_an_index_that_comes_at_run_time(kernel, row, column, wrong):
    out = torch.zeros(1, dtype=torch.int32)
    if wrong:
        with pytest.raises(errors.OutOfBoundsError, match=f"index {wrong}"):
            kernel[(1,)](out, row, column)
    else:
        kernel[(1,)](out, row, column)
        assert out.item() == (31 if kernel is extract_at_kernel else 31 * 16 - 31 + 99)


def test_extract_outside_a_region_takes_no_varying_index():
    with pytest.raises(errors.UnsupportedOperationError, match="varies from thread to thread"):
        varying_extract_kernel[(1,)](torch.zeros(8, dtype=torch.int32))


@triton_dist.jit
def region_in_branch_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    if tid(0) < 32:
        with dl.simt_exec_region() as (thread, threads):
            tile[0] = 1
    tl.store(out + tl.arange(0, 8), tile)


def test_a_region_that_only_some_threads_reach_is_named():
    with pytest.raises((errors.SimulationError, errors.UnsupportedOperationError), match="only some threads|reached by 32 of 128"):
        region_in_branch_kernel[(1,)](torch.zeros(8, dtype=torch.int32))


@triton_dist.jit
def tile_op_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[thread % 8] = 1
        tl.store(out + tl.arange(0, 8), tile)


@triton_dist.jit
def whole_tile_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[thread % 8] = 1
        other = tile + 1
    tl.store(out + tl.arange(0, 8), other)


@triton_dist.jit
def tile_of_the_region_kernel(out):
    with dl.simt_exec_region() as (thread, threads):
        tile = tl.zeros((8,), tl.int32)
        st(out, tile[thread % 8])


@triton_dist.jit
def store_outside_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    tile[3] = 1
    tl.store(out + tl.arange(0, 8), tile)


@triton_dist.jit
def wrong_count_kernel(out):
    tile = tl.zeros((8, 8), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[3] = 1


@triton_dist.jit
def constant_outside_kernel(out):
    tile = tl.zeros((8, 8), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[3, 8] = 1


@triton_dist.jit
def float_index_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[1.5] = 1


@triton_dist.jit
def tile_as_element_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[1] = tl.arange(0, 8)


@triton_dist.jit
def taking_a_tile(tile):
    return tile


@triton_dist.jit
def tile_as_argument_kernel(out):
    tile = tl.zeros((8,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[1] = 2
        taking_a_tile(tile)


@triton_dist.jit
def scalar_store_kernel(out):
    value = tid(0)
    value[1] = 2


@triton.jit
def plain_region_kernel(out):
    with dl.simt_exec_region():
        st(out, 1)


@pytest.mark.parametrize(
    "kernel, message",
    [
        (whole_tile_kernel, "only its elements can be used"),
        (tile_op_kernel, "only its elements can be used|tile of int32 in a simt region"),
        (tile_of_the_region_kernel, "made inside the simt region"),
        (store_outside_kernel, "inside simt_exec_region, if the tile was made before"),
        (wrong_count_kernel, "1 indices for a tile of 2 dimensions"),
        (constant_outside_kernel, "index 8 is outside dimension 1, which has 8 elements"),
        (float_index_kernel, "index 0 is 1.5 .*allowed: an integer scalar"),
        (tile_as_element_kernel, "the new element is .*allowed: a scalar that converts to int32"),
        (tile_as_argument_kernel, "can't be passed to a function"),
        (scalar_store_kernel, "subscripts of .* can't be assigned"),
        (plain_region_kernel, "decorated by triton_dist.jit"),
        (large_from_plain_kernel, "need a kernel that is decorated by triton_dist.jit itself"),
    ],
)
def test_what_is_refused_names_the_reason_and_the_line(kernel, message):
    with pytest.raises(CompilationError) as caught:
        kernel[(1,)](torch.zeros(8, dtype=torch.int32))
    text, error = "", caught.value
    while error is not None:
        text, error = f"{text}\n{error}", error.__cause__
    assert re.search(message, text), text


def test_num_threads_is_a_constant_outside_of_a_region():
    @triton_dist.jit
    def kernel(out):
        size: tl.constexpr = num_threads()
        tl.store(out + tl.arange(0, size), tl.full((size,), size, tl.int32))

    out = torch.zeros(64, dtype=torch.int32)
    kernel[(1,)](out, num_warps=2)
    assert out.tolist() == [64] * 64
