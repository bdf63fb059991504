"""The same products by libraries: cuBLAS through torch, NCCL through torch.distributed, and torch's fused operator."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ...errors import InvalidArgumentError
from ..team import Team, without_mesh
from .operands import Operands

_HALF_AND_MORE = (torch.float16, torch.bfloat16, torch.float32)


def knows(a: torch.dtype, b: torch.dtype) -> bool:
    """Whether cuBLAS multiplies matrices of these types, which are two of fp8 or two wider ones: it takes one of e5m2 at most."""
    return not a == b == torch.float8_e5m2


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor] | None,
    bias: torch.Tensor | None = None,
) -> None:
    """``out = a @ b``, times both scales, plus ``bias``, (N,). a: (M, K), b: (K, N), both fp8 or both of a wider type."""
    if a.dtype in _HALF_AND_MORE:
        if not out.is_contiguous():
            out.copy_(a @ b if bias is None else torch.addmm(bias, a, b))
        elif bias is None:
            torch.matmul(a, b, out=out)
        else:
            torch.addmm(bias, a, b, out=out)
    elif a.device.type == "cuda" and knows(a.dtype, b.dtype) and b.stride(0) == 1 and not any(size % 16 for size in b.shape):
        scale_a, scale_b = scales or (torch.ones((), device=a.device),) * 2
        fits = out.dtype != torch.float32  # the library adds no bias to fp32
        added = bias if fits else None
        if out.is_contiguous():
            torch._scaled_mm(a, b, scale_a, scale_b, bias=added, out_dtype=out.dtype, out=out)
        else:
            out.copy_(torch._scaled_mm(a, b, scale_a, scale_b, bias=added, out_dtype=out.dtype))
        if bias is not None and not fits:
            out.add_(bias)
    else:  # no library multiplies these
        product = a.float() @ b.float()
        product = product * scales[0] * scales[1] if scales else product
        out.copy_(product if bias is None else product + bias)


def reduce_scatter_product(operands: Operands, out: torch.Tensor, team: Team, group: object) -> None:
    """The product with the first rank's bias, then ``torch.distributed``'s reduce-scatter of its rows."""
    group = _process_group("gemm_rs", group)
    product = torch.empty((operands.a.shape[0], operands.columns), dtype=out.dtype, device=out.device)
    matmul(operands.a, operands.b, product, operands.scales, operands.bias if team.index == 0 else None)
    # One collective; the older name of it warns at every call where there is a new one.
    reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    reduce_scatter(out, product, group=group)


def all_reduce_product(operands: Operands, out: torch.Tensor, team: Team, group: object) -> None:
    """The product with the first rank's bias, then ``torch.distributed``'s all-reduce."""
    group = _process_group("gemm_ar", group)
    matmul(operands.a, operands.b, out, operands.scales, operands.bias if team.index == 0 else None)
    dist.all_reduce(out, group=group)


def torch_gemm_rs(operands: Operands, out: torch.Tensor, team: Team, group: object) -> None:
    """torch's ``symm_mem::fused_matmul_reduce_scatter``, for GPUs."""
    a = operands.a
    if a.device.type != "cuda" or a.dtype not in _HALF_AND_MORE:
        raise InvalidArgumentError(
            f"gemm_rs: method='torch' takes fp16, bf16 and fp32 on GPUs, not {a.dtype} on {a.device.type}; use another method"
        )
    group = _process_group("gemm_rs", group)
    import torch.distributed._symmetric_memory  # noqa: F401  registers the operator

    name = (group if group is not None else dist.group.WORLD).group_name  # type: ignore[union-attr]
    out.copy_(torch.ops.symm_mem.fused_matmul_reduce_scatter(a, operands.b, "sum", scatter_dim=0, group_name=name))
    if operands.bias is not None:
        out.add_(operands.bias)


def nccl_ag_gemm(
    shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scales: tuple | None, group: object, gathered: torch.Tensor | None = None
) -> None:
    """``torch.distributed``'s all-gather, to ``gathered`` if given, then ``matmul``."""
    group = _process_group("ag_gemm", group)
    size = dist.get_world_size(group)
    if gathered is None:
        gathered = torch.empty((size * shard.shape[0], shard.shape[1]), dtype=shard.dtype, device=shard.device)
    wide = shard.dtype in _HALF_AND_MORE
    # The older name of it warns at every call where there is a new one.
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    all_gather(gathered if wide else gathered.view(torch.uint8), shard if wide else shard.view(torch.uint8), group=group)
    matmul(gathered, b, out, scales)


def torch_ag_gemm(
    shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scales: tuple | None, group: object, gathered: torch.Tensor | None = None
) -> None:
    """torch's ``symm_mem::fused_all_gather_matmul``, for GPUs. gathered: gets the gathered rows, too."""
    if shard.device.type != "cuda" or shard.dtype not in _HALF_AND_MORE:
        raise InvalidArgumentError(
            f"ag_gemm: method='torch' takes fp16, bf16 and fp32 on GPUs, not {shard.dtype} on {shard.device.type}; use another method"
        )
    group = _process_group("ag_gemm", group)
    import torch.distributed._symmetric_memory  # noqa: F401  registers the operator

    name = (group if group is not None else dist.group.WORLD).group_name  # type: ignore[union-attr]
    rows, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(shard, [b], gather_dim=0, group_name=name)
    out.copy_(product)
    if gathered is not None:
        gathered.copy_(rows)


def _process_group(what: str, group: object) -> dist.ProcessGroup | None:
    """What the library takes as ``group``. Raises InvalidArgumentError where there is none."""
    if not dist.is_initialized():
        raise InvalidArgumentError(f"{what}: this method needs torch.distributed; call init_process_group first, or use another method")
    found = without_mesh(group, what)
    if isinstance(found, Team):
        raise InvalidArgumentError(
            f"{what}: this method needs a torch.distributed process group, a DeviceMesh or None, not group={group!r}; pass the one "
            "that the team was made from, or use another method"
        )
    return found
