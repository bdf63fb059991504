"""A one-shot all-reduce for ``torch.distributed._symmetric_memory``, and its twin with a data race.

Each rank copies its input into memory that all ranks reach, meets the others by words of the signal pads, and sums what all have. The
second meeting keeps a rank from copying its next input over what a peer still reads. Nothing in the kernel is of this package:

    torchrun --nproc-per-node 4 examples/05_torch_symmetric_memory.py              # on GPUs
    triton-dist run --ranks 4 examples/05_torch_symmetric_memory.py                # the same on simulated ranks
    triton-dist check --ranks 4 examples/05_torch_symmetric_memory.py --racy       # what is wrong without the second meeting

Without arguments and without torchrun it does the last two itself.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

COUNT, BLOCK, ROUNDS = 4096, 1024, 3


@triton.jit
def meet_peers(signal_pads, slot, RANK: tl.constexpr, WORLD: tl.constexpr):
    """Signal each rank and take each rank's signal. slot: which WORLD words of the pads."""
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(tables + RANK).to(tl.pointer_type(tl.uint32))
    for peer in range(WORLD):
        pad = tl.load(tables + peer).to(tl.pointer_type(tl.uint32))
        while tl.atomic_cas(pad + slot * WORLD + RANK, 0, 1, sem="release", scope="sys") != 0:
            pass
    for peer in range(WORLD):
        # Who waits puts 0 back, so that the pad is ready for the next meeting.
        while tl.atomic_cas(own + slot * WORLD + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@triton.jit
def all_reduce_kernel(
    buffers, signal_pads, result, count, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr, MEET_AGAIN: tl.constexpr
):
    block = tl.program_id(0)
    meet_peers(signal_pads, block, RANK, WORLD)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for peer in range(WORLD):
        buffer = tl.load(buffers.to(tl.pointer_type(tl.uint64)) + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(buffer + offsets, mask=offsets < count, other=0.0).to(tl.float32)
    tl.store(result + offsets, total.to(tl.bfloat16), mask=offsets < count)
    if MEET_AGAIN:
        tl.debug_barrier()  # one thread signals for the block: the loads of all come before
        meet_peers(signal_pads, block, RANK, WORLD)


def all_reduces(device: torch.device, racy: bool = False) -> None:
    """One rank's host function: several all-reduces in a row, each compared with torch's."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    inputs = [torch.randn(COUNT, device=device).bfloat16() for _ in range(ROUNDS)]
    results = [torch.empty_like(value) for value in inputs]
    buffer = symm_mem.empty(COUNT, dtype=torch.bfloat16, device=device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    for value, result in zip(inputs, results, strict=True):
        buffer.copy_(value)
        all_reduce_kernel[(triton.cdiv(COUNT, BLOCK),)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, result, COUNT, rank, world_size, BLOCK, not racy
        )
    for value, result in zip(inputs, results, strict=True):
        wanted = value.float()
        dist.all_reduce(wanted)
        if not racy:
            torch.testing.assert_close(result, wanted.bfloat16())


def rank_main(racy: bool) -> None:
    """What each process of a job runs."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    all_reduces(device, racy)
    print(f"rank {dist.get_rank()}: done")
    dist.destroy_process_group()


def main() -> int:
    if "RANK" in os.environ:
        rank_main("--racy" in sys.argv)
        return 0
    command = [sys.executable, "-m", "triton_dist.tools.cli"]
    subprocess.run([*command, "run", "--ranks", "4", __file__], check=True)
    checked = subprocess.run(
        [*command, "check", "--ranks", "2", "--seeds", "1", __file__, "--racy"], capture_output=True, text=True, check=False
    )
    print(checked.stdout + checked.stderr)
    return 0 if "data race on buffer" in checked.stdout + checked.stderr else 1


if __name__ == "__main__":
    sys.exit(main())
