"""Several words at once, and multicast, on simulated ranks: what arrives where, in one piece, and what misuse is called."""

from __future__ import annotations

import re

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.worlds.world import meet
from triton_dist import errors, simulate
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.cuda.language_extra import (
    load_v2_b64,
    load_v4_b32,
    load_v4_s32,
    load_v4_u32,
    multimem_ld_reduce_v4,
    multimem_st_b32,
    multimem_st_b64,
    multimem_st_p_b32,
    multimem_st_v2,
    multimem_st_v4,
    ntid,
    st_v2_u32,
    st_v4_b32,
    st_v4_u32,
    tid,
)


@triton_dist.jit
def copy_kernel(source, target, count, KIND: tl.constexpr):
    """16 bytes a thread, by each of the forms."""
    for unit in range(tid(0), count, ntid(0)):
        here = source + unit * 4
        if KIND == "u32":
            a, b, c, d = load_v4_u32(here)
            st_v4_u32(target + unit * 4, a, b, c, d)
        elif KIND == "s32":
            a, b, c, d = load_v4_s32(here)
            st_v4_b32(target + unit * 4, a, b, c, d)
        elif KIND == "b32":
            a, b, c, d = load_v4_b32(here, "sys", "acquire")
            st_v4_b32(target + unit * 4, a, b, c, d, "sys", "release")
        else:
            low, high = load_v2_b64(here)
            place = target + unit * 4
            st_v2_u32(place, low.to(tl.uint32), (low >> 32).to(tl.uint32))
            st_v2_u32(place + 2, high.to(tl.uint32), (high >> 32).to(tl.uint32))


@pytest.mark.parametrize("kind", ["u32", "s32", "b32", "b64"])
def test_words_are_copied_as_they_are(kind):
    def body():
        source = torch.randn(4 * 300)
        target = torch.zeros_like(source)
        copy_kernel[(1,)](source, target, 300, KIND=kind)
        triton_dist.synchronize()
        return torch.equal(source, target)

    assert simulate(body, 1) == [True]


@triton_dist.jit
def low_latency_kernel(buffer, out, ROUND: tl.constexpr, TORN: tl.constexpr):
    """A datum and its flag in one word of 8 bytes; the torn twin stores them one after the other, the flag first."""
    place = buffer + 2 * tid(0)
    if dl.rank() == 0:
        peer = dl.symm_at(place, 1)
        if TORN:
            dl.st(peer + 1, ROUND, "sys")
            dl.st(peer, tid(0) + 7, "sys")
        else:
            st_v2_u32(peer, tid(0) + 7, ROUND)
    else:
        word = (tid(0) - tid(0)).to(tl.int64)
        while (word >> 32) != ROUND:
            word = dl.ld(place.to(tl.pointer_type(tl.int64)), "sys")
        dl.st(out + tid(0), word.to(tl.int32))


def low_latency(torn: bool) -> bool:
    buffer, out = triton_dist.symm_zeros(256, torch.int32), torch.zeros(128, dtype=torch.int32)
    meet()
    low_latency_kernel[(1,)](buffer, out, ROUND=3, TORN=torn)
    triton_dist.synchronize()
    return triton_dist.rank() == 0 or torch.equal(out, torch.arange(7, 135, dtype=torch.int32))


def test_a_datum_travels_with_its_flag():
    assert all(all(simulate(low_latency, 2, args=(False,), seed=seed)) for seed in range(8))
    assert not all(all(simulate(low_latency, 2, args=(True,), seed=seed)) for seed in range(8))


# ---------------------------------------------------------------------- multicast


