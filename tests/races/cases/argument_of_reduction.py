"""A rank that has its sum does not write a peer's argument, which others may still read (as in openshmem-org/specification issue 74)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(value, after)", "tl.load(dl.symm_at(value, peer)")


@triton_dist.jit
def meet(flags, epoch):
    for peer in range(dl.num_ranks()):
        dl.notify(flags + dl.rank(), peer, signal=epoch, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, dl.num_ranks(), "sys", "acquire", waitValue=epoch, cmp="ge")


@triton_dist.jit
def sum_then_put_kernel(value, flags, out, COUNT: tl.constexpr):
    offset, after = tl.arange(0, COUNT), (dl.rank() + 1) % dl.num_ranks()
    tl.store(value + offset, offset)
    meet(flags, 1)
    total = tl.zeros((COUNT,), tl.int32)
    for peer in range(dl.num_ranks()):
        total += tl.load(dl.symm_at(value, peer) + offset)
    tl.store(out + offset, total)
    meet(flags, 2)  # wrong: pass
    tl.store(dl.symm_at(value, after) + offset, total)


def run():
    value, flags = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((8,), torch.int32)
    sum_then_put_kernel[(1,)](value, flags, torch.zeros(64, dtype=torch.int32), COUNT=64)
