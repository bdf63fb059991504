"""All-gathers whose result is the left operand of a product: ``ag_gemm`` does both.

The operator gathers whole matrices, rank after rank. A gather along dimension 0 is that as it is. torch makes one along another dimension
of a gather along dimension 0, pieces, and ``cat``; where it does not cut rows, its product has the same rows in another order, and a
permutation of the product replaces the ``cat`` of its operand.
Where the gathered tensor is needed elsewhere (other products, the backward), ``ag_gemm_gathered`` gives it, too.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

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
    descendants,
    erase_unused,
    keeps_rows,
    other_users,
    positions,
    replace_sizes,
    size_of,
    tensor_of,
    times,
)
from .pieces import pieces_of
from .products import PRODUCTS, Product, product_of
from .report import Unsuitable

_c10d = torch.ops._c10d_functional


@dataclass(frozen=True)
class Gather:
    """A gathered tensor. collective: its all-gather; shard: this rank's part of it; dtype: what it is taken for, if gathered as bytes.

    value: the node of the result, the shards one after the other along dimension ``dim``. nodes: all from the collective to ``value``.
    """

    collective: Node
    shard: Node
    value: Node
    dim: int
    size: int
    group: str
    nodes: tuple[Node, ...]
    dtype: torch.dtype | None = None

    def sizes(self, graph: Graph) -> list[Size]:
        """Those of ``value``."""
        shape = [size_of(graph, self.shard, dim) for dim in range(tensor_of(self.shard).dim())]
        shape[self.dim] = times(graph, (self.size, shape[self.dim]))
        return shape


def fuse_gather(graph: Graph, collective: Node) -> tuple[str, Product]:
    """Turn an all-gather and a product of its result into an operator; the operator's name, and the product.

    Raises Unsuitable; the graph then computes what it did.
    """
    gather = _gather(collective)
    team_of(gather.group, gather.size)
    check_device(tensor_of(gather.shard))
    if gather.dim == tensor_of(gather.shard).dim() - 1:
        raise Unsuitable("it gathers along the last dimension, by which the product is summed")
    products, others, between = _uses(gather)
    _replace_sizes(graph, gather)
    if len(products) == 1 and not others:
        name, product = "ag_gemm", products[0]
        with graph.inserting_before(product.node):
            _replace_product(graph, gather, product, _operator(graph, gather, product, torch.ops.triton_dist.ag_gemm.default))
    else:
        name, product = "ag_gemm_gathered", _replace_both(graph, gather, products, [*others, *between])
    erase_unused(graph, [*gather.nodes, *between, product.node])
    return name, product


def _gather(collective: Node) -> Gather:
    """The gathered tensor as the graph uses it. Raises Unsuitable where it is used before it has its last form."""
    shard, size, group = argument(collective, "input"), argument(collective, "group_size"), argument(collective, "group_name")
    waits = [user for user in collective.users if user.target is _c10d.wait_tensor.default]
    if len(waits) != 1 or tensor_of(shard).dim() == 0:
        raise Unsuitable(f"{len(waits)} nodes wait for it; one is expected, of a tensor with dimensions")
    wait = waits[0]
    found = Gather(collective, shard, wait, 0, size, group, (collective, wait))
    found = _reassembled(found) or found
    users = other_users(wait, ())
    if found.value is wait and len(users) == 1 and users[0].target is aten.view.dtype:
        found = _as_dtype(found, users[0])
    if found.value is not wait and other_users(collective, (wait,)):
        raise Unsuitable("its result is used before it has its dtype and the order of its dimensions")
    return found


def _as_dtype(gather: Gather, view: Node) -> Gather:
    """fp8 that is gathered as bytes."""
    dtype = argument(view, "dtype")
    if dtype.itemsize != tensor_of(gather.shard).dtype.itemsize:
        raise Unsuitable(f"it gathers {tensor_of(gather.shard).dtype}, and takes that for {dtype}, which is of another size")
    return replace(gather, value=view, nodes=(*gather.nodes, view), dtype=dtype)


def _reassembled(gather: Gather) -> Gather | None:
    """The gather along another dimension that torch makes of one along dimension 0, if it is one."""
    node = gather.value
    for _ in range(3):  # a split, an item of it, the cat; or a slice, the cat
        node = next(iter(other_users(node, ())), node)
        pieces = pieces_of(node, gather.size)
        if pieces is not None:
            break
    else:
        return None
    nodes = (*gather.nodes, *pieces.nodes)
    if pieces.origin is not gather.value or pieces.cut != 0 or any(other_users(each, nodes) for each in nodes[1:-1]):
        return None
    return replace(gather, value=node, dim=pieces.joined, nodes=nodes)


def _uses(gather: Gather) -> tuple[list[Product], list[Node], list[Node]]:
    """Products of the gathered rows in the graph's order, all other users of the result, and the reshapes between result and products.

    Raises Unsuitable if there is no product that an operator computes.
    """
    products: list[Product] = []
    others = other_users(gather.collective, gather.nodes)
    between: list[Node] = []
    reasons: list[str] = []
    pending = [gather.value]
    while pending:
        node = pending.pop()
        for user in other_users(node, ()):
            if user.target in PRODUCTS:
                try:
                    product = product_of(user)
                    if product.a is not node or node in product.operands:
                        raise Unsuitable(f"{user} has it as another operand than the left one")
                    products.append(product)
                    continue
                except Unsuitable as reason:
                    reasons.append(str(reason))
            elif keeps_rows(user) and any(_leads_to_product(each) for each in other_users(user, ())):
                between.append(user)
                pending.append(user)
                continue
            others.append(user)
    if not products:
        raise Unsuitable(reasons[0] if reasons else "no product has its result as the left operand")
    order = positions(gather.value.graph)
    return sorted(products, key=lambda each: order[each.node]), others, between


def _leads_to_product(node: Node) -> bool:
    return node.target in PRODUCTS or node.target in RESHAPES


def _rows(graph: Graph, gather: Gather) -> Node:
    """The shard as a matrix."""
    shard = gather.shard if gather.dtype is None else call(graph, aten.view.dtype, gather.shard, gather.dtype)
    if tensor_of(shard).dim() == 2:
        return shard
    shape = [size_of(graph, shard, dim) for dim in range(tensor_of(shard).dim())]
    return call(graph, aten.reshape.default, shard, [times(graph, shape[:-1]), shape[-1]])


def _operator(graph: Graph, gather: Gather, product: Product, which: Any) -> Node:
    shard, scales = _rows(graph, gather), (product.scale_a, product.scale_b)
    return call(graph, which, shard, product.b, gather.group, "auto", *scales, product.out_dtype)


def _in_order(graph: Graph, gather: Gather, rows: Node) -> Node:
    """``rows``, a matrix with the ranks' rows one after the other, with its rows in the order that ``gather.value`` has."""
    shape = [size_of(graph, gather.shard, dim) for dim in range(tensor_of(gather.shard).dim())]
    before, after = times(graph, shape[: gather.dim]), times(graph, shape[gather.dim : -1])
    if before == 1:
        return rows
    width = size_of(graph, rows, 1)
    parts = call(graph, aten.reshape.default, rows, [gather.size, before, after, width])
    parts = call(graph, aten.permute.default, parts, [1, 0, 2, 3])
    return call(graph, aten.reshape.default, parts, [times(graph, (gather.size, before, after)), width])