@triton_dist.jit
def spread_kernel(data, team, count, KIND: tl.constexpr):
    """The first rank of the team stores what it has to all ranks of the team, in units of 16 bytes."""
    step: tl.constexpr = 128 // data.dtype.element_ty.primitive_bitwidth
    to_all = shmem.remote_mc_ptr(team, data)
    if shmem.team_my_pe(team) == 0:
        for unit in range(tid(0), count, ntid(0)):
            a, b, c, d = load_v4_u32(data + unit * step)
            place = to_all + unit * step
            if KIND == "v4":
                multimem_st_v4(place, a, b, c, d)
            elif KIND == "v2":
                multimem_st_v2(place, a, b)
                multimem_st_v2(place + step // 2, c, d)
            elif KIND == "b32":
                multimem_st_b32(place, a)
                multimem_st_b32(place + step // 4, b)
                multimem_st_b32(place + step // 2, c)
                multimem_st_b32(place + 3 * step // 4, d)
            else:
                multimem_st_b64(place, a.to(tl.int64) | (b.to(tl.int64) << 32))
                multimem_st_b64(place + step // 2, c.to(tl.int64) | (d.to(tl.int64) << 32))


def spread_out(kind: str, dtype: torch.dtype) -> bool:
    size = 40 * 16 // dtype.itemsize
    data = triton_dist.symm_full(size, triton_dist.rank() + 1, dtype)
    data += torch.arange(size, dtype=dtype)
    everyone = triton_dist.make_team([0, 1, 2])
    meet()
    spread_kernel[(1,)](data, triton_dist.team_number(everyone), 40, KIND=kind)
    meet()
    return torch.equal(data, 1 + torch.arange(size, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["v4", "v2", "b32", "b64"])
def test_a_multicast_store_is_on_every_rank_of_the_team(kind, dtype):
    assert simulate(spread_out, 3, args=(kind, dtype)) == [True] * 3


OWN = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton_dist.jit
def sum_kernel(data, out, team, count, ACCUMULATOR: tl.constexpr):
    step: tl.constexpr = 128 // data.dtype.element_ty.primitive_bitwidth
    from_all = shmem.remote_mc_ptr(team, data)
    for unit in range(tid(0), count, ntid(0)):
        a, b, c, d = multimem_ld_reduce_v4(from_all + unit * step, ACCUMULATOR)
        st_v4_b32(out + unit * step, a, b, c, d)


def summed(dtype: torch.dtype, subteam: bool, own: bool) -> bool:
    rank, size = triton_dist.rank(), 40 * 16 // dtype.itemsize
    parts = [torch.randn(size, generator=torch.Generator().manual_seed(peer)).to(dtype) for peer in range(4)]
    data = triton_dist.symm_empty(size, dtype)
    data.copy_(parts[rank])
    out = torch.zeros(size, dtype=dtype)
    ranks = [rank % 2, rank % 2 + 2] if subteam else [0, 1, 2, 3]
    team = triton_dist.make_team(ranks)
    meet()
    sum_kernel[(1,)](data, out, triton_dist.team_number(team), 40, ACCUMULATOR=OWN[dtype] if own else tl.float32)
    meet()
    expected = torch.zeros(size)
    for peer in ranks:
        expected += parts[peer].float()
        if own:
            expected = expected.to(dtype).float()
    return torch.equal(out, expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("subteam", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_sum_is_formed_over_the_team(dtype, subteam, own):
    assert simulate(summed, 4, args=(dtype, subteam, own)) == [True] * 4


@triton_dist.jit
def masked_store_kernel(data, KEPT: tl.constexpr):
    to_all = shmem.remote_mc_ptr(shmem.NVSHMEMX_TEAM_NODE, data)
    if dl.rank() == 0:
        multimem_st_p_b32(to_all + tid(0), tid(0), (tid(0) >= KEPT).to(tl.int32))


def masked_store(kept: int) -> list[int]:
    data = triton_dist.symm_full(128, -1, torch.int32)
    meet()
    masked_store_kernel[(1,)](data, KEPT=kept)
    meet()
    return data.tolist()


def test_threads_that_a_mask_leaves_out_store_nothing(world):
    assert world(masked_store, 2, args=(100,)) == [[-1] * 100 + list(range(100, 128))] * 2


@triton_dist.jit
def exchange_kernel(data, out, BARRIER: tl.constexpr):
    """Every rank stores its own word to all, then reads all words: with a barrier between, or without."""
    to_all = shmem.remote_mc_ptr(shmem.NVSHMEM_TEAM_WORLD, data)
    if tid(0) == 0:
        multimem_st_b32(to_all + dl.rank(), dl.rank() + 1)
    if BARRIER:
        shmem.barrier_all_block()
    lane = tl.arange(0, 4)
    tl.store(out + lane, tl.load(data + lane))


def exchange(barrier: bool) -> list[int]:
    data, out = triton_dist.symm_zeros(4, torch.int32), torch.zeros(4, dtype=torch.int32)
    meet()
    exchange_kernel[(1,)](data, out, BARRIER=barrier)
    triton_dist.synchronize()
    return out.tolist()


def test_the_race_check_follows_multicast_stores():
    assert simulate(exchange, 4, args=(True,), check="race") == [[1, 2, 3, 4]] * 4
    with pytest.raises(errors.DataRaceError, match="test_words.py"):
        simulate(exchange, 4, args=(False,), check="race")


@triton_dist.jit
def address_kernel(data, out, team):
    tl.store(out, shmem.remote_mc_ptr(team, data).to(tl.int64))


def has_address(number: int) -> bool:
    data, out = triton_dist.symm_zeros(4, torch.int32), torch.zeros(1, dtype=torch.int64)
    meet()
    address_kernel[(1,)](data, out, number)
    triton_dist.synchronize()
    return out.item() != 0


def test_where_there_is_no_multicast_the_address_is_null():
    assert simulate(has_address, 4, args=(0,)) == [True] * 4
    assert simulate(has_address, 4, args=(0,), gpu="a100") == [False] * 4
    assert simulate(has_address, 4, args=(0,), num_nodes=2) == [False] * 4
    assert simulate(has_address, 4, args=(2,), num_nodes=2) == [True] * 4
    assert simulate(has_address, 4, args=(9,)) == [False] * 4


@triton_dist.jit
def misuse_kernel(data, CASE: tl.constexpr):
    to_all = shmem.remote_mc_ptr(shmem.NVSHMEM_TEAM_WORLD, data)
    if CASE == "ordinary load":
        tl.store(data, tl.load(to_all))
    elif CASE == "ordinary address":
        multimem_st_b32(data, 1)
    elif CASE == "NULL":
        multimem_st_b32(shmem.remote_mc_ptr(9, data), 1)
    elif CASE == "past the end":
        multimem_st_b32(to_all + 4, 1)
    elif CASE == "misaligned":
        multimem_st_v4((to_all + 1).to(tl.pointer_type(tl.float32)), 1, 1, 1, 1)
    elif CASE == "wide":
        multimem_st_b32(to_all, data.to(tl.int64))
    elif CASE == "type":
        multimem_st_v2(to_all, 1, 1)


MISUSE = {
    "ordinary load": (errors.OutOfBoundsError, r"load through a multicast address.*multimem"),
    "ordinary address": (errors.SimulationError, r"no multicast address.*remote_mc_ptr"),
    "NULL": (errors.SimulationError, r"no multicast address.*NULL"),
    "past the end": (errors.OutOfBoundsError, r"16 bytes past|past the end"),
    "misaligned": (errors.MisalignedAccessError, r"multiple of 16"),
    "wide": (Exception, r"multimem_st_b32: argument 'val0'.*32 bits"),
    "type": (Exception, r"multimem_st_v2: argument 'ptr' points to int32.*fp32"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_named(case):
    def body():
        data = triton_dist.symm_zeros(4, torch.int32)
        meet()
        misuse_kernel[(1,)](data, CASE=case)
        triton_dist.synchronize()

    error, pattern = MISUSE[case]
    with pytest.raises(error) as caught:
        simulate(body, 2)
    whole = " ".join(str(one) for one in (caught.value, caught.value.__cause__) if one is not None)
    assert re.search(pattern, whole), whole
