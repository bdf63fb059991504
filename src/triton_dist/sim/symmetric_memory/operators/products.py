"""Matrix products fused with an all-gather or a reduce-scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from ....errors import SymmetricMemoryError, UnsupportedOperationError
from ...context import RankContext
from ..arguments import dimension
from ..groups import team_of
from ..meeting import Tensors
from .common import Operator, meet, reduction, total


def _all_gather_matmul(
    rank: RankContext, A: torch.Tensor, Bs: list[torch.Tensor], gather_dim: int, group_name: str, return_A: bool = True
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """The shards ``A`` of all ranks along ``gather_dim``, and its products with ``Bs``."""
    name = "fused_all_gather_matmul"
    gather_dim = dimension(gather_dim, A.dim(), name, "gather_dim")
    gathered = _empty(_grown(A, gather_dim, team_of(rank, group_name).size), gather_dim, A.dtype)
    for B in Bs:
        _check_product(name, gathered, B)
        _check_dtypes(name, A, B)
    outs = [_empty((*gathered.shape[:-1], B.shape[-1]), gather_dim, B.dtype) for B in Bs]

    def run(parts: Sequence[Tensors]) -> None:
        whole = torch.cat([part["A"] for part in parts], gather_dim)
        for part in parts:
            part["gathered"].copy_(whole)
            for B, out in zip(part["Bs"], part["outs"], strict=True):
                out.copy_(torch.matmul(whole, B))

    tensors = {"A": A, "Bs": Bs, "gathered": gathered, "outs": outs}
    agree = (tuple(A.shape), A.dtype, gather_dim)
    meet(rank, group_name, name, tensors, run, read=[A, *Bs], written=[gathered, *outs], agree=agree)
    return (gathered if return_A else None), outs


def _all_gather_scaled_matmul(
    rank: RankContext,
    A: torch.Tensor,
    Bs: list[torch.Tensor],
    A_scale: torch.Tensor,
    B_scales: list[torch.Tensor],
    gather_dim: int,
    group_name: str,
    biases: list[torch.Tensor | None],
    result_scales: list[torch.Tensor | None],
    out_dtypes: list[torch.dtype | None],
    use_fast_accum: list[bool],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """As ``fused_all_gather_matmul`` for 8-bit floats. A_scale: one, or one a row of the shard or of the gathered matrix."""
    name = "fused_all_gather_scaled_matmul"
    _no_result_scale(name, result_scales)
    gather_dim = dimension(gather_dim, A.dim(), name, "gather_dim")
    counts = {"B_scales": len(B_scales), "biases": len(biases), "result_scales": len(result_scales), "out_dtypes": len(out_dtypes)}
    for what, count in counts.items():
        if count != len(Bs):
            raise SymmetricMemoryError(f"{name}: {count} {what} for {len(Bs)} matrices Bs; give one for each")
    gathered = _empty(_grown(A, gather_dim, team_of(rank, group_name).size), gather_dim, A.dtype)
    for B, B_scale, bias in zip(Bs, B_scales, biases, strict=True):
        _check_product(name, gathered, B)
        _check_scale(name, B, B_scale, bias)
    sharded = A_scale.dim() > 0 and A_scale.shape[:-1] == A.shape[:-1] and A_scale.shape[-1] == 1
    if not sharded and A_scale.numel() != 1 and A_scale.shape[:-1] != gathered.shape[:-1]:
        raise SymmetricMemoryError(f"{name}: A_scale of shape {list(A_scale.shape)} fits neither A {list(A.shape)} nor all of it")
    dtypes = [_dtype(name, out_dtype) or A.dtype for out_dtype in out_dtypes]
    outs = [_empty((*gathered.shape[:-1], B.shape[-1]), gather_dim, dtype) for B, dtype in zip(Bs, dtypes, strict=True)]

    def run(parts: Sequence[Tensors]) -> None:
        whole = torch.cat([_bytes(part["A"]) for part in parts], gather_dim).view(A.dtype)
        all_scales = torch.cat([part["A_scale"] for part in parts], gather_dim) if sharded else None
        for part in parts:
            part["gathered"].copy_(whole)
            scale = part["A_scale"] if all_scales is None else all_scales
            for B, B_scale, bias, out in zip(part["Bs"], part["B_scales"], part["biases"], part["outs"], strict=True):
                out.copy_(_scaled(whole, B, scale, B_scale, bias))

    tensors = {"A": A, "Bs": Bs, "A_scale": A_scale, "B_scales": B_scales, "biases": biases, "gathered": gathered, "outs": outs}
    read = [A, *Bs, A_scale, *B_scales, *(bias for bias in biases if bias is not None)]
    meet(rank, group_name, name, tensors, run, read=read, written=[gathered, *outs], agree=(tuple(A.shape), A.dtype, gather_dim))
    return gathered, outs


def _matmul_reduce_scatter(
    rank: RankContext, A: torch.Tensor, B: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str
) -> torch.Tensor:
    """The products of all ranks summed, each rank's part along ``scatter_dim``."""
    name = "fused_matmul_reduce_scatter"
    _check_product(name, A, B)
    _check_dtypes(name, A, B)
    scatter_dim = dimension(scatter_dim, A.dim(), name, "scatter_dim")
    product = torch.Size((*A.shape[:-1], B.shape[-1]))
    out = A.new_empty(_parted(name, product, scatter_dim, team_of(rank, group_name).size))

    def multiply(part: Tensors) -> torch.Tensor:
        return torch.matmul(part["A"], part["B"])

    _reduce_products(rank, name, {"A": A, "B": B, "out": out}, multiply, reduce_op, scatter_dim, group_name, [A, B])
    return out


