"""All threads wait for a word, relaxed; the read-modify-write behind it acquires, but for the block's first thread only."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(data, 1)", "tl.store(data +")


@triton_dist.jit
def kernel(data, flag, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    if dl.rank() == 0:
        tl.store(dl.symm_at(data, 1) + place, place)
        dl.notify(flag, 1, signal=1, sig_op="set", comm_scope="intra_node")
    if dl.rank() == 1:
        dl.wait(flag, 1, "sys", "acquire", waitValue=1)  # wrong: "acquire" -> "relaxed"
        tl.atomic_add(flag, -1, sem="acq_rel", scope="sys")
        tl.store(data + place, place + 1)


def run():
    data, flag = triton_dist.symm_zeros((256,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    kernel[(1,)](data, flag, COUNT=256)
