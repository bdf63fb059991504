"""Megatron's multicast collectives for inference, called as its layers call them, against torch.

    triton-dist run --ranks 4 tests/outside/megatron_collectives.py FILE NAME

FILE: the collectives', in a folder of Megatron's package. NAME: a function below. Prints one line on rank 0.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

ROWS, HIDDEN = 4, 1024
"""Of each rank's tensor; its own test has these."""

bf16 = torch.bfloat16


def _buffer():
    from megatron.core.inference.symmetric_memory import SymmetricMemoryManager

    return SymmetricMemoryManager.get_buffer("tp", process_group=dist.group.WORLD, size_mb=1)


def _symmetric(*shape: int):
    """A tensor at the begin of Megatron's symmetric buffer, and the handle."""
    got = _buffer().maybe_get_tensor(list(shape), bf16)
    return got["tensor"], got["handle"]


def _gathered(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0] * dist.get_world_size(), *x.shape[1:], dtype=x.dtype, device="cuda")
    dist.all_gather_into_tensor(out, x)
    return out


def _scattered_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0] // dist.get_world_size(), *x.shape[1:], dtype=torch.float32, device="cuda")
    dist.reduce_scatter_tensor(out, x.float())
    return out


def all_gather(collectives) -> None:
    """Twice, into one buffer."""
    world_size = dist.get_world_size()
    for again in (False, True):
        x = torch.randn(ROWS, HIDDEN, device="cuda").to(bf16)
        out, handle = _symmetric(ROWS * world_size, HIDDEN)
        collectives.multimem_all_gather(out, x, handle, barrier_before=again)
        torch.testing.assert_close(out, _gathered(x), rtol=0, atol=0)


def reduce_scatter_then_all_gather(collectives) -> None:
    world_size = dist.get_world_size()
    x = torch.randn(ROWS * world_size, HIDDEN, device="cuda").to(bf16)
    staged, handle = _symmetric(ROWS * world_size, HIDDEN)
    staged.copy_(x)
    out = torch.empty(ROWS, HIDDEN, dtype=bf16, device="cuda")
    collectives.multimem_reduce_scatter(out, staged, handle)
    torch.testing.assert_close(out.float(), _scattered_sum(x), rtol=2e-2, atol=2e-2)
    collectives.multimem_all_gather(staged, out, handle)
    torch.testing.assert_close(staged, _gathered(out), rtol=0, atol=0)


def all_gather_of_three(collectives) -> None:
    world_size = dist.get_world_size()
    parts = [torch.randn(ROWS, HIDDEN >> number, device="cuda").to(bf16) for number in range(3)]
    got = _buffer().maybe_get_tensors([(part.numel() * world_size, bf16) for part in parts])
    outs = [view.view(bf16).view(ROWS * world_size, -1) for view, _ in got["tensors"]]
    arguments = [item for part, out, (_, offset) in zip(parts, outs, got["tensors"], strict=True) for item in (out, part, offset)]
    collectives.multimem_all_gather_fused(*arguments, got["handle"])
    for part, out in zip(parts, outs, strict=True):
        torch.testing.assert_close(out, _gathered(part), rtol=0, atol=0)


def reduce_scatter_add_norm_all_gather(collectives) -> None:
    world_size = dist.get_world_size()
    x = torch.randn(ROWS * world_size, HIDDEN, device="cuda").to(bf16)
    residual = torch.randn(ROWS, HIDDEN, device="cuda").to(bf16)
    torch.manual_seed(7)
    weights = torch.randn(HIDDEN, device="cuda").to(bf16)
    staged, handle = _symmetric(ROWS * world_size, HIDDEN)
    staged.copy_(x)
    out = torch.empty_like(residual)
    collectives.fused_multimem_rs_add_norm_ag(out, staged, handle, residual, weights, 1e-5)
    wanted = _scattered_sum(x) + residual.float()
    torch.testing.assert_close(out.float(), wanted, rtol=3e-2, atol=3e-2)
    normed = torch.nn.functional.rms_norm(out.float(), (HIDDEN,), weights.float(), 1e-5).to(bf16)
    torch.testing.assert_close(staged, _gathered(normed), rtol=2e-2, atol=2e-2)


def all_gather_v_then_reduce_scatter_v(collectives) -> None:
    """Another number of rows on each rank."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = [1 + (3 * peer) % 4 for peer in range(world_size)]
    offset = torch.tensor([sum(numbers[:rank])], dtype=torch.int32, device="cuda")
    most = torch.tensor([max(numbers)], dtype=torch.int32, device="cuda")
    parts = [torch.randn(number, HIDDEN, generator=torch.Generator().manual_seed(peer)).to(bf16) for peer, number in enumerate(numbers)]
    x = parts[rank].cuda()
    out, handle = _symmetric(sum(numbers), HIDDEN)
    collectives.multimem_all_gather_v(out, x, handle, offset, most, max(numbers))
    wanted = torch.cat(parts)
    torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0)
    dist.barrier()
    out.mul_(rank + 1)  # each rank's share of the sum
    mine = torch.empty(numbers[rank], HIDDEN, dtype=bf16, device="cuda")
    collectives.multimem_reduce_scatter_v(mine, out, handle, offset, most, max(numbers))
    total = sum((wanted * (peer + 1)).float() for peer in range(world_size))
    begin = sum(numbers[:rank])
    torch.testing.assert_close(mine.cpu().float(), total[begin : begin + numbers[rank]], rtol=2e-2, atol=2e-2)


def main() -> int:
    path, name = sys.argv[1:]
    sys.path.append(str(Path(path).resolve().parents[5]))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(42 + dist.get_rank())
    globals()[name](importlib.import_module("megatron.core.inference.communication.torch_symm_triton"))
    torch.cuda.synchronize()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{name} passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
