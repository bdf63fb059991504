"""A program sees a signal with what another one of its GPU has added: that hands the release on only if its scope reaches the peer."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(dl.symm_at(data, 1)", "tl.load(data", "tl.atomic_add(flag", "dl.notify(flag")


@triton_dist.jit
def kernel(data, flag, out, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    if (dl.rank() == 0) & (tl.program_id(0) == 0):
        tl.store(dl.symm_at(data, 1) + place, place)
        dl.notify(flag, 1, signal=1, sig_op="set", comm_scope="intra_node")
    if (dl.rank() == 1) & (tl.program_id(0) == 0):
        dl.wait(flag, 1, "sys", "relaxed", waitValue=1, cmp="ge")
        tl.atomic_add(flag, 1, sem="relaxed", scope="sys")  # wrong: "sys" -> "gpu"
    if (dl.rank() == 1) & (tl.program_id(0) == 1):
        dl.wait(flag, 1, "sys", "acquire", waitValue=2, cmp="ge")
        tl.store(out + place, tl.load(data + place))


def run():
    data, flag = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
    kernel[(2,)](data, flag, out, COUNT=64)
