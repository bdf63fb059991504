"""Blocks are copied into a peer's slot, added up there, and the peer says at its next call that the slot is free again."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.runtime.streams import Wait, Write, copy_async, signal_batch, write_value

RACING = ("copy", "tl.load(slots")


@triton_dist.jit
def add_kernel(slots, arrived, out, peer, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    dl.wait(arrived + peer, 1, "sys", "acquire", waitValue=1, cmp="ge")
    tl.store(out + offset, tl.load(slots + offset) + tl.load(slots + COUNT + offset))
    tl.store(arrived + peer, 0)


def run():
    rank, size, count = triton_dist.rank(), triton_dist.world_size(), 64
    if rank > 1:
        return
    team = triton_dist.make_team([0, 1]) if size > 2 else None
    peer = 1 - rank
    slots = triton_dist.symm_zeros((2, count), torch.int32, group=team)
    arrived, ready = (triton_dist.symm_zeros((2,), torch.int32, group=team) for _ in range(2))
    outs, blocks, own = torch.zeros(3, count, dtype=torch.int32), torch.arange(3 * count, dtype=torch.int32).view(3, count), slots[rank]
    for call in range(3):
        write_value(triton_dist.symm_peer(ready, peer)[rank], 1)
        signal_batch([Wait(ready[peer], 1), Write(ready[peer], 0)])  # wrong: Wait(ready[peer], 1) -> *()
        copy_async(triton_dist.symm_peer(slots, peer)[rank], blocks[call])
        write_value(triton_dist.symm_peer(arrived, peer)[rank], 1)
        own.copy_(blocks[call])
        add_kernel[(1,)](slots, arrived, outs[call], peer, COUNT=count)