def _replace_product(graph: Graph, gather: Gather, product: Product, rows: Node) -> None:
    """Put ``rows``, the operator's result, in the place of the product's."""
    result = _in_order(graph, gather, rows)
    if product.bias is not None:
        result = call(graph, aten.add.Tensor, result, product.bias)
    product.node.replace_all_uses_with(result)


def _replace_both(graph: Graph, gather: Gather, products: list[Product], others: list[Node]) -> Product:
    """The operator that also gives the gathered tensor, for the first product that may run before all other uses of that."""
    order = positions(graph)
    uses = [*[each.node for each in products], *others]
    first = min(uses, key=lambda each: order[each])
    needs_gathered = descendants(gather.collective)
    for product in products:
        moved = _inputs_behind(product, first, order)
        if needs_gathered.isdisjoint(moved) and all(_is_pure(each) for each in moved):
            break
    else:
        raise Unsuitable("every product of its result needs something else that is made of it, or that can't be computed before it")
    for each in sorted(moved, key=lambda node: order[node]):
        first.prepend(each)
    with graph.inserting_before(first):
        both = _operator(graph, gather, product, torch.ops.triton_dist.ag_gemm_gathered.default)
        rows, gathered = call(graph, operator.getitem, both, 0), call(graph, operator.getitem, both, 1)
        complete = _in_order(graph, gather, gathered)
        if tensor_of(gather.shard).dim() != 2:
            complete = call(graph, aten.reshape.default, complete, gather.sizes(graph))
        _replace_product(graph, gather, product, rows)
    gather.value.replace_all_uses_with(complete)
    gather.collective.replace_all_uses_with(complete, delete_user_cb=lambda user: user not in gather.nodes)
    return product


def _inputs_behind(product: Product, first: Node, order: dict[Node, int]) -> set[Node]:
    """What the product's operands but the gathered one need of the nodes from ``first`` on."""
    found: set[Node] = set()
    pending = list(product.operands)
    while pending:
        node = pending.pop()
        if order[node] >= order[first] and node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def _is_pure(node: Node) -> bool:
    """Whether a node may be computed earlier than it is."""
    target = node.target
    return target is operator.getitem or isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable


def _replace_sizes(graph: Graph, gather: Gather) -> None:
    """Let sizes of the gathered tensor be computed from the shard's."""
    for node in (gather.value, *gather.nodes[:2]):
        dim_of_ranks = gather.dim if node is gather.value else 0

        def size(dim: int, dim_of_ranks: int = dim_of_ranks) -> Size:
            own = size_of(graph, gather.shard, dim)
            return times(graph, (gather.size, own)) if dim == dim_of_ranks else own

        replace_sizes(graph, node, size)
