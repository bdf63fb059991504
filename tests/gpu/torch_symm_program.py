"""One rank that hands memory both ways between torch's symmetric memory and this package, on GPUs.

``torchrun --nproc-per-node 2 tests/gpu/torch_symm_program.py`` prints a line a part: ``name: right`` or ``name: wrong on ranks [...]``.
It ends by itself after three minutes, whatever hangs. Each rank needs a GPU of its own.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops.collectives.barrier import barrier

COUNT, BLOCK, ROUNDS = 4096, 1024, 4


@triton.jit
def meet_peers(signal_pads, slot, RANK: tl.constexpr, WORLD: tl.constexpr):
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(tables + RANK).to(tl.pointer_type(tl.int32))
    for peer in range(WORLD):
        pad = tl.load(tables + peer).to(tl.pointer_type(tl.int32))
        while tl.atomic_cas(pad + slot * WORLD + RANK, 0, 1, sem="release", scope="sys") != 0:
            pass
    for peer in range(WORLD):
        while tl.atomic_cas(own + slot * WORLD + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@triton.jit
def all_reduce_kernel(buffers, signal_pads, result, RANK: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    meet_peers(signal_pads, block, RANK, WORLD)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for peer in range(WORLD):
        total += tl.load(tl.load(buffers.to(tl.pointer_type(tl.uint64)) + peer).to(tl.pointer_type(tl.float32)) + offsets)
    tl.store(result + offsets, total)
    tl.debug_barrier()
    meet_peers(signal_pads, block, RANK, WORLD)


@triton_dist.jit
def gather_kernel(source, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    for peer in range(dl.num_ranks()):
        tl.store(out + peer * COUNT + offset, tl.load(dl.symm_at(source, peer) + offset))


def all_reduces(buffer: torch.Tensor, handle) -> bool:
    """Several one-shot all-reduces in a row by a handle's tables; the pad is zero behind them."""
    results = []
    for number in range(ROUNDS):
        buffer.fill_(handle.rank + number)
        results.append(torch.empty(COUNT, device=buffer.device))
        all_reduce_kernel[(COUNT // BLOCK,)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, results[-1], handle.rank, handle.world_size, BLOCK
        )
    torch.cuda.synchronize()
    pad_is_zero = not handle.get_signal_pad(handle.rank).view(torch.int32).any().item()
    wanted = [float(sum(range(number, number + handle.world_size))) for number in range(ROUNDS)]
    return pad_is_zero and all(bool((result == value).all()) for result, value in zip(results, wanted, strict=True))


def torch_memory_by_its_handle() -> bool:
    buffer = symm_mem.empty(COUNT, dtype=torch.float32, device=triton_dist.device())
    return all_reduces(buffer, symm_mem.rendezvous(buffer, dist.group.WORLD))


def our_memory_by_symm_handle() -> bool:
    buffer = triton_dist.symm_empty(COUNT)
    return all_reduces(buffer, triton_dist.symm_handle(buffer))


def torch_memory_in_our_primitives() -> bool:
    """Written by torch through its handle, read by our kernels through the adopted tensor."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    theirs = symm_mem.empty(256, dtype=torch.float32, device=triton_dist.device())
    handle = symm_mem.rendezvous(theirs, dist.group.WORLD)
    refused = False
    try:
        triton_dist.symm_peer(theirs, 0)
    except triton_dist.errors.NotSymmetricError as error:
        refused = "symm_adopt" in str(error)
    ours = triton_dist.symm_adopt(theirs)
    handle.get_buffer((rank + 1) % size, (256,), torch.float32).fill_(rank)
    torch.cuda.synchronize()
    barrier()
    out = torch.empty(size, 256, device=theirs.device)
    gather_kernel[(1,)](ours, out, 256)
    barrier()
    return refused and [row.unique().tolist() for row in out] == [[float((peer - 1) % size)] for peer in range(size)]


def our_memory_in_torchs_operators() -> bool:
    """An error, never a wrong sum."""
    ours = triton_dist.symm_empty(64)
    try:
        torch.ops.symm_mem.one_shot_all_reduce(ours, "sum", dist.group.WORLD.group_name)
        torch.cuda.synchronize()
    except (RuntimeError, ValueError) as error:
        return bool(str(error))
    return False


PARTS = (torch_memory_by_its_handle, our_memory_by_symm_handle, torch_memory_in_our_primitives, our_memory_in_torchs_operators)


def main() -> int:
    faulthandler.dump_traceback_later(180, exit=True)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    triton_dist.initialize()
    failed = False
    for part in PARTS:
        try:
            right = part()
        except Exception:
            traceback.print_exc()
            right = False
        outcomes: list[bool] = [False] * triton_dist.world_size()
        dist.all_gather_object(outcomes, right)
        wrong = [rank for rank, good in enumerate(outcomes) if not good]
        failed |= bool(wrong)
        if triton_dist.rank() == 0:
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
    triton_dist.finalize()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
