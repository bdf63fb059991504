"""How long a torch operator takes on the pretended GPU: matrix products by their shape, everything else by the bytes that it moves."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .cost_model import OperatorTime, matmul_time
from .gpus import GPU

aten = torch.ops.aten

PRODUCTS: dict[Any, tuple[int, int]] = {
    aten.mm.default: (0, 1),
    aten.mm.out: (0, 1),
    aten.bmm.default: (0, 1),
    aten.bmm.out: (0, 1),
    aten.mv.default: (0, 1),
    aten.dot.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.addmm.out: (1, 2),
    aten.addmm_.default: (1, 2),
    aten.baddbmm.default: (1, 2),
    aten.baddbmm.out: (1, 2),
    aten._scaled_mm.default: (0, 1),
    aten._scaled_mm.out: (0, 1),
    aten._int_mm.default: (0, 1),
    aten.linear.default: (0, 1),
}
"""Matrix products, with the positions of their two factors."""


def operator_time(func: Any, args: tuple, kwargs: dict[str, Any], outputs: Any, gpu: GPU) -> OperatorTime:
    """How long one operator takes beyond its start. outputs: what it returns.

    Convolutions and fused attention count as what they move only.
    """
    costs = gpu.costs
    factors = PRODUCTS.get(func)
    if factors is not None:
        left, right = (args[position] for position in factors)
        if func is aten.linear.default:
            right = right.t()
        m = left.shape[-2] if left.dim() > 1 else 1
        n = right.shape[-1] if right.dim() > 1 else 1
        batch = left.shape[0] if left.dim() > 2 else 1
        ieee = left.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
        one = matmul_time(costs, gpu.sm_count, m, n, left.shape[-1], left.element_size(), ieee)
        return OperatorTime(batch * one.alone, batch * one.busy)
    tensors = {id(leaf): leaf for leaf in pytree.tree_leaves((args, kwargs, outputs)) if isinstance(leaf, torch.Tensor)}
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) / costs.hbm
    return OperatorTime(moved, moved)
