"""Kernels written for torch's symmetric memory: tables of pointers, and signals in pads by compare-and-swap."""

import triton
import triton.language as tl

from tests.sim.ptx.patterns import exchange, flat_thread


@triton.jit
def meet_peers(signal_pads, slot, rank, WORLD: tl.constexpr):
    """Signal every rank by a word of its pad and take every rank's signal. slot: which group of WORLD words."""
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(tables + rank).to(tl.pointer_type(tl.int32))
    for peer in range(WORLD):
        pad = tl.load(tables + peer).to(tl.pointer_type(tl.int32))
        while tl.atomic_cas(pad + slot * WORLD + rank, 0, 1, sem="release", scope="sys") != 0:
            pass
    for peer in range(WORLD):
        while tl.atomic_cas(own + slot * WORLD + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@triton.jit
def one_shot_all_reduce_kernel(
    buffers, signal_pads, result, count, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr, MEET_BEFORE: tl.constexpr, MEET_AFTER: tl.constexpr
):
    """Each rank sums the buffers of all. MEET_AFTER: no rank goes on, and writes its buffer again, before all have read it."""
    block = tl.program_id(0)
    if MEET_BEFORE:
        meet_peers(signal_pads, block, rank, WORLD)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tables = buffers.to(tl.pointer_type(tl.uint64))
    total = tl.zeros([BLOCK], tl.float32)
    for peer in range(WORLD):
        buffer = tl.load(tables + peer).to(tl.pointer_type(result.dtype.element_ty))
        total += tl.load(buffer + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(result + offsets, total.to(result.dtype.element_ty), mask=mask)
    if MEET_AFTER:
        tl.debug_barrier()  # one thread signals for all: their loads come before
        meet_peers(signal_pads, block, rank, WORLD)


@triton.jit
def gather_by_ptx_kernel(buffers, signal_pads, multicast, result, rank, WORLD: tl.constexpr):
    """Each rank's number through its own word and the peers' pointers, and through the multicast address; signals by inline PTX."""
    peers = tl.arange(0, WORLD)
    tables, pads = buffers.to(tl.pointer_type(tl.uint64)), signal_pads.to(tl.pointer_type(tl.uint64))
    tl.store(tl.load(tables + rank).to(tl.pointer_type(tl.float32)), rank + 40.0)
    place = tl.cast(multicast, tl.int64) + 4 * (1 + rank)
    bits = tl.cast(rank + 80.0, tl.float32)
    tl.inline_asm_elementwise(
        "multimem.st.relaxed.sys.global.f32 [$1], $2;", "=r,l,f", [place, bits], dtype=tl.uint32, is_pure=False, pack=1
    )
    tl.debug_barrier()
    if flat_thread() < WORLD:
        exchange(tl.load(pads + peers).to(tl.pointer_type(tl.uint32)) + rank, 0, 1, "release")
        exchange(tl.load(pads + rank).to(tl.pointer_type(tl.uint32)) + peers, 1, 0, "acquire")
    tl.debug_barrier()
    tl.store(result + peers, tl.load(tl.load(tables + peers).to(tl.pointer_type(tl.float32))))
    own = tl.load(tables + rank).to(tl.pointer_type(tl.float32))
    tl.store(result + WORLD + peers, tl.load(own + 1 + peers))
