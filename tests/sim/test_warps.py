"""What the threads of a warp do together, further atomics, and the short forms of Triton-distributed."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist import errors
from triton_dist.language.extra.cuda.language_extra import (
    __ballot_sync,
    __fence,
    __shfl_down_sync_i32,
    __shfl_sync_i32,
    __shfl_up_sync_i32,
    __shfl_xor_sync_i32,
    __syncwarp,
    all_sync,
    any_sync,
    arrive_inc,
    atomic_add,
    atomic_add_per_warp,
    atomic_and,
    atomic_exch,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xor,
    elect_sync,
    fence,
    globaltimer,
    globaltimer_hi,
    globaltimer_lo,
    laneid,
    ld,
    ld_acquire,
    ld_b32,
    membar,
    ntid,
    red_release,
    shfl_sync,
    smid,
    st,
    st_b32,
    tid,
    wait_eq,
    warp_id,
)


@triton.jit
def places_kernel(out):
    st(out + tid(0), (tid(0) * ntid(0) + laneid()) * 10 + warp_id() + ntid(1))


def test_indices():
    out = torch.zeros(64, dtype=torch.int32)
    places_kernel[(1,)](out, num_warps=2)
    assert out.tolist() == [(index * 64 + index % 32) * 10 + index // 32 + 1 for index in range(64)]


@triton.jit
def shuffles_kernel(x, out, amount):
    value = ld(x + tid(0))
    st(out + tid(0), __shfl_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 64 + tid(0), __shfl_up_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 128 + tid(0), __shfl_down_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 192 + tid(0), __shfl_xor_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 256 + tid(0), __shfl_sync_i32(0xFFFFFFFF, value, 31 - laneid()))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("amount", [1, 5])
def test_shuffles(dtype, amount):
    x, out = torch.arange(64).to(dtype), torch.zeros(320, dtype=dtype)
    shuffles_kernel[(1,)](x, out, amount, num_warps=2)
    lane, first = torch.arange(64) % 32, torch.arange(64) // 32 * 32
    expected = [
        first + amount,
        first + torch.where(lane < amount, lane, lane - amount),
        first + torch.where(lane + amount > 31, lane, lane + amount),
        first + (lane ^ amount),
        first + 31 - lane,
    ]
    assert torch.equal(out, torch.cat([x[source] for source in expected]))


@triton_dist.jit
def prefix_sum_kernel(x, out):
    value, step = ld(x + tid(0)), 1
    while step < 32:
        below = __shfl_up_sync_i32(0xFFFFFFFF, value, step)
        if laneid() >= step:
            value += below
        step = step * 2
    atomic_add(out + tid(0), value, "gpu", "relaxed")


def test_a_prefix_sum_of_each_warp():
    x = torch.randint(0, 255, (256,), dtype=torch.int32, generator=torch.Generator().manual_seed(3))
    out = torch.zeros_like(x)
    prefix_sum_kernel[(1,)](x, out, num_warps=8)
    assert torch.equal(out, x.reshape(-1, 32).cumsum(1, dtype=torch.int32).reshape(-1))


@triton.jit
def votes_kernel(x, out):
    value = ld(x + tid(0))
    st(out + tid(0), __ballot_sync(0xFFFFFFFF, value < 40))
    st(out + 64 + tid(0), any_sync(0xFFFFFFFF, value == 40).to(tl.int32) + 2 * all_sync(0xFFFFFFFF, value >= 32).to(tl.int32))
    if elect_sync():
        atomic_add(out + 128, laneid() + 1)
    if laneid() >= 8:
        st(out + 130 + tid(0), __ballot_sync(0xFFFFFF00, value))
        if elect_sync(0xFFFFFF00):
            atomic_add(out + 129, laneid())
        __syncwarp(0xFFFFFF00)
    __syncwarp()


def test_votes():
    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(194, dtype=torch.int32)
    votes_kernel[(1,)](x, out, num_warps=2)
    assert out[:64].tolist() == [-1] * 32 + [0xFF] * 32
    assert out[64:128].tolist() == [0] * 32 + [3] * 32
    assert out[128:130].tolist() == [2, 16]
    assert out[130:].tolist() == [0 if index % 32 < 8 else -256 for index in range(64)]


@triton.jit
def atomics_kernel(words, olds, values):
    value = ld(values + tid(0))
    st(olds + tid(0), atomic_exch(words, value, "sys", "acq_rel"))
    atomic_min(words + 1, value)
    atomic_max(words + 2, value, sem="release")
    atomic_and(words + 3, value, "cta")
    atomic_or(words + 4, value)
    atomic_xor(words + 5, value)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint64])
def test_atomics(dtype):
    generator = torch.Generator().manual_seed(5)
    raw = torch.randint(-(2**31), 2**31 - 1, (128,), generator=generator)
    values = raw.to(torch.int32).view(dtype) if dtype.itemsize == 4 else (raw * 2**31).view(dtype)
    words = torch.tensor([7, 5, 5, -1, 0, 0]).to(torch.int32 if dtype.itemsize == 4 else torch.int64).view(dtype)
    olds = torch.zeros(128, dtype=dtype)
    atomics_kernel[(1,)](words, olds, values)
    numbers = values.tolist()
    mask = 2 ** (8 * dtype.itemsize) - 1
    all_and, all_or, all_xor = mask, 0, 0
    for number in numbers:
        all_and, all_or, all_xor = all_and & number & mask, all_or | number & mask, all_xor ^ number & mask
    assert sorted([*olds.tolist(), words[0].item()]) == sorted([7, *numbers])
    assert words[1].item() == min(5, *numbers) and words[2].item() == max(5, *numbers)
    assert [word & mask for word in words[3:].tolist()] == [all_and, all_or, all_xor]


@triton.jit
def short_forms_kernel(words, out):
    st_b32(out, ld_b32(words) + ld_acquire(words, "sys"))
    membar("sys")
    fence("acq_rel", "gpu")
    __fence()
    red_release(words + 1, 1, "sys")
    arrive_inc(words + 2, tid(0), 5, "gpu")
    wait_eq(words + 2, tid(0), 5, "gpu")
    st(out + 1 + tid(0), atomic_add_per_warp(words + 3, 1, "gpu", "relaxed"))


def test_short_forms():
    words, out = torch.tensor([4, 0, 0, 0], dtype=torch.int32), torch.zeros(65, dtype=torch.int32)
    short_forms_kernel[(1,)](words, out, num_warps=2)
    assert words.tolist() == [4, 64, 5, 2]
    assert out.tolist() == [8] + [0] * 32 + [1] * 32


@triton.jit
def clock_kernel(out):
    begin = globaltimer()
    tl.store(out, (globaltimer() > begin).to(tl.int32))
    tl.store(out + 1, (globaltimer_lo() > 0).to(tl.int32) + globaltimer_hi().to(tl.int32) + (smid() < 1000).to(tl.int32))


def test_the_clock_runs():
    out = torch.zeros(2, dtype=torch.int32)
    clock_kernel[(1,)](out)
    assert out[0].item() == 1 and out[1].item() >= 2


@triton.jit
def missing_thread_kernel(out):
    if laneid() < 16:
        st(out, __ballot_sync(0xFFFFFFFF, True))


@triton.jit
def thread_too_many_kernel(out):
    st(out, __ballot_sync(0xFFFF, True))


@triton.jit
def different_masks_kernel(out):
    st(out, __shfl_sync_i32(laneid() + 1, 1, 0))


@triton.jit
def absent_source_kernel(out):
    if laneid() >= 8:
        st(out, shfl_sync(0xFFFFFF00, laneid(), 3))


@triton.jit
def barrier_of_a_warp_kernel(out):
    if laneid() < 16:
        __syncwarp()


@pytest.mark.parametrize(
    "kernel, message",
    [
        (missing_thread_kernel, "ballot with the mask 0xffffffff in warp 0: thread 16 is in it and does not come"),
        (thread_too_many_kernel, "ballot with the mask 0xffff in warp 0: thread 16 comes and is not in it"),
        (different_masks_kernel, "shfl: threads of warp 0 give different masks, 0x1 and 0x2"),
        (absent_source_kernel, "shfl: thread 8 asks for the value of thread 3, which is not in the mask"),
        (barrier_of_a_warp_kernel, "__syncwarp with the mask 0xffffffff in warp 0: thread 16 is in it"),
    ],
)
def test_wrong_masks_are_named(kernel, message):
    with pytest.raises(errors.SimulationError, match=message) as caught:
        kernel[(1,)](torch.zeros(1, dtype=torch.int32))
    assert "test_warps.py:" in str(caught.value)
