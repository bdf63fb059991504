"""A one-shot all-reduce reads the peers' inputs and ends in a barrier, before the next call stages its own (vLLM's custom all-reduce)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(staged", "tl.load(dl.symm_at(staged, peer)")


@triton_dist.jit
def meet(flags, epoch):
    for peer in range(dl.num_ranks()):
        dl.notify(flags + dl.rank(), peer, signal=epoch, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, dl.num_ranks(), "sys", "acquire", waitValue=epoch, cmp="ge")


@triton_dist.jit
def all_reduce_kernel(staged, start, end, out, call, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(staged + offset, offset + call)
    meet(start, call)
    total = tl.zeros((COUNT,), tl.int32)
    for peer in range(dl.num_ranks()):
        total += tl.load(dl.symm_at(staged, peer) + offset)
    tl.store(out + offset, total)
    meet(end, call)  # wrong: pass


def run():
    staged = triton_dist.symm_zeros((64,), torch.int32)
    start, end = triton_dist.symm_zeros((8,), torch.int32), triton_dist.symm_zeros((8,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    for call in range(1, 4):
        all_reduce_kernel[(1,)](staged, start, end, out, call, COUNT=64)
