"""Code for single threads: how many tokens each rank sends to each expert, counted and told to the expert's rank in one kernel.

Whole tiles where a tile operation says it (the running sum), single elements and one thread a peer where none does.
Run it on simulated ranks with ``python examples/03_simt.py``, on GPUs with ``torchrun --nproc-per-node 4 examples/03_simt.py``.
"""

from __future__ import annotations

import os

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.language_extra import __syncthreads, ld, st

TOKENS, EXPERTS = 300, 64


@triton_dist.jit
def exchange_counts_kernel(experts, inbox, signals, begins, received, tokens, EXPERTS: tl.constexpr, SHARE: tl.constexpr):
    """``SHARE`` experts are on each rank; ``received[rank, expert]`` is how many tokens ``rank`` has for an expert of here."""
    counts = tl.zeros((EXPERTS,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        for expert in range(thread, EXPERTS, threads):
            for token in range(tokens):
                counts[expert] += (ld(experts + token) == expert).to(tl.int32)

    tl.store(begins + tl.arange(0, EXPERTS), tl.cumsum(counts) - counts)

    with dl.simt_exec_region() as (thread, threads):
        for expert in range(thread, EXPERTS, threads):
            peer = expert // SHARE
            st(dl.symm_at(inbox, peer) + dl.rank() * SHARE + expert % SHARE, counts[expert], "sys", "relaxed")
        # Every thread's stores come before the barrier, and the barrier before the one thread that tells a peer.
        __syncthreads()
        if thread < dl.num_ranks():
            st(dl.symm_at(signals, thread) + dl.rank(), 1, "sys", "release")

    ready = dl.consume_token(inbox, dl.wait(signals, dl.num_ranks(), "sys", "acquire"))
    for rank in range(dl.num_ranks()):
        row = rank * SHARE + tl.arange(0, SHARE)
        tl.store(received + row, tl.load(ready + row))


def tokens_of(rank: int) -> torch.Tensor:
    """The expert of each token of a rank."""
    return torch.randint(0, EXPERTS, (TOKENS,), dtype=torch.int32, generator=torch.Generator().manual_seed(rank))


def run() -> None:
    """One rank's host function; raises AssertionError if a count is wrong."""
    rank, world_size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    share = EXPERTS // world_size
    inbox = triton_dist.symm_zeros((world_size, share), torch.int32)
    signals = triton_dist.symm_zeros((world_size,), torch.int32)
    begins, received = torch.zeros(EXPERTS, dtype=torch.int32, device=device), torch.zeros_like(inbox)
    exchange_counts_kernel[(1,)](tokens_of(rank).to(device), inbox, signals, begins, received, TOKENS, EXPERTS, share)
    triton_dist.synchronize()

    counts = torch.stack([torch.bincount(tokens_of(peer), minlength=EXPERTS) for peer in range(world_size)])
    assert torch.equal(received.cpu(), counts[:, rank * share : (rank + 1) * share].to(torch.int32))
    assert torch.equal(begins.cpu(), (counts[rank].cumsum(0) - counts[rank]).to(torch.int32))


def main() -> None:
    if "RANK" in os.environ:  # torchrun has started this process, one of several
        triton_dist.initialize()
        run()
        triton_dist.finalize()
    else:
        triton_dist.simulate(run, world_size=4)
    print("every rank knows how many tokens come for its experts")


if __name__ == "__main__":
    main()
