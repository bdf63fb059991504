"""Two recorded sequences of launches are replayed on two streams; each has a workspace of its own."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(workspace", "tl.load(workspace")


@triton_dist.jit
def first_kernel(workspace, value, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(workspace + offset, offset + value)


@triton_dist.jit
def second_kernel(workspace, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(out + offset, tl.load(workspace + offset) * 2)


def record(workspace, out, value):
    def replay():
        first_kernel[(1,)](workspace, value, COUNT=64)
        second_kernel[(1,)](workspace, out, COUNT=64)

    return replay


def run():
    workspaces, outs, side = torch.zeros(2, 64, dtype=torch.int32), torch.zeros(2, 64, dtype=torch.int32), triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    graphs = [record(workspaces[number], outs[number], number) for number in range(2)]  # wrong: workspaces[number] -> workspaces[0]
    for _ in range(2):
        graphs[0]()
        with triton_dist.stream(side):
            graphs[1]()
    triton_dist.current_stream().wait_stream(side)
