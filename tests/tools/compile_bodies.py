"""Functions that ``torch.compile`` gets: our kernels and operators between torch's own."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops import all_reduce


@triton_dist.jit
def add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offset, tl.load(x + offset, mask=offset < count) + tl.load(y + offset, mask=offset < count), mask=offset < count)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A kernel that does not communicate."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return torch.relu(out) * 2


@triton_dist.jit
def rotate_kernel(x, inbox, arrived, out, COUNT: tl.constexpr):
    peer = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset))
    dl.notify(arrived, peer, signal=1, sig_op="set", comm_scope="intra_node")
    token = dl.wait(arrived, 1, "sys", "acquire", waitValue=1)
    tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset))


def rotate(x: torch.Tensor, inbox: torch.Tensor, arrived: torch.Tensor) -> torch.Tensor:
    """A kernel that does: the previous rank's ``2 * x``, plus 1."""
    out = torch.empty_like(x)
    rotate_kernel[(1,)](x * 2, inbox, arrived, out, COUNT=64)
    return out + 1


def reduce(x: torch.Tensor) -> torch.Tensor:
    """An operator of the package as it is: torch.compile runs it between what it compiles."""
    return all_reduce(x * 2) + 1


@torch.library.custom_op("triton_dist_test::all_reduce", mutates_args=())
def all_reduce_op(x: torch.Tensor) -> torch.Tensor:
    """The operator as one of torch's: part of a graph."""
    return all_reduce(x)


@all_reduce_op.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def reduce_in_graph(x: torch.Tensor) -> torch.Tensor:
    return all_reduce_op(x * 2) + 1


def run(name: str, backend: Any, fullgraph: bool) -> bool:
    """On a rank: the function of that name, compiled and called twice. Whether it is right."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    device = triton_dist.device()
    torch._dynamo.reset()
    compiled = torch.compile(globals()[name], backend=backend, fullgraph=fullgraph)
    base = torch.arange(64.0, device=device)
    before = (rank - 1) % size
    for call in range(2):
        x = base + rank + call
        if name == "rotate":
            inbox, arrived = triton_dist.symm_zeros((64,)), triton_dist.symm_zeros((1,), torch.int32)
            out, expected = compiled(x, inbox, arrived), 2 * (base + before + call) + 1
        else:
            out, expected = compiled(x), 2 * sum(base + each + call for each in range(size)) + 1
        triton_dist.synchronize()
        if not torch.equal(out, expected):
            return False
    return True
