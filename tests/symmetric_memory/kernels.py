"""Kernels written for torch's symmetric memory: tables of pointers, and signals in pads by compare-and-swap."""

import triton
import triton.language as tl


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
