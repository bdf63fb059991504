"""The second half of a two-shot all-reduce gathers parts that the peers have reduced; a barrier stands between."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(part", "tl.load(dl.symm_at(part, peer)")


@triton_dist.jit
def meet(flags, epoch):
    for peer in range(dl.num_ranks()):
        dl.notify(flags + dl.rank(), peer, signal=epoch, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, dl.num_ranks(), "sys", "acquire", waitValue=epoch, cmp="ge")


@triton_dist.jit
def all_reduce_kernel(staged, part, flags, out, COUNT: tl.constexpr):
    offset, me = tl.arange(0, COUNT), dl.rank()
    for peer in range(dl.num_ranks()):
        tl.store(staged + peer * COUNT + offset, offset + me)
    meet(flags, 1)
    total = tl.zeros((COUNT,), tl.int32)
    for peer in range(dl.num_ranks()):
        total += tl.load(dl.symm_at(staged, peer) + me * COUNT + offset)
    tl.store(part + offset, total)
    meet(flags, 2)  # wrong: pass
    for peer in range(dl.num_ranks()):
        tl.store(out + peer * COUNT + offset, tl.load(dl.symm_at(part, peer) + offset))


def run():
    staged, part = triton_dist.symm_zeros((4 * 64,), torch.int32), triton_dist.symm_zeros((64,), torch.int32)
    flags = triton_dist.symm_zeros((8,), torch.int32)
    all_reduce_kernel[(1,)](staged, part, flags, torch.zeros(4 * 64, dtype=torch.int32), COUNT=64)
