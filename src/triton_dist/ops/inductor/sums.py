"""Products that are added up over the ranks: ``gemm_rs`` for a reduce-scatter, ``gemm_ar`` for an all-reduce.

``gemm_rs`` cuts the rows of a matrix into as many parts as there are ranks. A reduce-scatter along dimension 0 is that as it is. Of one
along another dimension torch makes pieces of the product, ``cat``, and a reduce-scatter along dimension 0; where the pieces are not
columns, a permutation of the rows of the left operand replaces the ``cat`` of the product.

A bias that a product adds on every rank would be added as often as there are ranks. DTensor divides it by their number before: the
operators add it once instead, undivided. That takes it to be the same on all ranks, as DTensor's is.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from ..gemm import custom_ops  # noqa: F401  registers the operators
from .groups import check_device, team_of
from .nodes import (
    RESHAPES,
    Size,
    argument,
    aten,
    call,
    erase_unused,
    keeps_rows,
    other_users,
    replace_sizes,
    same,
    size_of,
    tensor_of,
    times,
)
from .pieces import pieces_of
from .products import PRODUCTS, Product, product_of
from .report import Unsuitable

_c10d = torch.ops._c10d_functional


@dataclass(frozen=True)
class Sum:
    """A product that is added up. collective, wait: the nodes that do it. scatter: whether each rank gets a part only.

    summed: the product, maybe reshaped, as it is before it is cut along ``dim``. nodes: all between the product's node and the collective.
    """

    collective: Node
    wait: Node
    product: Product
    summed: Node
    dim: int
    nodes: tuple[Node, ...]
    size: int
    group: str
    average: bool
    scatter: bool
    bias: Node | None

    def sizes(self, graph: Graph) -> list[Size]:
        """Those of ``summed``, found without it."""
        return [_size(graph, self.summed, self.product, dim) for dim in range(tensor_of(self.summed).dim())]


def fuse_sum(graph: Graph, collective: Node) -> tuple[str, Product]:
    """Turn a product and the reduce-scatter or all-reduce of it into an operator; the operator's name, and the product.

    Raises Unsuitable; the graph then computes what it did.
    """
    found = _sum(collective)
    product = found.product
    for node in (product.node, *found.nodes):
        if node is product.node or node.target in RESHAPES:
            replace_sizes(graph, node, functools.partial(_size, graph, node, product))
    name = "gemm_rs" if found.scatter else "gemm_ar"
    with graph.inserting_before(collective):
        a = _rows_by_owner(graph, found) if found.scatter else product.a
        which, scales = getattr(torch.ops.triton_dist, name).default, (product.scale_a, product.scale_b)
        result = call(graph, which, a, product.b, found.bias, found.group, "auto", *scales, product.out_dtype)
        if found.average:
            result = call(graph, aten.div.Scalar, result, found.size)
        if found.summed is not product.node:
            shape = found.sizes(graph)
            if found.scatter:
                shape[found.dim] = _divided(graph, shape[found.dim], found.size)
            result = call(graph, aten.reshape.default, result, shape)
    found.wait.replace_all_uses_with(result)
    # A backward may keep the result as it is before the wait: the same memory.
    collective.replace_all_uses_with(result, delete_user_cb=lambda user: user is not found.wait)
    parts = [] if product.bias is None else [product.bias]
    erase_unused(graph, [*parts, product.node, *found.nodes, collective, found.wait])
    return name, product


def _sum(collective: Node) -> Sum:
    """The sum that a collective is. Raises Unsuitable if no operator computes it."""
    scatter = collective.target is _c10d.reduce_scatter_tensor.default
    waits = [user for user in collective.users if user.target is _c10d.wait_tensor.default]
    if len(waits) != 1:
        raise Unsuitable(f"{len(waits)} nodes wait for it; one is expected")
    group = argument(collective, "group_name")
    size = team_of(group, argument(collective, "group_size") if scatter else None).size
    summed: Node = argument(collective, "input")
    check_device(tensor_of(summed))
    dim, nodes = 0, []
    pieces = pieces_of(summed, size) if scatter else None
    if pieces is not None and pieces.joined == 0:
        summed, dim, nodes = pieces.origin, pieces.cut, [*pieces.nodes]
    node = summed
    while node.target in RESHAPES and (not scatter or keeps_rows(node)):
        nodes.append(node)
        node = node.args[0]  # type: ignore[assignment]
    if node.target not in PRODUCTS:
        raise Unsuitable(f"what it adds up, {node}, is no product of matrices")
    product = product_of(node)
    used = next((each for each in (node, *nodes) if other_users(each, (*nodes, collective))), None)
    if used is not None:
        raise Unsuitable(f"{used}, of what it adds up, is used elsewhere, too")
    bias = None if product.bias is None else _shared_bias(product, size)
    average = _is_average(argument(collective, "reduce_op"), tensor_of(collective).dtype)
    if scatter:
        _check_rows(tensor_of(summed), dim, size)
    return Sum(collective, waits[0], product, summed, dim, tuple(nodes), size, group, average, scatter, bias)


def _shared_bias(product: Product, size: int) -> Node:
    """What all ranks add together where each adds a part of it. Raises Unsuitable if that can't be seen, or the operators don't take it."""
    part, out = product.bias, tensor_of(product.node)
    assert part is not None
    if part.target not in (aten.div.Tensor, aten.div.Scalar) or part.args[1] != size or not isinstance(part.args[0], Node):
        raise Unsuitable(f"{product.node} adds a bias on every rank; add it to the sum instead")
    whole = tensor_of(part.args[0])
    if whole.dim() != 1 or not same(whole.shape[0], out.shape[1]) or whole.dtype != out.dtype or not whole.is_contiguous():
        raise Unsuitable(f"the bias {part.args[0]} is no contiguous row of {out.dtype}")
    return part.args[0]


def _is_average(how: str, dtype: torch.dtype) -> bool:
    """Whether the sum is to be divided. Raises Unsuitable for what is no sum."""
    if how not in ("sum", "avg"):
        raise Unsuitable(f"it takes the {how} over the ranks; the operators add up")
    if how == "avg" and dtype == torch.float16:
        raise Unsuitable("it takes the average of fp16, whose sum might be too large for fp16")
    return how == "avg"


def _check_rows(summed: torch.Tensor, dim: int, size: int) -> None:
    if dim == summed.dim() - 1:
        raise Unsuitable("it scatters the columns of the product; gemm_rs scatters rows")
    if isinstance(summed.shape[dim], int) and summed.shape[dim] % size:
        raise Unsuitable(f"{size} ranks can't share {summed.shape[dim]} rows equally")


def _size(graph: Graph, node: Node, product: Product, dim: int) -> Size:
    """The size of the product or of a reshape of it, found without it. Raises Unsuitable where only the tensor itself tells it."""
    size = tensor_of(node).shape[dim]
    if isinstance(size, int):
        return size
    if node is product.node:
        return size_of(graph, product.b if dim == 1 else product.a, dim)
    if node.target is aten.alias.default:
        return _size(graph, node.args[0], product, dim)  # type: ignore[arg-type]
    given = node.args[1][dim]  # type: ignore[index]
    if not isinstance(given, Node):
        raise Unsuitable(f"the size of {node} along dimension {dim} is not given by a node")
    return given


def _divided(graph: Graph, size: Size, by: int) -> Size:
    return size // by if isinstance(size, int) else call(graph, operator.floordiv, size, by)


def _rows_by_owner(graph: Graph, found: Sum) -> Node:
    """The left operand, with the rows of the first rank's part of the product first, then those of the second rank's, and so on."""
    a, shape = found.product.a, found.sizes(graph)
    before, after = times(graph, shape[: found.dim]), times(graph, shape[found.dim : -1])
    if before == 1:
        return a
    depth = size_of(graph, a, 1)
    parts = call(graph, aten.reshape.default, a, [before, found.size, _divided(graph, after, found.size), depth])
    parts = call(graph, aten.permute.default, parts, [1, 0, 2, 3])
    return call(graph, aten.reshape.default, parts, [times(graph, (before, after)), depth])
