"""Kernels and host functions for the tests of CPU processes."""

from __future__ import annotations

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton_dist.jit
def count_kernel(counter, times):
    """Each rank adds 1 to rank 0's word, many times."""
    word = dl.symm_at(counter, 0)
    for _ in range(times):
        tl.atomic_add(word, 1, sem="relaxed", scope="sys")


@triton_dist.jit
def take_tickets_kernel(counter, tickets, times):
    """Each rank swaps a counter of rank 0 up by compare-and-swap and writes down which numbers it got."""
    word = dl.symm_at(counter, 0)
    taken = 0
    while taken < times:
        old = tl.load(word, volatile=True)
        if tl.atomic_cas(word, old, old + 1, sem="acq_rel", scope="sys") == old:
            tl.store(tickets + taken, old)
            taken += 1


@triton_dist.jit
def wait_kernel(flags, out, WORD: tl.constexpr, VALUE: tl.constexpr):
    """Waits for one word, then says so."""
    dl.wait(flags + WORD, 1, "sys", "acquire", waitValue=VALUE)
    tl.store(out, 1)


@triton_dist.jit
def tell_kernel(flags, WORD: tl.constexpr, VALUE: tl.constexpr):
    """Sets a word of the next rank."""
    dl.notify(flags + WORD, (dl.rank() + 1) % dl.num_ranks(), signal=VALUE, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def spin_kernel(flags, out):
    """Waits in a loop of its own."""
    while tl.load(flags, volatile=True) != 7:
        pass
    tl.store(out, 1)


@triton_dist.jit
def too_far_kernel(data, SIZE: tl.constexpr):
    """Reads past the end of the next rank's tensor."""
    remote = dl.symm_at(data, (dl.rank() + 1) % dl.num_ranks())
    offset = tl.arange(0, SIZE)
    tl.store(data + offset, tl.load(remote + SIZE + offset))


def stuck() -> None:
    """Every rank sets word 0 of the next one to 3 and waits for its own word 1, which nobody sets."""
    flags = triton_dist.symm_zeros((4,), torch.int32)
    out = torch.zeros(1, dtype=torch.int32)
    tell_kernel[(1,)](flags, 0, 3)
    triton_dist.synchronize()
    wait_kernel[(1,)](flags, out, 1, 5)
    triton_dist.synchronize()


def read_too_far() -> None:
    """Rank 1 reads past rank 0's tensor, while rank 0 waits for it."""
    data, flags = triton_dist.symm_zeros((16,), torch.float32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(1, dtype=torch.int32)
    if triton_dist.rank() == 1:
        too_far_kernel[(1,)](data, 16)
    else:
        wait_kernel[(1,)](flags, out, 0, 1)
    triton_dist.synchronize()
