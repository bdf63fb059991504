"""Which nodes are products that the operators can take over, and with which operands."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Node

from ..gemm.operands import DTYPES, FP8
from .nodes import argument, aten, tensor_of
from .report import Unsuitable

PRODUCTS = (aten.mm.default, aten.addmm.default, aten._scaled_mm.default)


@dataclass(frozen=True)
class Product:
    """``node`` is a @ b, times both scales if given, plus ``bias`` if given. out_dtype: of fp8 products, else None."""

    node: Node
    a: Node
    b: Node
    bias: Node | None = None
    scale_a: Node | None = None
    scale_b: Node | None = None
    out_dtype: torch.dtype | None = None

    @property
    def operands(self) -> list[Node]:
        """All inputs but ``a``."""
        return [each for each in (self.b, self.bias, self.scale_a, self.scale_b) if each is not None]

    @property
    def shapes(self) -> str:
        return f"{_words(tensor_of(self.a))} @ {_words(tensor_of(self.b))} {str(tensor_of(self.a).dtype).removeprefix('torch.')}"


def _words(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"


def product_of(node: Node) -> Product:
    """The product that ``node``, one of ``PRODUCTS``, is. Raises Unsuitable for one that no operator computes."""
    if node.target is aten._scaled_mm.default:
        product = _scaled(node)
    elif node.target is aten.addmm.default:
        if argument(node, "alpha", 1) != 1 or argument(node, "beta", 1) != 1:
            raise Unsuitable(f"{node} multiplies by alpha or beta")
        product = Product(node, argument(node, "mat1"), argument(node, "mat2"), argument(node, "self"))
    else:
        product = Product(node, argument(node, "self"), argument(node, "mat2"))
    a, b, out = tensor_of(product.a), tensor_of(product.b), tensor_of(node)
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        raise Unsuitable(f"{node} multiplies {a.dtype} by {b.dtype}; the operators take two operands of one of {_names(DTYPES)}")
    if a.dtype not in FP8 and out.dtype != a.dtype:
        raise Unsuitable(f"{node} is {out.dtype} for operands of {a.dtype}, which the operators do not offer")
    return product


def _names(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _scaled(node: Node) -> Product:
    scales = argument(node, "scale_a"), argument(node, "scale_b")
    if any(tensor_of(scale).numel() != 1 or tensor_of(scale).dtype != torch.float32 for scale in scales):
        raise Unsuitable(f"{node} has scales of rows or blocks; the operators take one fp32 element for each operand")
    if argument(node, "scale_result") is not None or tensor_of(node).dtype in FP8:
        raise Unsuitable(f"{node} gives fp8; the operators give bf16, fp16 or fp32")
    operands = argument(node, "self"), argument(node, "mat2"), argument(node, "bias")
    return Product(node, *operands, *scales, tensor_of(node).dtype)
