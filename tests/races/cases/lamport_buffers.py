"""A buffer is cleared for a later call when all have read it: with three in turn it is, with two it is not (FlashInfer's all-reduce)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(buffer", "tl.store(dl.symm_at(buffer, peer)")


@triton_dist.jit
def call_kernel(buffer, flags, out, call, BUFFERS: tl.constexpr, COUNT: tl.constexpr):
    me, size, offset = dl.rank(), dl.num_ranks(), tl.arange(0, COUNT)
    mine, cleared = call % BUFFERS * 4 * COUNT, (call + 2) % BUFFERS * 4 * COUNT
    for peer in range(size):
        tl.store(dl.symm_at(buffer, peer) + mine + me * COUNT + offset, offset)
        dl.notify(flags + me, peer, signal=call, sig_op="set", comm_scope="intra_node")
    for peer in range(size):
        tl.store(buffer + cleared + peer * COUNT + offset, -1)
    dl.wait(flags, size, "sys", "acquire", waitValue=call, cmp="ge")
    for peer in range(size):
        tl.store(out + peer * COUNT + offset, tl.load(buffer + mine + peer * COUNT + offset))


def run():
    buffer, flags = triton_dist.symm_zeros((3 * 4 * 64,), torch.int32), triton_dist.symm_zeros((8,), torch.int32)
    out = torch.zeros(4 * 64, dtype=torch.int32)
    for call in range(1, 6):
        call_kernel[(1,)](buffer, flags, out, call, BUFFERS=3, COUNT=64)  # wrong: BUFFERS=3 -> BUFFERS=2
