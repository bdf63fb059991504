"""Autotuning where every rank has to run the same config: a whole operator, and a kernel under ``triton.autotune``.

Run it on simulated ranks with ``python examples/20_autotune.py``, or with one process a rank, on GPUs or without any, by
``torchrun --nproc-per-node 4 examples/20_autotune.py``.
"""

from __future__ import annotations

import os
import tempfile

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops import all_reduce

COUNT = 4096


@triton_dist.jit
def send_kernel(x, inbox, arrived, count, CHUNK: tl.constexpr):
    peer = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)
    dl.notify(arrived, peer, signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def receive_kernel(inbox, arrived, out, count, senders, CHUNK: tl.constexpr):
    token = dl.wait(arrived, 1, "sys", "acquire", waitValue=senders)
    offset = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset, mask=offset < count), mask=offset < count)


@triton_dist.autotune([{"chunk": chunk} for chunk in (64, 256, 1024, 3000)], key=["x"])
def rotate(x: torch.Tensor, inbox: torch.Tensor, arrived: torch.Tensor, chunk: int) -> torch.Tensor:
    """The previous rank's ``x``. A chunk of 3000 is no power of two: that config fails everywhere, and is out."""
    out = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), chunk)
    send_kernel[(programs,)](x, inbox, arrived, x.numel(), chunk)
    receive_kernel[(programs,)](inbox, arrived, out, x.numel(), programs, chunk)
    return out


@triton.autotune([triton.Config({"CHUNK": chunk}, num_warps=warps) for chunk in (256, 1024) for warps in (1, 8)], key=["count"])
@triton_dist.jit
def push_kernel(x, inbox, arrived, count, CHUNK: tl.constexpr):
    """Stock ``triton.autotune``: since the kernel communicates, all ranks choose together."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    for first in range(0, count, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)
    dl.notify(arrived, peer, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(arrived, 1, "sys", "acquire", waitValue=1)


@triton_dist.autotune([{"method": "one_shot"}, {"method": "two_shot"}], key=["x"])
def tuned_all_reduce(x: torch.Tensor, method: str) -> torch.Tensor:
    """An operator of the package: which of its methods is faster for this size on this machine?"""
    return all_reduce(x, method=method)


def run() -> tuple[list[str], bool]:
    """One rank's host function; returns what was chosen, and whether the results are right."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    x = torch.arange(COUNT, dtype=torch.float32, device=device) + COUNT * rank
    before = torch.arange(COUNT, dtype=torch.float32, device=device) + COUNT * ((rank - 1) % size)
    inbox, arrived = triton_dist.symm_zeros((COUNT,)), triton_dist.symm_zeros((1,), torch.int32)

    out = rotate(x, inbox, arrived)  # tries four configs; the signals are as before the call, each time
    right = torch.equal(out, before)

    more_inbox, more_arrived = triton_dist.symm_zeros((COUNT,)), triton_dist.symm_zeros((1,), torch.int32)
    push_kernel[(1,)](x, more_inbox, more_arrived, COUNT)
    right = right and torch.equal(more_inbox, before)

    total = tuned_all_reduce(x)
    right = right and torch.equal(total, size * torch.arange(COUNT, device=device) + COUNT * sum(range(size)))
    if rank == 0:
        print("\n\n".join(report.table() for report in (rotate.report, push_kernel.report, tuned_all_reduce.report)))
    return [rotate.report.chosen, str(push_kernel.best_config), tuned_all_reduce.report.chosen], right


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a program of yours leaves this out, and tunes once a machine
        os.environ["TRITON_DIST_AUTOTUNE_DIR"] = folder
        if "RANK" in os.environ:  # torchrun has started this process, one of several
            triton_dist.initialize()
            results = [run()]
            triton_dist.finalize()
        else:
            results = triton_dist.simulate(run, world_size=4)
        assert all(right and choices == results[0][0] for choices, right in results)


if __name__ == "__main__":
    main()
