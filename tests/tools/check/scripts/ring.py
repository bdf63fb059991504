"""Each rank passes a tile on to the next one. The first argument says what is wrong with it."""

import os
import sys

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

HOW = sys.argv[1] if len(sys.argv) > 1 else "right"


@triton.jit
def pass_on_kernel(inbox, signals, out, stride, TILE: tl.constexpr, ANNOUNCE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    after = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(inbox, after) + stride + lanes, dl.rank() + lanes)
    if ANNOUNCE:
        dl.notify(signals, after, comm_scope="intra_node")
        dl.wait(signals, 1, "sys", "acquire")
    tl.store(out + lanes, tl.load(inbox + stride + lanes))


inbox = triton_dist.symm_zeros((4096,), torch.int32)
signals = triton_dist.symm_zeros((1,), torch.int32)
out = torch.zeros(1024, dtype=torch.int32, device=triton_dist.device())
print(f"rank {triton_dist.rank()} says hello")
if HOW == "hang":
    while True:
        pass
if HOW == "abort":
    os.abort()
if HOW == "raise":
    raise ValueError("no luck today")
if HOW == "exit":
    sys.exit(4)
pass_on_kernel[(1,)](inbox, signals, out, 3 if HOW == "narrow" else 0, 1024, HOW != "racy")
triton_dist.synchronize()
