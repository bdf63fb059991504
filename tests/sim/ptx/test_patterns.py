"""Patterns of kernels for torch's symmetric memory, right and wrong by one line: reductions by 16-byte accesses and by multicast."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.errors import DataRaceError, DeadlockError, SimulationError
from triton_dist.language.extra import libshmem_device as shmem

WORLD = 4


@triton.jit
def flat_thread():
    x, y, z = tl.inline_asm_elementwise(
        "mov.u32 $0, %tid.x; mov.u32 $1, %tid.y; mov.u32 $2, %tid.z;",
        "=r,=r,=r",
        [],
        dtype=(tl.uint32, tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    sx, sy = tl.inline_asm_elementwise(
        "mov.u32 $0, %ntid.x; mov.u32 $1, %ntid.y;", "=r,=r", [], dtype=(tl.uint32, tl.uint32), is_pure=True, pack=1
    )
    return x + y * sx + z * sx * sy


@triton.jit
def exchange(addresses, WANTED: tl.constexpr, NEW: tl.constexpr, SEMANTIC: tl.constexpr):
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 %old;
            .reg .pred %swapped;
        retry:
            atom.global.{SEMANTIC}.sys.cas.b32 %old, [$1], {WANTED}, {NEW};
            setp.eq.u32 %swapped, %old, {WANTED};
            @!%swapped bra retry;
        }}
        """,
        "=r,l",
        [addresses],
        dtype=addresses.dtype,
        is_pure=False,
        pack=1,
    )


@triton.jit
def meet(pads, RANKS: tl.constexpr, BEFORE: tl.constexpr, BEHIND: tl.constexpr):
    """All ranks, block by block: BEFORE says that what came before has to be seen, BEHIND that what comes behind has to see."""
    rank = dl.rank()
    block = tl.program_id(0)
    peers = tl.arange(0, RANKS)
    send_to = dl.symm_at(pads + block * RANKS + rank + 0 * peers, peers)
    receive_from = pads + block * RANKS + peers
    if BEFORE:
        tl.debug_barrier()
    if flat_thread() < RANKS:
        exchange(send_to, 0, 1, "release" if BEFORE else "relaxed")
        exchange(receive_from, 1, 0, "acquire" if BEHIND else "relaxed")
    if BEHIND:
        tl.debug_barrier()


@triton.jit
def load_128(addresses, mask):
    return tl.inline_asm_elementwise(
        """
        {
            .reg .pred %on;
            setp.eq.s32 %on, $3, 1;
            @%on ld.global.v2.u64 {$0, $1}, [$2];
        }
        """,
        "=l,=l,l,r",
        [addresses, mask.to(tl.int32)],
        dtype=(tl.uint64, tl.uint64),
        is_pure=True,
        pack=1,
    )


@triton.jit
def add_bf16(a_high, a_low, b_high, b_low):
    """Eight bfloat16 numbers in two words: their sums."""
    return tl.inline_asm_elementwise(
        """
        {
            .reg .b32 %a<4>, %b<4>;
            mov.b64 {%a0, %a1}, $2;
            mov.b64 {%a2, %a3}, $3;
            mov.b64 {%b0, %b1}, $4;
            mov.b64 {%b2, %b3}, $5;
            add.bf16x2 %a0, %a0, %b0;
            add.bf16x2 %a1, %a1, %b1;
            add.bf16x2 %a2, %a2, %b2;
            add.bf16x2 %a3, %a3, %b3;
            mov.b64 $0, {%a0, %a1};
            mov.b64 $1, {%a2, %a3};
        }
        """,
        "=l,=l,l,l,l,l",
        [a_high, a_low, b_high, b_low],
        dtype=(tl.uint64, tl.uint64),
        is_pure=True,
        pack=1,
    )


