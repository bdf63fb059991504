"""Patterns of kernels for torch's symmetric memory, each right, and wrong by an argument: barriers by compare-and-swap, sums of what all
ranks have, by accesses of 16 bytes and through the switch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
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


def one_shot(count, first=True, last=True, calls=2, world=WORLD):
    """What each rank runs: sums of the inputs of several calls."""
    rank = triton_dist.rank()
    source = triton_dist.symm_empty((count,), torch.bfloat16, name="source")
    pads = triton_dist.symm_zeros((64,), torch.int32, name="pads")
    triton_dist.synchronize()
    outs = []
    for call in range(calls):
        source.copy_((torch.arange(count) % 32 + rank + call).to(torch.bfloat16))
        out = torch.zeros(count, dtype=torch.bfloat16)
        one_shot_kernel[(3,)](source, pads, out, count, world, 64, first, last, num_warps=2)
        outs.append(out)
    return outs


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


def pair(count):
    """What each of two ranks runs."""
    return one_shot(count, world=2)


@triton.jit
def stuck_kernel(pads, RANKS: tl.constexpr):
    meet(pads + dl.rank() * 32, RANKS, True, True)


def stuck():
    """Rank 1 comes to another barrier than rank 0."""
    stuck_kernel[(1,)](triton_dist.symm_zeros((64,), torch.int32, name="pads"), 2)
    triton_dist.synchronize()
