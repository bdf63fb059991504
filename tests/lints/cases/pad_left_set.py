"""Ranks signal their peers by a signal pad of torch's symmetric memory; who waits for a signal puts 0 back."""

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton.language as tl

import triton_dist

CODE, LINE = "TD118", "tl.atomic_cas(own"


@triton_dist.jit
def exchange_kernel(signal_pads, place: tl.constexpr, size: tl.constexpr):
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    word = tl.load(tables + (place + 1) % size).to(tl.pointer_type(tl.int32)) + place
    tl.atomic_xchg(word, 1, sem="release", scope="sys")
    own = tl.load(tables + place).to(tl.pointer_type(tl.int32)) + (place + size - 1) % size
    while tl.atomic_cas(own, 1, 0, sem="acquire", scope="sys") != 1:  # wrong: 1, 0 -> 1, 1
        pass


def run():
    dist.init_process_group("nccl")
    handle = symm_mem.rendezvous(symm_mem.empty(4), dist.group.WORLD)
    exchange_kernel[(1,)](handle.signal_pad_ptrs_dev, handle.rank, handle.world_size)
