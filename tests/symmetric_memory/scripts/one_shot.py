"""A script for torchrun and GPUs: a one-shot all-reduce over torch's symmetric memory. ``--racy`` leaves the last meeting out."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def meet_peers(signal_pads, slot, rank, WORLD: tl.constexpr):
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(tables + rank).to(tl.pointer_type(tl.uint32))
    for peer in range(WORLD):
        pad = tl.load(tables + peer).to(tl.pointer_type(tl.uint32))
        while tl.atomic_cas(pad + slot * WORLD + rank, 0, 1, sem="release", scope="sys") != 0:
            pass
    for peer in range(WORLD):
        while tl.atomic_cas(own + slot * WORLD + peer, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@triton.jit
def all_reduce_kernel(buffers, signal_pads, result, count, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr, RACY: tl.constexpr):
    block = tl.program_id(0)
    meet_peers(signal_pads, block, rank, WORLD)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    tables = buffers.to(tl.pointer_type(tl.uint64))
    total = tl.zeros([BLOCK], tl.float32)
    for peer in range(WORLD):
        buffer = tl.load(tables + peer).to(tl.pointer_type(tl.bfloat16))
        total += tl.load(buffer + offsets, mask=offsets < count, other=0.0).to(tl.float32)
    tl.store(result + offsets, total.to(tl.bfloat16), mask=offsets < count)
    if not RACY:
        tl.debug_barrier()
        meet_peers(signal_pads, block, rank, WORLD)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    buffer = symm_mem.empty(1000, dtype=torch.bfloat16, device=device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    assert buffer.is_cuda and handle.get_buffer(0, (1,), torch.float32).is_cuda
    values, results = [torch.randn(1000, device=device).round() for _ in range(3)], []
    for value in values:
        buffer.copy_(value)
        results.append(torch.empty_like(buffer))
        all_reduce_kernel[(triton.cdiv(1000, 256),)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, results[-1], 1000, rank, world_size, BLOCK=256, RACY="--racy" in sys.argv
        )
    for value, result in zip(values, results, strict=True):
        dist.all_reduce(value)
        torch.testing.assert_close(result, value.to(torch.bfloat16))
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(f"rank {rank}: done")


if __name__ == "__main__":
    main()
