"""Operators and kernels that tests tune: a rotation of a tile of rows, by chunks of so many elements."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl


@triton_dist.jit
def send_kernel(x, inbox, arrived, count, CHUNK: tl.constexpr):
    """To the next rank's inbox; each program adds one to its word."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)
    dl.notify(arrived, peer, signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def receive_kernel(inbox, arrived, out, count, wanted, CHUNK: tl.constexpr):
    """From the inbox to ``out``, once ``wanted`` programs have sent."""
    token = dl.wait(arrived, 1, "sys", "acquire", waitValue=wanted)
    offset = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset, mask=offset < count), mask=offset < count)


def rotate(x: torch.Tensor, inbox: torch.Tensor, arrived: torch.Tensor, chunk: int = 64, extra: int = 0) -> torch.Tensor:
    """The previous rank's ``x``. ``arrived`` has to be 0. extra: waits for so many programs more, in vain."""
    out = torch.full_like(x, -1)
    programs = triton.cdiv(x.numel(), chunk)
    send_kernel[(programs,)](x, inbox, arrived, x.numel(), chunk)
    receive_kernel[(programs,)](inbox, arrived, out, x.numel(), programs + extra, chunk)
    return out


def buffers(count: int = 256) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What ``rotate`` takes: this rank's part, and symmetric memory."""
    x = torch.arange(count, dtype=torch.float32, device=triton_dist.device()) + 1000 * triton_dist.rank()
    return x, triton_dist.symm_zeros((count,), name="inbox"), triton_dist.symm_zeros((1,), torch.int32, name="arrived")


def is_right(out: torch.Tensor) -> bool:
    """Whether ``out`` is the previous rank's part."""
    before = (triton_dist.rank() - 1) % triton_dist.world_size()
    triton_dist.synchronize()
    return out.tolist() == [1000.0 * before + number for number in range(out.numel())]
