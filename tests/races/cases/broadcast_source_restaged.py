"""The root of a broadcast stages the next one only when every rank has read this one (as in hw-native-sys/pypto pull request 2175)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(stage", "tl.load(dl.symm_at(stage, 0)")


@triton_dist.jit
def broadcast_kernel(stage, ready, read, out, call, COUNT: tl.constexpr):
    size, offset = dl.num_ranks(), tl.arange(0, COUNT)
    if dl.rank() == 0:
        dl.wait(read, 1, "sys", "acquire", waitValue=(call - 1) * size, cmp="ge")  # wrong: pass
        tl.store(stage + offset, offset + call)
        for peer in range(size):
            dl.notify(ready, peer, signal=call, sig_op="set", comm_scope="intra_node")
    dl.wait(ready, 1, "sys", "acquire", waitValue=call, cmp="ge")
    tl.store(out + offset, tl.load(dl.symm_at(stage, 0) + offset))
    dl.notify(read, 0, signal=1, sig_op="add", comm_scope="intra_node")


def run():
    stage = triton_dist.symm_zeros((64,), torch.int32)
    ready, read = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    for call in range(1, 4):
        broadcast_kernel[(1,)](stage, ready, read, out, call, COUNT=64)
