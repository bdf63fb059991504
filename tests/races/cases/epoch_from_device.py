"""An epoch that does not advance makes the second call see the signals of the first one."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(inbox, after)", "tl.load(inbox")


@triton_dist.jit
def call_kernel(inbox, ready, done, epoch, out, COUNT: tl.constexpr):
    size = dl.num_ranks()
    after, before = (dl.rank() + 1) % size, (dl.rank() + size - 1) % size
    offset = tl.arange(0, COUNT)
    now = tl.load(epoch) + 1
    dl.wait(done, 1, "sys", "acquire", waitValue=now - 1, cmp="ge")
    tl.store(dl.symm_at(inbox, after) + offset, offset + now)
    dl.notify(ready, after, signal=now, sig_op="set", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=now, cmp="ge")
    tl.store(out + offset, tl.load(inbox + offset))
    dl.notify(done, before, signal=now, sig_op="set", comm_scope="intra_node")
    tl.store(epoch, now)  # wrong: pass


def run():
    inbox = triton_dist.symm_zeros((64,), torch.int32)
    ready, done = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out, epoch = torch.zeros(64, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    for _ in range(3):
        call_kernel[(1,)](inbox, ready, done, epoch, out, COUNT=64)