@triton.jit
def store_128(addresses, high, low, mask):
    tl.inline_asm_elementwise(
        """
        {
            .reg .pred %on;
            setp.eq.s32 %on, $4, 1;
            @%on st.global.v2.u64 [$1], {$2, $3};
            mov.u32 $0, 0;
        }
        """,
        "=r,l,l,l,r",
        [addresses, high, low, mask.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def one_shot_kernel(source, pads, out, count, RANKS: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr):
    """Each rank reads what all have, 16 bytes at a time, and sums it. An earlier kernel wrote it: the first signals need not release."""
    if FIRST:
        meet(pads, RANKS, False, True)
    words = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = words < count // 8
    high = tl.zeros((BLOCK,), tl.uint64)
    low = tl.zeros((BLOCK,), tl.uint64)
    for peer in range(RANKS):
        there = dl.symm_at(source, peer).to(tl.pointer_type(tl.uint64)) + 2 * words
        more_high, more_low = load_128(there, inside)
        high, low = add_bf16(high, low, more_high, more_low)
    store_128(out.to(tl.pointer_type(tl.uint64)) + 2 * words, high, low, inside)
    if LAST:
        meet(pads, RANKS, True, False)


def one_shot(count, first=True, last=True, calls=2):
    """What each rank runs: sums of the inputs of several calls."""
    rank = triton_dist.rank()
    source = triton_dist.symm_empty((count,), torch.bfloat16, name="source")
    pads = triton_dist.symm_zeros((64,), torch.int32, name="pads")
    triton_dist.synchronize()
    outs = []
    for call in range(calls):
        source.copy_((torch.arange(count) % 32 + rank + call).to(torch.bfloat16))
        out = torch.zeros(count, dtype=torch.bfloat16)
        one_shot_kernel[(3,)](source, pads, out, count, WORLD, 64, first, last, num_warps=2)
        outs.append(out)
    return outs


@pytest.mark.parametrize("count", [8, 1000, 1536])
def test_one_shot_all_reduce(count):
    expected = [sum(torch.arange(count) % 32 + rank + call for rank in range(WORLD)) for call in range(2)]
    for outs in triton_dist.simulate(one_shot, WORLD, args=(count,), check="race"):
        for out, want in zip(outs, expected, strict=True):
            assert torch.equal(out.float(), want.float())


@pytest.mark.parametrize("missing", ["first", "last"])
def test_one_shot_without_one_of_its_barriers(missing):
    with pytest.raises(DataRaceError, match=r"source\[") as raised:
        triton_dist.simulate(one_shot, WORLD, args=(1536,), kwargs={missing: False}, check="race")
    assert "one_shot_kernel at" in str(raised.value)


@triton.jit
def multimem_kernel(
    source_mc, pads, RANKS: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, RELEASES: tl.constexpr
):
    """Two shot: each rank sums its part through the switch, and stores it to all ranks."""
    if FIRST:
        meet(pads, RANKS, RELEASES, True)
    words = dl.rank() * BLOCK + tl.arange(0, BLOCK)
    tl.inline_asm_elementwise(
        """
        {
            .reg .b32 %part<4>;
            multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%part0, %part1, %part2, %part3}, [$1];
            multimem.st.relaxed.sys.global.v4.bf16x2 [$1], {%part0, %part1, %part2, %part3};
            mov.u32 $0, 0;
        }
        """,
        "=r,l",
        [source_mc.to(tl.pointer_type(tl.uint64)) + 2 * words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    if LAST:
        meet(pads, RANKS, True, True)


@triton.jit
def copy_kernel(
    source, pads, out, COUNT: tl.constexpr, RANKS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr, RELEASES: tl.constexpr
):
    elements = tl.arange(0, COUNT)
    value = (elements % 16 + dl.rank()).to(tl.bfloat16)
    tl.store(source + elements, value)
    tl.debug_barrier()
    multimem_kernel(shmem.remote_mc_ptr(shmem.NVSHMEM_TEAM_WORLD, source), pads, RANKS, COUNT // 8 // RANKS, FIRST, LAST, RELEASES)
    tl.store(out + elements, tl.load(source + elements))


def two_shot(first=True, last=True, releases=True):
    """What each rank runs."""
    source = triton_dist.symm_empty((512,), torch.bfloat16, name="source")
    pads = triton_dist.symm_zeros((64,), torch.int32, name="pads")
    out = torch.zeros(512, dtype=torch.bfloat16)
    copy_kernel[(1,)](source, pads, out, 512, WORLD, first, last, releases)
    return out


def test_multimem_all_reduce():
    expected = sum(torch.arange(512) % 16 + rank for rank in range(WORLD)).float()
    for out in triton_dist.simulate(two_shot, WORLD, check="race"):
        assert torch.equal(out.float(), expected)


@pytest.mark.parametrize("missing", ["first", "last"])
def test_multimem_all_reduce_without_one_of_its_barriers(missing):
    with pytest.raises(DataRaceError, match=r"source\["):
        triton_dist.simulate(two_shot, WORLD, kwargs={missing: False}, check="race")


def test_multimem_all_reduce_whose_first_barrier_releases_nothing():
    """Sending relaxed, as in the recipe for what was written by an earlier kernel: here the same kernel wrote it."""
    with pytest.raises(DataRaceError, match="relaxed, with no fence before it"):
        triton_dist.simulate(two_shot, WORLD, kwargs={"releases": False}, check="race")


@triton.jit
def lonely_kernel(pads, RANKS: tl.constexpr):
    if dl.rank() != 3:
        meet(pads, RANKS, True, True)


def test_a_rank_that_does_not_come_is_named():
    def alone():
        lonely_kernel[(1,)](triton_dist.symm_zeros((64,), torch.int32, name="pads"), WORLD)

    with pytest.raises(DeadlockError) as raised:
        triton_dist.simulate(alone, WORLD)
    text = str(raised.value)
    for rank in range(3):
        assert f"rank {rank}, program (0, 0, 0) of lonely_kernel at" in text
        assert f"pads[3] of rank {rank} == 1; it is 0; nobody wrote it" in text


@triton.jit
def ordinary_kernel(data):
    tl.inline_asm_elementwise(
        "multimem.red.release.sys.global.add.u32 [$1], 1; mov.u32 $0, 0;", "=r,l", [data], dtype=tl.int32, is_pure=False, pack=1
    )


def test_an_ordinary_address_is_no_multicast_address():
    with pytest.raises(SimulationError, match=r"(?s)no multicast address.*line 1 of the assembly, 'multimem.red"):
        triton_dist.simulate(lambda: ordinary_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32)), 2)


@triton.jit
def count_kernel(words, out):
    """Every thread adds to the words of all ranks; a barrier of a switch."""
    everywhere = shmem.remote_mc_ptr(shmem.NVSHMEM_TEAM_WORLD, words)
    seen = tl.inline_asm_elementwise(
        """
        {
            .reg .pred %p;
            .reg .u32 %t;
            mov.u32 %t, %tid.x;
            setp.eq.u32 %p, %t, 0;
            bar.sync 0;
            @%p multimem.red.release.sys.global.add.u32 [$1], 1;
            @!%p bra done;
        poll:
            ld.acquire.sys.global.u32 $0, [$2];
            setp.lt.u32 %p, $0, 4;
            @%p bra poll;
        done:
            bar.sync 0;
            ld.relaxed.sys.global.u32 $0, [$2];
        }
        """,
        "=r,l,l",
        [everywhere, words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out, seen)


def test_a_barrier_by_a_multicast_reduction():
    def counts():
        words, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
        count_kernel[(1,)](words, out)
        return out.item()

    assert triton_dist.simulate(counts, WORLD, check="race") == [WORLD] * WORLD
