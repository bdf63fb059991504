"""The same products by libraries: cuBLAS through torch, NCCL through torch.distributed, and torch's fused operator."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ...errors import InvalidArgumentError

_HALF_AND_MORE = (torch.float16, torch.bfloat16, torch.float32)


def matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor] | None) -> None:
    """``out = a @ b``, times both scales. a: (M, K), b: (K, N), both fp8 or both of a wider type."""
    if a.dtype in _HALF_AND_MORE:
        if out.is_contiguous():
            torch.matmul(a, b, out=out)
        else:
            out.copy_(a @ b)
    elif a.device.type == "cuda" and b.stride(0) == 1 and not any(size % 16 for size in b.shape):
        scale_a, scale_b = scales or (torch.ones((), device=a.device),) * 2
        out.copy_(torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out.dtype))
    else:  # no library multiplies these
        product = a.float() @ b.float()
        out.copy_(product * scales[0] * scales[1] if scales else product)


def nccl_ag_gemm(shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scales: tuple | None, group: object) -> None:
    """``torch.distributed``'s all-gather, then ``matmul``."""
    if not dist.is_initialized():
        raise InvalidArgumentError("ag_gemm: method='nccl' needs torch.distributed; call init_process_group first, or use another method")
    _check_group(group, "nccl")
    size = dist.get_world_size(group)  # type: ignore[arg-type]
    gathered = torch.empty((size * shard.shape[0], shard.shape[1]), dtype=shard.dtype, device=shard.device)
    wide = shard.dtype in _HALF_AND_MORE
    dist.all_gather_into_tensor(gathered if wide else gathered.view(torch.uint8), shard if wide else shard.view(torch.uint8), group=group)  # type: ignore[arg-type]
    matmul(gathered, b, out, scales)


def torch_ag_gemm(shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scales: tuple | None, group: object) -> None:
    """torch's ``symm_mem::fused_all_gather_matmul``, for GPUs."""
    if shard.device.type != "cuda" or shard.dtype not in _HALF_AND_MORE:
        raise InvalidArgumentError(
            f"ag_gemm: method='torch' takes fp16, bf16 and fp32 on GPUs, not {shard.dtype} on {shard.device.type}; use another method"
        )
    _check_group(group, "torch")
    import torch.distributed._symmetric_memory  # noqa: F401  registers the operator

    name = (group if group is not None else dist.group.WORLD).group_name  # type: ignore[attr-defined]
    _, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(shard, [b], gather_dim=0, group_name=name)
    out.copy_(product)


def _check_group(group: object, method: str) -> None:
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise InvalidArgumentError(f"ag_gemm: method={method!r} needs a torch.distributed process group or None, not group={group!r}")