def _scaled_matmul_reduce_scatter(
    rank: RankContext,
    A: torch.Tensor,
    B: torch.Tensor,
    A_scale: torch.Tensor,
    B_scale: torch.Tensor,
    reduce_op: str,
    orig_scatter_dim: int,
    scatter_dim_after_maybe_reshape: int,
    group_name: str,
    output_shape: list[int] | None,
    bias: torch.Tensor | None,
    result_scale: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> torch.Tensor:
    """As ``fused_matmul_reduce_scatter`` for 8-bit floats. output_shape: of the product, where ``A`` was reshaped to a matrix."""
    name = "fused_scaled_matmul_reduce_scatter"
    _no_result_scale(name, [result_scale])
    _check_product(name, A, B)
    _check_scale(name, B, B_scale, bias)
    shape = (*(output_shape or A.shape)[:-1], B.shape[-1])
    if prod(shape[:-1]) != prod(A.shape[:-1]):
        raise SymmetricMemoryError(f"{name}: output_shape={list(output_shape or ())} has not the rows of A {list(A.shape)}")
    if A_scale.numel() not in (1, prod(A.shape[:-1])):
        raise SymmetricMemoryError(f"{name}: A_scale of shape {list(A_scale.shape)} is not one, nor one a row of A {list(A.shape)}")
    orig_scatter_dim = dimension(orig_scatter_dim, len(shape), name, "orig_scatter_dim")
    dtype = _dtype(name, out_dtype) or A.dtype
    out = torch.empty(_parted(name, torch.Size(shape), orig_scatter_dim, team_of(rank, group_name).size), dtype=dtype)

    def multiply(part: Tensors) -> torch.Tensor:
        return _scaled(part["A"], part["B"], part["A_scale"], part["B_scale"], part["bias"]).to(dtype).view(shape)

    tensors = {"A": A, "B": B, "A_scale": A_scale, "B_scale": B_scale, "bias": bias, "out": out}
    read = [A, B, A_scale, B_scale, *([bias] if bias is not None else [])]
    _reduce_products(rank, name, tensors, multiply, reduce_op, orig_scatter_dim, group_name, read)
    return out


def _reduce_products(
    rank: RankContext,
    name: str,
    tensors: Tensors,
    multiply: Callable[[Tensors], torch.Tensor],
    reduce_op: str,
    dim: int,
    group_name: str,
    read: list[torch.Tensor],
) -> None:
    operation = reduction(reduce_op, name)

    def run(parts: Sequence[Tensors]) -> None:
        chunks = total([multiply(part) for part in parts], operation).chunk(len(parts), dim)
        for part, chunk in zip(parts, chunks, strict=True):
            part["out"].copy_(chunk)

    agree = (tuple(tensors["A"].shape), tuple(tensors["B"].shape), reduce_op, dim)
    meet(rank, group_name, name, tensors, run, read=read, written=[tensors["out"]], agree=agree)


def _check_product(what: str, A: torch.Tensor, B: torch.Tensor) -> None:
    if A.dim() < 2 or B.dim() != 2 or A.shape[-1] != B.shape[0]:
        raise SymmetricMemoryError(
            f"{what}: A {list(A.shape)} and B {list(B.shape)} have no product; A has two dimensions or more, and its last one is B's first"
        )


def _check_dtypes(what: str, A: torch.Tensor, B: torch.Tensor) -> None:
    if A.dtype != B.dtype:
        raise SymmetricMemoryError(f"{what}: A is of {A.dtype} and B of {B.dtype}; they have to be of one dtype")


def _check_scale(what: str, B: torch.Tensor, B_scale: torch.Tensor, bias: torch.Tensor | None) -> None:
    if B_scale.numel() not in (1, B.shape[-1]):
        raise SymmetricMemoryError(f"{what}: B_scale of shape {list(B_scale.shape)} is not one, nor one a column of B {list(B.shape)}")
    if bias is not None and bias.shape[-1:] not in ((1,), (B.shape[-1],)):
        raise SymmetricMemoryError(f"{what}: bias of shape {list(bias.shape)} is not one a column of B {list(B.shape)}")


def _empty(shape: Sequence[int], dim: int, dtype: torch.dtype) -> torch.Tensor:
    """With the strides of torch's results: the shards lie one after the other, but for those of the last dimension."""
    if dim in (-1, len(shape) - 1):
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.empty((shape[dim], *shape[:dim], *shape[dim + 1 :]), dtype=dtype).movedim(0, dim)


def _grown(tensor: torch.Tensor, dim: int, size: int) -> list[int]:
    shape = list(tensor.shape)
    shape[dim] *= size
    return shape


def _parted(what: str, shape: torch.Size, dim: int, size: int) -> list[int]:
    parts = list(shape)
    if parts[dim] % size:
        raise SymmetricMemoryError(f"{what}: dimension {dim} of the product {parts} is not divisible by the {size} ranks of the group")
    parts[dim] //= size
    return parts


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """8-bit floats as bytes, which can be joined."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _scaled(A: torch.Tensor, B: torch.Tensor, A_scale: torch.Tensor, B_scale: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The product of scaled matrices in fp32. Scales: one, or one a row of A and a column of B."""
    rows = A_scale if A_scale.numel() == 1 else A_scale.reshape(*A.shape[:-1], 1)
    result = torch.matmul(A.float(), B.float()) * rows.float() * B_scale.float()
    return result if bias is None else result + bias.float()


def _no_result_scale(what: str, scales: list[torch.Tensor | None]) -> None:
    if any(scale is not None for scale in scales):
        raise UnsupportedOperationError(f"{what}: result scales have no meaning on the simulator; scale the result")


_SCALAR_TYPES = {5: torch.float16, 6: torch.float32, 7: torch.float64, 15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn}
"""torch's numbers of dtypes, as operators pass them in lists."""


def _dtype(what: str, value: torch.dtype | int | None) -> torch.dtype | None:
    found = _SCALAR_TYPES.get(value) if isinstance(value, int) else value
    if value is not None and found not in _SCALAR_TYPES.values():
        raise SymmetricMemoryError(
            f"{what}: out_dtype {value if found is None else found} is none of {', '.join(map(str, _SCALAR_TYPES.values()))}"
        )
    return found


OPERATORS: dict[str, Operator] = {
    "fused_all_gather_matmul": _all_gather_matmul,
    "fused_all_gather_scaled_matmul": _all_gather_scaled_matmul,
    "fused_matmul_reduce_scatter": _matmul_reduce_scatter,
    "fused_scaled_matmul_reduce_scatter": _scaled_matmul_reduce_scatter,
}
