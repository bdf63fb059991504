"""A barrier that sets 1 and waits for 1 is none the second time; epochs grow (as in hw-native-sys/pypto pull request 1829)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def meet(flags, epoch):
    for peer in range(dl.num_ranks()):
        dl.notify(flags + dl.rank(), peer, signal=epoch, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, dl.num_ranks(), "sys", "acquire", waitValue=epoch, cmp="ge")


@triton_dist.jit
def rounds_kernel(inbox, flags, out, COUNT: tl.constexpr):
    after, offset = (dl.rank() + 1) % dl.num_ranks(), tl.arange(0, COUNT)
    epoch = 1
    for number in range(2):
        tl.store(dl.symm_at(inbox, after) + offset, offset + number)
        meet(flags, epoch)
        tl.store(out + offset, tl.load(inbox + offset))
        epoch += 1  # wrong: pass
        meet(flags, epoch)
        epoch += 1


def run():
    inbox, flags = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((8,), torch.int32)
    rounds_kernel[(1,)](inbox, flags, torch.zeros(64, dtype=torch.int32), COUNT=64)
