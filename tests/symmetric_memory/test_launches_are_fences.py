"""Relaxed signals at the begin and the end of a kernel order what comes before its launch and behind its end, and nothing inside."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

from triton_dist.errors import DataRaceError
from triton_dist.sim.simulate import simulate


@triton.jit
def meet_peer(signal_pads, rank, SEND: tl.constexpr, TAKE: tl.constexpr):
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(tables + rank).to(tl.pointer_type(tl.int32))
    peers = tl.load(tables + 1 - rank).to(tl.pointer_type(tl.int32))
    while tl.atomic_cas(peers + rank, 0, 1, sem=SEND, scope="sys") != 0:
        pass
    while tl.atomic_cas(own + 1 - rank, 1, 0, sem=TAKE, scope="sys") != 1:
        pass


@triton.jit
def exchange_kernel(
    buffers, signal_pads, result, rank, STORES: tl.constexpr, SEND: tl.constexpr, TAKE: tl.constexpr, BEFORE_END: tl.constexpr
):
    """Read the peer's buffer between two meetings. STORES: write the own one first, in the same kernel."""
    tables = buffers.to(tl.pointer_type(tl.uint64))
    offsets = tl.arange(0, 32)
    if STORES:
        tl.store(tl.load(tables + rank).to(tl.pointer_type(tl.float32)) + offsets, offsets.to(tl.float32))
        tl.debug_barrier()
    meet_peer(signal_pads, rank, SEND, TAKE)
    tl.store(result + offsets, tl.load(tl.load(tables + 1 - rank).to(tl.pointer_type(tl.float32)) + offsets))
    tl.debug_barrier()
    meet_peer(signal_pads, rank, BEFORE_END, "relaxed")


def run(stores, send="relaxed", take="acquire", before_end="release"):
    def fn():
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        buffer = symm_mem.empty(32, device="cuda")
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        results = []
        for number in range(2):
            if not stores:
                buffer.fill_(rank + number)
            results.append(torch.empty(32))
            exchange_kernel[(1,)](
                handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, results[-1], rank,
                STORES=stores, SEND=send, TAKE=take, BEFORE_END=before_end,
            )  # fmt: skip
        # The own swap came last and has seen the peer's, so reading the word behind it is no race with that one.
        assert not handle.get_signal_pad(rank).view(torch.int32).any()
        return [result[1].item() for result in results]

    return simulate(fn, 2, check="race")


def test_a_relaxed_signal_at_the_begin_covers_what_came_before_the_launch():
    assert run(stores=False) == [[1.0, 2.0], [0.0, 1.0]]


def test_it_does_not_cover_what_the_kernel_itself_did():
    with pytest.raises(DataRaceError, match="buffer"):
        run(stores=True)
    assert run(stores=True, send="release") == [[1.0, 1.0]] * 2


def test_a_relaxed_wait_at_the_begin_orders_nothing_inside():
    with pytest.raises(DataRaceError, match="buffer"):
        run(stores=False, take="relaxed")


def test_a_relaxed_signal_at_the_end_does_not_cover_the_reads():
    with pytest.raises(DataRaceError, match="buffer"):
        run(stores=False, before_end="relaxed")
